"""`smoke.py` in a Python that lacks what Windows lacks and says that it runs there.

Not Windows: its paths, consoles and file system are those of this machine.

    python tests/windows.py
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pkgutil
import sys
import tempfile
from types import ModuleType

# `subprocess` and `asyncio`, which run here as they do on Linux, need the rest; mypy checks all names for Windows.
ABSENT = ("fork", "killpg", "register_at_fork", "statvfs", "sysconf", "geteuid", "getuid", "fchmod")
ABSENT += ("O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "sched_getaffinity", "getloadavg")


def msvcrt() -> ModuleType:
    """Its locks of bytes, by those of this system."""
    module = ModuleType("msvcrt")

    def locking(handle: int, mode: int, length: int) -> None:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, length, os.lseek(handle, 0, os.SEEK_CUR))

    vars(module).update(LK_NBLCK=2, locking=locking)
    return module


def become_windows() -> None:
    """Import other packages as they are here, forget agentq, and take away what Windows lacks."""
    agentq = importlib.import_module("agentq")
    for each in pkgutil.walk_packages(agentq.__path__, "agentq."):
        if not each.name.endswith("__main__"):
            try:
                importlib.import_module(each.name)
            except ImportError:  # of an extra that is not installed
                continue
    for name in [name for name in sys.modules if name.partition(".")[0] == "agentq" and name != "agentq._core"]:
        del sys.modules[name]
    for name in ABSENT:
        vars(os).pop(name, None)
    os.O_NOINHERIT, os.O_BINARY = 0, 0  # type: ignore[attr-defined]
    sys.modules |= {"msvcrt": msvcrt(), "fcntl": None, "resource": None}  # type: ignore[dict-item]
    sys.platform = "win32"


def main() -> None:
    """Import every module, search, keep a run, look at it, train."""
    become_windows()
    agentq = importlib.import_module("agentq")
    for each in pkgutil.walk_packages(agentq.__path__, "agentq."):
        if not each.name.endswith("__main__"):
            try:
                importlib.import_module(each.name)
            except ModuleNotFoundError as error:
                assert error.name not in ("fcntl", "resource"), each.name
    run = importlib.import_module("agentq.cli").main
    found = agentq.search("booking", task=0, policy=lambda _, k: ["STOP", "CLICK [1]"][:k], num_iterations=4)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run"
        with agentq.RunStore.open(path, {"command": "demo", "run": {"env": "booking"}}) as store:
            store.add_tree("search", found.tree)
        for command in (["check", path], ["replay", path], ["view", path], ["runs", folder], ["envs"]):
            assert run(command) == 0, command
        tiny = ["--out", f"{folder}/rft", "--run.num_tasks", "3", "--eval.num_tasks", "2"]
        assert run(["train", "rft", *tiny]) == 0
    try:
        importlib.import_module("agentq.envs.remote.address").connect("/a/socket", 1.0)
    except importlib.import_module("agentq.errors").ConfigError as error:
        print(error)


if __name__ == "__main__":
    main()
