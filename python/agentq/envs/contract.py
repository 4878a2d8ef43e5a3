"""The contract for an environment of your own: a class with `reset` and `step`, whose arguments and results are plain.

    reset(seed) -> {"instruction": .., "text": ..}
    step(command, element, text) -> {"text": .., "reward": .., "terminated": .., "success": ..}

docs/protocol.md lists every field, and which may be left out. A class may also have

    snapshot() and restore(token)    or fork(), a copy: search goes back to a page without replaying the way there
    expert()                         the next step's {"command": .., "element": .., "text": ..}, for demonstrations
    close()                          called once, at the end of each task, and on each copy by fork() that agentq is
                                     done with; the other copies must go on working
    name, max_steps, commands        its name, the length of an episode, those of BROWSER_COMMANDS that it accepts
    language                         web (commands, the default), code, text or tool: what `text` of RUN, SAY or CALL is
    tools                            of language tool: what may be called, in the form of OpenAI's `tools`; the same for
                                     all tasks
    keeps_pages                      true if prompts are to keep former pages
    blocking                         true if its calls wait for another process; each instance is then made and called
                                     in a thread of its own
    deadline_s                       how long a call may take when it is served

The same class works in process (`--env FILE.py:FUNCTION`), registered (`agentq.envs.register`), as an entry point, and
served (`agentq env serve FILE.py:FUNCTION`), where search always replays. This module runs in any Python 3.9, alone.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from agentq.errors import ConfigError

MAX_STEPS = 30
DEADLINE_S = 60.0
_ARGUMENTS = {"reset": ("seed",), "step": ("command", "element", "text")}
_METHODS = (*_ARGUMENTS, "snapshot", "restore", "fork", "expert", "close")


def is_file(what: str) -> bool:
    """Whether `what` has the form FILE.py:FUNCTION."""
    file, _, function = what.rpartition(":")
    return file.endswith(".py") and function.isidentifier()


def from_file(what: str, key: str = "an environment") -> Callable[..., Any]:
    """The function of `FILE.py:FUNCTION`, which `key` names. Raises ConfigError if there is none."""
    file, _, function = what.rpartition(":")
    if not is_file(what):
        raise ConfigError(f"{key} must be FILE.py:FUNCTION; got {what}{_functions(what)}")
    if not os.path.isfile(file):
        raise ConfigError(f"{key}'s file must exist; got {file}")
    found = getattr(_module(file), function, None)
    if not callable(found):
        raise ConfigError(f"{file} must define the function {function}; got {type(found).__name__}")
    made: Callable[..., Any] = found
    return made


def _functions(file: str) -> str:
    """`: write FILE.py:NAME or FILE.py:OTHER`, of what a file defines; empty if it cannot be read."""
    try:
        with open(file, "rb") as source:
            nodes = ast.parse(source.read()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name[0] != "_"]
    return f": write {' or '.join(f'{file}:{name}' for name in names[:5])}" if names else ""


def _module(file: str) -> ModuleType:
    """The module of a file, under a name of its own so that pickle finds its classes. Run again once it has changed."""
    path, about = os.path.realpath(file), os.stat(file)
    name = "_".join(("agentq_file", os.path.basename(path)[:-3], hashlib.sha256(os.fsencode(path)).hexdigest()[:12]))
    version = about.st_mtime_ns, about.st_size
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__agentq_version__", None) == version:
        return known
    if os.path.dirname(path) not in sys.path:
        sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with open(file, "rb") as source:
            exec(compile(source.read(), file, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    module.__dict__["__agentq_version__"] = version
    return module


def place(called: Callable[..., Any]) -> str:
    """`FILE:LINE: ` of a function; empty if unknown."""
    code = getattr(inspect.unwrap(called), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""


def plain(found: Any) -> Any:
    """What a method returned, or an attribute is, with NumPy's scalars as Python's."""
    if isinstance(found, dict):
        return {key: value.item() if getattr(value, "shape", None) == () else value for key, value in found.items()}
    return found.item() if getattr(found, "shape", None) == () else found


def takes(called: Callable[..., Any], n: int) -> bool:
    """Whether `n` arguments can be given to a function; true of one that is not written in Python."""
    try:
        inspect.signature(called).bind(*range(n))
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def checked(env: Any, what: str) -> Any:
    """`env`, made by `what`, if it has the methods of the contract. Raises ConfigError naming a missing one."""
    name = type(env).__name__
    for method, arguments in _ARGUMENTS.items():
        call = f"{method}({', '.join(arguments)})"
        if not callable(getattr(env, method, None)):
            raise ConfigError(f"{what} must make an environment with the method {call}; got {name}, which has none")
        if not takes(getattr(env, method), len(arguments)):
            gym = (
                ": agentq.envs.gym_world.GymWorld(env) wraps one of Gymnasium's" if hasattr(env, "action_space") else ""
            )
            raise ConfigError(f"{what} must make an environment with the method {call}; {name} takes others{gym}")
    for method in _METHODS:
        if inspect.iscoroutinefunction(getattr(env, method, None)):
            said = f"whose {method} is a plain function; got a coroutine: write def, not async def"
            raise ConfigError(f"{what} must make an environment {said}")
    given = [method for method in ("snapshot", "restore") if callable(getattr(env, method, None))]
    if len(given) == 1:
        raise ConfigError(f"{what} must make an environment with both snapshot and restore; got {given[0]} alone")
    return env


def about(env: Any) -> dict[str, Any]:
    """The description that a class gives of itself, with defaults."""
    told = {
        "name": getattr(env, "name", None) or type(env).__name__.lower(),
        "max_steps": getattr(env, "max_steps", MAX_STEPS),
        "deadline_s": getattr(env, "deadline_s", DEADLINE_S),
        "commands": [str(each) for each in getattr(env, "commands", ())],
        **{field: getattr(env, field) for field in ("language", "keeps_pages", "tools") if hasattr(env, field)},
    }
    return {field: plain(value) for field, value in told.items()}


def check_tools(env: Any, known: list[dict[str, Any]]) -> None:
    """Raises ConfigError if the tools of a class are no longer those that it began with, which models are told of."""
    if list(getattr(env, "tools", [])) != known:
        raise ConfigError(
            f"{type(env).__name__}.tools must be the same for all tasks; reset changed them: "
            "list those of all tasks, and say in the page which of them the task is about"
        )


def first_words(error: BaseException) -> str:
    """`KeyError: 'x'`: an exception on one line, the first of its message that has words."""
    lines = (line.strip() for line in str(error).split("\n"))
    return f"{type(error).__name__}: {next((line for line in lines if any(map(str.isalnum, line))), '')}"
