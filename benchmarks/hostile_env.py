"""An environment server that sends any reply it is given, and over a thousand replies that no client should accept."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from agentq.envs.browser import wire
from agentq.envs.remote import client
from agentq.envs.remote.client import RemoteEnv
from agentq.errors import AgentqError
from agentq.types import Command, EnvAction, Split, StepResult, Task

Answer = Callable[[wire.Message], bytes]

RESULTS = {
    "hello": {"protocol": "1", "name": '"fake"', "max_steps": "3", "sessions": "1", "deadline_s": "5.0"},
    "reset": {"instruction": '"go"', "text": '"heading a"', "url": '"/"'},
    "step": {"text": '"heading b"', "url": '"/"', "reward": "0.5", "error_kind": "null", "error_message": '""'},
}
_MORE = {"hello": ("commands",), "reset": (), "step": ("answer", "terminated", "truncated", "success")}
# JSON texts, many of them invalid.
_VALUES = (
    *("null", "true", "false", "0", "-1", "1.5", "1e308", "-1e308", "1e300", "1e999", "NaN", "Infinity", "-Infinity"),
    *("9" * 400, "9" * 4000, "9" * 5000, '""', '"1"', '"a\\nb\\u001b[2J\\r\\u2028c"', '"\\ud800"', '"\\u0000"'),
    *("[]", "{}", "[" * 100 + "]" * 100, "[" * 100_000, '{"":' * 50_000, '["HOVER", "FLY"]', '["HOVER", ["DRAG"]]'),
    *('"' + "x" * 100_000 + '"', '"' + "\\n" * 50_000 + '"', "nul", "", '"', "1 1"),
)


class HostileServer:
    """Listen until closed. Each call on each connection gets the bytes of `answer`; empty bytes end the connection."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> HostileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listening.accept()[:1], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as calls:
            while (call := wire.read(calls)) is not None:
                connection.sendall(said := self.answer(call))
                if not said or len(said) < 4 + int.from_bytes(said[:4], "big"):
                    return  # the client would wait for the rest


def framed(body: bytes) -> bytes:
    """A message of these bytes."""
    return len(body).to_bytes(4, "big") + body


def answering(call: str = "", **fields: str) -> Answer:
    """Good replies except to `call`, where `fields` have these JSON texts."""

    def answer(asked: wire.Message) -> bytes:
        changed = RESULTS.get(asked["call"], {}) | (fields if asked["call"] == call else {})
        result = ", ".join(f'"{name}": {value}' for name, value in changed.items())
        return framed(f'{{"id": {asked["id"]}, "result": {{{result}}}}}'.encode())

    return answer


def saying(call: str, said: Callable[[int], bytes]) -> Answer:
    """Good replies except to `call`: the bytes that `said` makes from the id."""
    good = answering()
    return lambda asked: said(asked["id"]) if asked["call"] == call else good(asked)


def mutations() -> Iterator[tuple[str, Answer]]:
    """Replies that are wrong in one place each, by what is wrong."""
    for call, fields in RESULTS.items():
        for name in (*fields, *_MORE[call], "more"):
            for value in _VALUES:
                yield f"{call}.{name} = {value[:40]}", answering(call, **{name: value})
        for name in fields:
            kept = {key: value for key, value in fields.items() if key != name}
            result = ", ".join(f'"{key}": {value}' for key, value in kept.items())
            yield (
                f"{call} without {name}",
                saying(call, lambda i, r=result: framed(f'{{"id": {i}, "result": {{{r}}}}}'.encode())),
            )
        for value in _VALUES:
            for form in (
                '{{"id": {0}, "error": {1}}}',
                '{{"id": {0}, "result": {1}}}',
                '{{"id": {1}, "result": {{}}}}',
            ):
                yield (
                    f"{call}: {form} of {value[:40]}",
                    saying(call, lambda i, f=form, v=value: framed(f.format(i, v).encode())),
                )
        for raw in (
            b"",
            b"\0",
            b"\0\0\0\0",
            b"\xff\xff\xff\xff{}",
            b"\0\0\0\x09{}",
            framed(b"[]"),
            framed(b"\xff\xfe"),
        ):
            yield f"{call}: {raw!r}", saying(call, lambda i, r=raw: r)
        yield f"{call}: twice", saying(call, lambda i: 2 * framed(f'{{"id": {i}, "result": {{}}}}'.encode()))


def survived(server: HostileServer, answer: Answer) -> str:
    """How an episode against these replies ends: `refused`, `step`, or what is wrong with either."""
    server.answer = answer
    name = f"fake@{server.at}"
    client._hellos.pop(name, None)
    env = None
    try:
        env = RemoteEnv(name)
        env.reset(Task(env.name, 0, Split.TRAIN, "go"))
        return _fault(env.step(EnvAction(Command.CLICK, 1)))
    except AgentqError as error:
        return "refused" if _is_line(str(error)) else f"not one line: {str(error)[:80]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if env is not None:
            env.close()
        for session in client._idle.pop(name, []):
            session.hang_up()


def _fault(result: StepResult) -> str:
    shown = result.observation
    for text in (result.error_kind or "", result.error_message, shown.url, *shown.text.split("\n")):
        if text and not _is_line(text):
            return f"not one line: {text[:80]!r}"
    return "step" if abs(result.reward) <= 1e6 else f"reward {result.reward}"


def _is_line(text: str) -> bool:
    return text.isprintable() and len(text) < 50_000
