"""The process of one session: calls on its standard input, replies on its standard output, as in docs/protocol.md.

start.py runs it as `PYTHON start.py WHAT SESSIONS`. WHAT is `FILE.py:FUNCTION`, a function without arguments that makes
the environment, or a name that an adapter knows. Runs in any Python 3.9 with the standard library.

An environment is a class of the contract in `envs/contract.py`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from agentq.envs import contract
from agentq.envs.browser import processes, wire
from agentq.errors import AgentqError, ConfigError, EnvError

PROTOCOL = 1
CALLS = ("hello", "reset", "step", "expert", "close")


def factory(what: str) -> Callable[[], Any]:
    """The function that makes the environment. Raises ConfigError if there is none, or MissingExtra."""
    if contract.is_file(what):
        return contract.from_file(what)
    if what.startswith("browsergym/"):
        from agentq.envs.remote.browsergym import BrowserGymEnv

        return lambda: BrowserGymEnv(what)
    if what.startswith("textworld/"):
        from agentq.envs.remote.textworld_games import TextWorldEnv

        return lambda: TextWorldEnv(what)
    if what.startswith("alfworld/"):
        from agentq.envs.remote.textworld_games import AlfWorldEnv

        return lambda: AlfWorldEnv(what)
    known = "FILE.py:FUNCTION, browsergym/TASK, textworld/SIZE or alfworld/SPLIT"
    raise ConfigError(f"what is served must be {known}; got {what}")


class ServedEnv:
    """Carries out the calls on one environment. The first call makes it."""

    def __init__(self, what: str, sessions: int) -> None:
        self.what, self.sessions = what, sessions
        self.env: Any = None
        self.tools: list[dict[str, Any]] = []  # that the client was told of

    def answer(self, message: wire.Message) -> wire.Message:
        """The reply to a message. A failure becomes one line; the session can then no longer be used."""
        final = {}
        try:
            if message.get("call") not in CALLS:
                raise EnvError(f"call must be one of {', '.join(CALLS)}; got {message.get('call')}")
            return {"id": message.get("id", 0), "result": getattr(self, message["call"])(**message.get("args", {}))}
        except AgentqError as error:
            said = str(error)
            if isinstance(error, ConfigError) and message.get("call") != "hello":
                final = {"final": True}
        except Exception as error:  # raised by the environment
            said = contract.first_words(error)
        return {"id": message.get("id", 0), "error": said.strip().split("\n", 1)[0], **final}

    def hello(self, protocol: int) -> dict[str, Any]:
        """The environment and its limits."""
        if protocol != PROTOCOL:
            raise ConfigError(f"protocol must be {PROTOCOL}; got {protocol}")
        self.env = contract.checked(factory(self.what)(), self.what) if self.env is None else self.env
        more = {"expert": True} if callable(getattr(self.env, "expert", None)) else {}
        about = contract.about(self.env)
        self.tools = list(about.get("tools", []))
        return {"protocol": PROTOCOL, "sessions": self.sessions, **about, **more}

    def reset(self, seed: int) -> dict[str, Any]:
        """Start the episode of `seed`."""
        begun = self._told("reset", self.env.reset(seed))
        contract.check_tools(self.env, self.tools)
        return begun

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        """Take one command."""
        return self._told("step", self.env.step(command, element, text))

    def expert(self) -> dict[str, Any]:
        """The next step of the environment's expert."""
        return self._told("expert", self.env.expert())

    def close(self) -> dict[str, Any]:
        """Let the environment clean up."""
        if hasattr(self.env, "close"):
            self.env.close()
        return {}

    def _told(self, method: str, found: Any) -> dict[str, Any]:
        """What a method returned. Raises ConfigError if the protocol cannot say it: then the class itself is wrong."""
        told: dict[str, Any] = contract.plain(found)
        wrong = "" if isinstance(told, dict) else f"input should be a valid dictionary, not {type(found).__name__}"
        try:
            wire.encode(told)
        except (TypeError, ValueError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            place = contract.place(getattr(self.env, method))
            raise ConfigError(f"{place}{method} must return what docs/protocol.md names; got {wrong}")
        return told


def _read(stream: Any, inbox: queue.SimpleQueue[wire.Message | str]) -> None:
    """The reading thread. Fills `inbox` with messages and faults; ends the process at the end of the stream."""
    with contextlib.suppress(Exception):
        while (body := wire.read_body(stream, wire.CALL_BYTES)) is not None:
            try:
                inbox.put(wire.decode(body))
            except (ValueError, RecursionError) as error:
                inbox.put(str(error))
    processes.end_here()


def main() -> None:
    """Serve until the stream ends."""
    calls, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the environment prints goes to stderr
    session = ServedEnv(sys.argv[1], int(sys.argv[2]))
    inbox: queue.SimpleQueue[wire.Message | str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(calls, inbox), daemon=True).start()
    while True:
        asked = inbox.get()
        reply = {"id": 0, "error": asked} if isinstance(asked, str) else session.answer(asked)
        wire.write(replies, reply, wire.REPLY_BYTES)


if __name__ == "__main__":
    main()
