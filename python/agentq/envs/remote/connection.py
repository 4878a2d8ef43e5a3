"""The client's end of one session: a connection with a deadline for every call and checked replies."""

from __future__ import annotations

import itertools
import selectors
import time
from typing import Annotated, Any, ClassVar

from pydantic import Field

from agentq.envs.browser import wire
from agentq.envs.remote import address
from agentq.envs.remote.env_process import PROTOCOL
from agentq.envs.remote.stream import Until
from agentq.envs.remote.token import find
from agentq.envs.replies import AboutReply, Count, Line, R, Reply, one_line, read
from agentq.errors import ConfigError, EnvError

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # poll knows no highest descriptor
HELLO_S = 300.0  # for a session to start and greet: environments may load data


class SessionLost(EnvError):
    """A session that can no longer be used. The message is one line."""

    def __init__(self, why: str) -> None:
        super().__init__(one_line(why))


class Busy(EnvError):
    """All sessions of a server are open."""


class Hello(AboutReply):
    """What a server serves, how many sessions may be open at once, and whether it has an expert."""

    name: Annotated[Line, Field(pattern=r"^[^@]+$")]  # it is called NAME@ADDRESS
    protocol: int
    sessions: Count
    expert: bool = False


class Closed(Reply):
    """The reply to `close`."""


class Connection:
    """One connection. Any failure raises SessionLost and disconnects; one that the server calls final, ConfigError;
    a server whose sessions are all open, Busy.

    `live` holds all open connections, so that garbage collection does not close their sockets.
    """

    live: ClassVar[set[Connection]] = set()

    def __init__(self, at: str) -> None:
        self.at = at
        self._numbers = itertools.count(1)
        self.busy = False
        try:
            self._socket = address.connect(at, HELLO_S)
        except OSError as error:
            raise EnvError(f"a server must listen at {at}: agentq env serve; got {error.strerror or error}") from None
        self.live.add(self)
        token = find(self._socket)
        self.hello = self.call(Hello, "hello", HELLO_S, protocol=PROTOCOL, **({"token": token} if token else {}))

    def call(self, reply: type[R], call: str, deadline_s: float, **args: Any) -> R:
        """The server's reply to a call within `deadline_s`."""
        try:
            answer = self._ask(call, deadline_s, args)
        except (ConfigError, Busy):
            self.hang_up()
            raise
        except TimeoutError:
            lost = f"{call} must be answered within {deadline_s:g} s; got nothing"
        except (OSError, ValueError, RecursionError) as error:
            lost = f"the server at {self.at} must speak the protocol; got {error}"
        except SessionLost as error:
            lost = str(error)
        else:
            try:
                return read(reply, answer)
            except ValueError as error:
                lost = f"the reply to {call} is wrong in {error}"
        self.hang_up()
        raise SessionLost(lost)

    def _ask(self, call: str, deadline_s: float, args: dict[str, Any]) -> Any:
        number = next(self._numbers)
        body = wire.encode({"id": number, "call": call, "args": args})
        if len(body) > wire.CALL_BYTES:
            raise ValueError(f"a call of {len(body)} bytes; at most {wire.CALL_BYTES} may be sent")
        end = time.monotonic() + deadline_s
        self._socket.settimeout(deadline_s)
        self.busy = True  # until it has answered
        with self._socket.makefile("wb") as stream:
            wire.write_body(stream, body)
        answer = wire.read(Until(self._socket, lambda: end), wire.REPLY_BYTES)
        self.busy = False
        if answer is None:
            raise SessionLost(f"the server at {self.at} must answer {call}; it hung up")
        if answer.get("error"):
            if answer.get("final") is True:
                raise ConfigError(one_line(str(answer["error"])))
            if answer.get("busy") is True:
                raise Busy(one_line(str(answer["error"])))
            raise SessionLost(str(answer["error"]))
        if answer.get("id") != number:
            raise ValueError(f"a reply must have the id of its call ({number}); got {str(answer.get('id'))[:40]}")
        return answer.get("result")

    def alive(self) -> bool:
        """Whether this session, which is idle, is still open at both ends."""
        if self._socket.fileno() < 0:
            return False
        with _Selector() as ready:
            ready.register(self._socket, selectors.EVENT_READ)
            return not ready.select(0)

    def hang_up(self) -> None:
        """Disconnect; the server ends the process."""
        self.live.discard(self)
        self._socket.close()
