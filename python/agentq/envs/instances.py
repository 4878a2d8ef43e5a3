"""Instances of classes of the contract in `contract.py`: making and closing them, and what their errors are told as."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from agentq.envs import contract
from agentq.envs.calls import CallThread
from agentq.envs.replies import AboutReply
from agentq.errors import AgentqError, ConfigError, line_in

Make = Callable[[], Any]
_failed: weakref.WeakSet[type] = weakref.WeakSet()  # classes whose close has failed
_waiting: weakref.WeakSet[Make] = weakref.WeakSet()  # functions whose instances are blocking


def new(make: Make, name: str) -> tuple[Any, CallThread | None]:
    """An instance, and if it is blocking, the thread that it was made in and must be called in.

    A class says so before; a function only by its first instance, which is then closed and made again in a thread.
    Raises ConfigError if it is no environment.
    """
    if not _waits(make):
        own = _made(make, name)
        if not getattr(own, "blocking", False):
            return own, None
        with suppress(TypeError):
            _waiting.add(make)
        close(own)
    thread = CallThread()
    try:
        return thread.run(lambda: _made(make, name)), thread
    except BaseException:
        thread.end()
        raise


def close(own: Any, thread: CallThread | None = None) -> None:
    """Let an instance tidy up that is not needed any more, in its thread. A failure is told once per class."""
    method = getattr(own, "close", None)
    if not callable(method):
        return
    try:
        method() if thread is None else thread.run(method)
    except Exception as error:
        if type(own) not in _failed:
            _failed.add(type(own))
            print(f"agentq: close() failed: {_where(error, method)}", file=sys.stderr)


def ways_back(own: Any) -> str | None:
    """`snapshot` or `fork`, whichever the class has; None if it has neither."""
    return next((method for method in ("snapshot", "fork") if callable(getattr(own, method, None))), None)


@dataclass(slots=True)
class Known:
    """What a session has told of its environment: itself, whether it has an expert, and instructions by seed."""

    about: AboutReply
    expert: bool
    instructions: dict[int, str] = field(default_factory=dict)


class Copy:
    """A copy that `fork` made, as a token. It is closed once nothing holds it."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __del__(self) -> None:
        close(self.own)


def told(error: BaseException, called: Callable[..., Any] | None = None, *, file: str = "") -> str:
    """`FILE:LINE: KeyError: 'x' (..)`; FILE defines `called`, if it took part in the error."""
    return f"{_where(error, called, file)} (AGENTQ_TRACEBACK=1 shows the traceback)"


def _where(error: BaseException, called: Callable[..., Any] | None, file: str = "") -> str:
    file = file or _file(called)
    line = line_in(file, error) if file else None
    place = f"{file}:{line}: " if line else ""
    return f"{place}{contract.first_words(error)}"


def _waits(make: Make) -> bool:
    if isinstance(make, type):
        return bool(getattr(make, "blocking", False))
    try:
        return make in _waiting
    except TypeError:  # it has no hash
        return False


def _made(make: Make, name: str) -> Any:
    _check_maker(make, name)
    try:
        made = make()
    except (AgentqError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(told(error, make)) from error
    return contract.checked(made, name)


def _check_maker(make: Make, name: str) -> None:
    """Raises ConfigError if `make` needs arguments, such as a policy given in place of the environment."""
    try:
        signature = inspect.signature(make, follow_wrapped=False)
    except ValueError:  # it is not written in Python
        return
    try:
        signature.bind()
    except TypeError:
        got = f"a {'class' if isinstance(make, type) else 'function'} of ({', '.join(signature.parameters)})"
        order = ": the order is search(env, task, policy) and evaluate(policy, env)" if name == "env" else ""
        raise ConfigError(f"{name} must be an environment, or made without arguments; got {got}{order}") from None


def _file(called: Callable[..., Any] | None) -> str:
    found = called.__dict__.get("__init__") if isinstance(called, type) else called
    code = getattr(inspect.unwrap(found), "__code__", None) if found is not None else None
    return code.co_filename if code is not None else ""
