"""The exceptions that agentq raises on purpose. Messages say what must hold, then what was given.

Each also inherits the stdlib class that it refines:

AgentqError
    ConfigError (ValueError)     a wrong setting, name, seed or file given by the caller
    EnvError (RuntimeError)      an environment that cannot be driven at all (a failing page is data on the step)
    ModelError (ValueError)      a checkpoint, tokenizer or template that does not fit
    StoreError (ValueError)      a run directory that is damaged, in use or newer; a disk that cannot be written
    BudgetSpent (RuntimeError)   no further engine calls are allowed; searches end with their best result
    MissingExtra (ImportError)   an optional dependency is absent; the message holds the install line
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType

_RUN_PATH = "<run_path>"  # `__name__` in a file that runpy.run_path runs
_NO_MEMORY = (
    "annot allocate memory",
    "can't allocate memory",
    "can't start new thread",
    "out of memory",  # CUDA
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class AgentqError(Exception):
    """Root of agentq's own exceptions."""


class ConfigError(AgentqError, ValueError):
    """A wrong setting, name, seed or file given by the caller."""


class EnvError(AgentqError, RuntimeError):
    """An environment that cannot be driven at all."""


class ModelError(AgentqError, ValueError):
    """A checkpoint, tokenizer or template that does not fit."""


class StoreError(AgentqError, ValueError):
    """A run directory that is damaged, in use, or of a newer agentq; a disk that cannot be written."""


class BudgetSpent(AgentqError, RuntimeError):
    """No further engine calls are allowed."""


class MissingExtra(AgentqError, ImportError):
    """An optional dependency is absent; the message holds the install line."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or `; known: a, b` if nothing is similar."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(names)}"


def require(module: str, *, extra: str, for_: str) -> ModuleType:
    """Import an optional module, or raise `MissingExtra` with the install line."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{for_} needs {module}: pip install 'agentq-search[{extra}]'") from error


def check_integers(**given: object) -> None:
    """Raises ConfigError unless the arguments are integers, also NumPy's."""
    for name, value in given.items():
        if not hasattr(value, "__index__"):
            raise ConfigError(f"{name} must be an integer; got {value!r:.60}")


def check_numbers(**given: object) -> None:
    """Raises ConfigError unless the arguments are numbers, also NumPy's."""
    for name, value in given.items():
        if isinstance(value, str) or not hasattr(value, "__float__"):
            raise ConfigError(f"{name} must be a number; got {value!r:.60}")


def says_no_memory(error: BaseException) -> bool:
    """Whether the machine or its GPU has no memory left. Python, torch and safetensors say it by different classes."""
    return isinstance(error, MemoryError) or any(said in str(error) for said in _NO_MEMORY)


def line_in(file: str, error: BaseException) -> int | None:
    """The innermost line of `file` in the traceback of `error`; None if it has none."""
    file = os.path.realpath(file)
    if isinstance(error, SyntaxError) and error.filename and os.path.realpath(error.filename) == file:
        return error.lineno
    frames = traceback.walk_tb(error.__traceback__)
    lines = [number for frame, number in frames if os.path.realpath(frame.f_code.co_filename) == file]
    return lines[-1] if lines else None


def place_in_run_file(error: BaseException) -> str | None:
    """`FILE.py:LINE`, the innermost line in the traceback of a file that runpy ran, as a recipe's; None without one."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if isinstance(error, SyntaxError) and any(frame.f_code.co_filename == "<frozen runpy>" for frame, _ in frames):
        return f"{error.filename}:{error.lineno}"
    own = [(frame.f_code.co_filename, line) for frame, line in frames if frame.f_globals.get("__name__") == _RUN_PATH]
    return "{}:{}".format(*own[-1]) if own else None


def in_one_line(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero`; of pydantic's message, which has many lines, the first fault."""
    pydantic = sys.modules.get("pydantic")  # not imported here: environments in another Python need none
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{error.title}: {'.'.join(map(str, first['loc']))}: {first['msg']}; got {first['input']!r:.60}"
    return traceback.format_exception_only(error)[-1].strip().splitlines()[-1]
