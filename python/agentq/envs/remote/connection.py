"""A client's end of one session: a connection, a deadline on every call, and replies that are checked."""

from __future__ import annotations

import itertools
import select
import socket
import time
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentq.envs.browser import wire
from agentq.envs.remote import address
from agentq.envs.remote.session import PROTOCOL
from agentq.errors import EnvError

HELLO_S = 300.0  # for a session to start and say hello: environments may load data
_Seconds = Annotated[float, Field(gt=0)]
_Count = Annotated[int, Field(ge=1)]


class SessionLost(EnvError):
    """A session that cannot be used any more."""


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Hello(_Reply):
    """What a server serves: how many steps an episode has, how many sessions may be open, how long a call may take.

    `commands`: which of INPUT_COMMANDS it takes.
    """

    protocol: int
    name: str
    max_steps: _Count
    sessions: _Count
    deadline_s: _Seconds
    commands: list[Literal["HOVER", "DRAG", "PRESS"]] = []


class Start(_Reply):
    """The beginning of an episode."""

    instruction: str
    text: str
    url: str = ""


class Outcome(_Reply):
    """What a step did. `answer` is what the user says to ASK_USER."""

    text: str
    url: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    error_kind: str | None = None
    error_message: str = ""
    answer: str = ""


class Closed(_Reply):
    """Nothing more to say."""


_R = TypeVar("_R", bound=_Reply)


class Connection:
    """One connection. Any failure on it is a SessionLost, and hangs up.

    `live` has all that were not hung up: also the collector of cycles must leave their sockets open.
    """

    live: ClassVar[set[Connection]] = set()

    def __init__(self, at: str) -> None:
        self.at = at
        self._numbers = itertools.count(1)
        try:
            self._socket = address.connect(at, HELLO_S)
        except OSError as error:
            raise EnvError(f"a server must listen at {at}: agentq env serve; got {error.strerror or error}") from None
        self.live.add(self)
        self.hello = self.call(Hello, "hello", HELLO_S, protocol=PROTOCOL)

    def call(self, reply: type[_R], call: str, deadline_s: float, **args: Any) -> _R:
        """What the server says to a call within `deadline_s`."""
        message = {"id": next(self._numbers), "call": call, "args": args}
        try:
            with self._socket.makefile("wb") as stream:
                wire.write(stream, message)
            answer = wire.read(_Until(self._socket, deadline_s))
            if answer is None:
                raise SessionLost(f"the server at {self.at} must answer {call}; it hung up")
            if answer.get("error"):
                raise SessionLost(str(answer["error"]))
            if answer.get("id") != message["id"]:
                raise ValueError(f"a reply must have the id of its call ({message['id']}); got {answer.get('id')}")
            return reply.model_validate(answer.get("result"))
        except TimeoutError:
            lost = f"{call} must be answered within {deadline_s:g} s; got nothing"
        except ValidationError as error:
            lost = f"the reply to {call} is wrong in {_where(error)}"
        except (OSError, ValueError, RecursionError) as error:
            lost = f"the server at {self.at} must speak the protocol; got {error}"
        except SessionLost:
            self.hang_up()
            raise
        self.hang_up()
        raise SessionLost(lost)

    def alive(self) -> bool:
        """Whether the server still holds an idle session open."""
        return not select.select([self._socket], [], [], 0)[0]

    def hang_up(self) -> None:
        """Leave; the server ends the process."""
        self.live.discard(self)
        self._socket.close()


class _Until:
    """What comes out of a connection until a moment; then TimeoutError."""

    def __init__(self, connected: socket.socket, deadline_s: float) -> None:
        self._socket, self._end = connected, time.monotonic() + deadline_s

    def read(self, size: int, /) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = self._end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(min(size - len(data), 1 << 16))
            if not part:
                break
            data += part
        return bytes(data)


def _where(error: ValidationError) -> str:
    """The first fault: `reward: input should be a valid number`."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"{place}: {message}" if place else message
