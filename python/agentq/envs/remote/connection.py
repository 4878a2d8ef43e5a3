"""A client's end of one session: a connection, a deadline on every call, and replies that are checked."""

from __future__ import annotations

import itertools
import select
import time
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agentq.envs.browser import wire
from agentq.envs.remote import address
from agentq.envs.remote.session import PROTOCOL
from agentq.envs.remote.stream import Until
from agentq.envs.remote.token import find
from agentq.envs.site import printable
from agentq.errors import EnvError

HELLO_S = 300.0  # for a session to start and say hello: environments may load data
_SHOWN = 300  # characters of a server's own words in a message
_LINE = 2000  # characters of what is shown on one line
_Seconds = Annotated[float, Field(gt=0, le=86400)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Reward = Annotated[float, Field(ge=-1e6, le=1e6)]


def one_line(text: str) -> str:
    """A server's words as part of a message: on one line, of some length, of characters that can be printed."""
    return printable(text)[:_SHOWN]


_Line = Annotated[str, AfterValidator(lambda text: printable(text)[:_LINE])]
_Note = Annotated[str, AfterValidator(one_line)]
_Word = Annotated[str, AfterValidator(lambda word: "_".join(one_line(word).split()))]


class SessionLost(EnvError):
    """A session that cannot be used any more; why, on one line."""

    def __init__(self, why: str) -> None:
        super().__init__(one_line(why))


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Hello(_Reply):
    """What a server serves: how many steps an episode has, how many sessions may be open, how long a call may take.

    `commands`: which of INPUT_COMMANDS it takes.
    """

    protocol: int
    name: _Line
    max_steps: _Count
    sessions: _Count
    deadline_s: _Seconds
    commands: Annotated[list[Literal["HOVER", "DRAG", "PRESS"]], Field(max_length=3)] = []


class Start(_Reply):
    """The beginning of an episode."""

    instruction: Annotated[str, Field(max_length=20_000), AfterValidator(printable)]
    text: str
    url: _Line = ""


class Outcome(_Reply):
    """What a step did. `answer` is what the user says to ASK_USER."""

    text: str
    url: _Line = ""
    reward: _Reward = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    error_kind: _Word | None = None
    error_message: _Note = ""
    answer: _Line = ""


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
        token = find(self._socket)
        self.hello = self.call(Hello, "hello", HELLO_S, protocol=PROTOCOL, **({"token": token} if token else {}))

    def call(self, reply: type[_R], call: str, deadline_s: float, **args: Any) -> _R:
        """What the server says to a call within `deadline_s`."""
        try:
            return reply.model_validate(self._ask(call, deadline_s, args))
        except TimeoutError:
            lost = f"{call} must be answered within {deadline_s:g} s; got nothing"
        except ValidationError as error:
            lost = f"the reply to {call} is wrong in {_where(error)}"
        except (OSError, ValueError, RecursionError) as error:
            lost = f"the server at {self.at} must speak the protocol; got {error}"
        except SessionLost as error:
            lost = str(error)
        self.hang_up()
        raise SessionLost(lost)

    def _ask(self, call: str, deadline_s: float, args: dict[str, Any]) -> Any:
        number = next(self._numbers)
        body = wire.encode({"id": number, "call": call, "args": args})
        if len(body) > wire.CALL_BYTES:
            raise ValueError(f"a call of {len(body)} bytes; at most {wire.CALL_BYTES} may be sent")
        end = time.monotonic() + deadline_s
        self._socket.settimeout(deadline_s)
        with self._socket.makefile("wb") as stream:
            wire.write_body(stream, body)
        answer = wire.read(Until(self._socket, lambda: end), wire.REPLY_BYTES)
        if answer is None:
            raise SessionLost(f"the server at {self.at} must answer {call}; it hung up")
        if answer.get("error"):
            raise SessionLost(str(answer["error"]))
        if answer.get("id") != number:
            raise ValueError(f"a reply must have the id of its call ({number}); got {str(answer.get('id'))[:40]}")
        return answer.get("result")

    def alive(self) -> bool:
        """Whether the server still holds an idle session open."""
        return not select.select([self._socket], [], [], 0)[0]

    def hang_up(self) -> None:
        """Leave; the server ends the process."""
        self.live.discard(self)
        self._socket.close()


def _where(error: ValidationError) -> str:
    """The first fault: `reward: input should be a valid number`."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"][0].lower() + first["msg"][1:]
    return f"{place}: {message}" if place else message
