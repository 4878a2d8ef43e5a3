"""Checks of the machine. None of them imports torch."""

from __future__ import annotations

import operator
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from agentq import __version__
from agentq.cli import foreign_package
from agentq.doctor import Diagnosis, Patient
from agentq.errors import EnvError, MissingExtra

GIB = 1 << 30
LEAST_SHARED = GIB  # for vLLM and torch in several processes; containers have 64 MiB by default
LEAST_FILES = 256  # Chromium, its worker, a run's store and the connections to a server
NAMED = ("numpy", "torch", "transformers", "vllm", "playwright", "openai")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)(?:;(.*))?")
_OPERATORS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


def versions(_: Patient) -> Diagnosis:
    """The installed packages have the versions that agentq requires. Absent extras are not a fault."""
    try:
        requirements = requires("agentq-search") or []
    except PackageNotFoundError:
        return Diagnosis("warn", "agentq is not installed as a package", "pip install agentq-search")
    wrong = []
    for requirement in requirements:
        name, wanted, extra = _split(requirement)
        found = _installed(name)
        if found and 'extra == "dev"' not in extra and not in_range(found, wanted):
            wrong.append(f"{name} {found} where agentq requires {name}{wanted}")
    if wrong:
        return Diagnosis("fail", ", ".join(wrong), "pip install --upgrade 'agentq-search[all]'")
    named = [f"{name} {found}" for name in NAMED if (found := _installed(name))]
    return Diagnosis("ok", ", ".join([f"agentq {__version__}", f"Python {platform.python_version()}", *named]))


def _split(requirement: str) -> tuple[str, str, str]:
    """The name, the range and the marker of a requirement such as `torch<2.14,>=2.8; extra == "train"`."""
    matched = _REQUIREMENT.match(requirement)
    assert matched is not None, requirement
    name, wanted, marker = matched.groups()
    return name, wanted.strip(" ()"), marker or ""


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def in_range(found: str, wanted: str) -> bool:
    """Whether the release of a version, without suffixes such as +cpu, is within a range such as `<2.14,>=2.8`."""
    bounds = re.findall(r"([<>=!]=?)\s*([\w.]+)", wanted)
    return all(_OPERATORS[sign](_release(found), _release(bound)) for sign, bound in bounds if sign in _OPERATORS)


def _release(text: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    parts = [int(part) for part in numbers[0].split(".")] if numbers else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def package(_: Patient) -> Diagnosis:
    """No other project's `agentq` has overwritten files."""
    foreign = foreign_package()
    return Diagnosis("fail", foreign) if foreign else Diagnosis("ok", "agentq-search alone has the name agentq")


def gpu(_: Patient) -> Diagnosis:
    """The GPUs and their free memory, as nvidia-smi reports them, and whether torch can use them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Diagnosis("ok", "none; models run on the CPU")
    query = [program, "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())[:200]
        return Diagnosis(
            "fail", f"nvidia-smi failed: {said}", "repair the driver, or start the container with --gpus all"
        )
    rows = [line.split(", ") for line in done.stdout.strip().splitlines()]
    found = "; ".join(f"{name}, {free} of {total} free" for name, free, total in rows)
    if "+cpu" in _installed("torch"):
        torch = f"torch {_installed('torch')}"
        return Diagnosis("warn", f"{found}; {torch} cannot use it", "install a build of torch with CUDA")
    return Diagnosis("ok", found)


def shared_memory(p: Patient, path: Path = Path("/dev/shm")) -> Diagnosis:
    """Shared memory for vLLM, and for torch in several processes. Chromium is started so that it needs none."""
    if not path.is_dir():
        return Diagnosis("skipped", f"this system has no {path}")
    free = shutil.disk_usage(path).free
    if free >= LEAST_SHARED:
        return Diagnosis("ok", f"{free / GIB:.1f} GiB free in {path}")
    return Diagnosis(
        "fail" if str(p.model).startswith("vllm:") else "warn",
        f"{free >> 20} MiB free in {path}; vLLM and training in several processes need {LEAST_SHARED / GIB:.0f} GiB",
        "start the container with --shm-size 2g or --ipc host",
    )


def file_descriptors(_: Patient) -> Diagnosis:
    """How many files and connections a process may have open."""
    if sys.platform == "win32":
        return Diagnosis("ok", "no limit of the system")
    import resource

    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_FILES:
        return Diagnosis("ok", "no limit" if limit == resource.RLIM_INFINITY else f"{limit} may be open")
    allowed = most == resource.RLIM_INFINITY or most >= LEAST_FILES
    remedy = "ulimit -n 4096" if allowed else "raise the hard limit of open files (limits.conf, docker run --ulimit)"
    return Diagnosis("fail", f"{limit} may be open; browsers and servers need {LEAST_FILES}", remedy)


def chromium(p: Patient) -> Diagnosis:
    """Chromium starts and opens a session."""
    from agentq.envs.browser.pool import BrowserPool

    needed = p.env.startswith(("chromium/", "miniwob"))
    if not needed and find_spec("playwright") is None:
        return Diagnosis("skipped", "Playwright is not installed; chromium/NAME, miniwob and agentq run need it")
    try:
        with BrowserPool() as pool:
            pool.open(["http://127.0.0.1"]).close()
    except (MissingExtra, EnvError) as error:
        said = str(error)
        blocked = re.search(r"spawn (\S+) EACCES", said)
        remedy = f"make {blocked[1]} executable (chmod +x), or install another Chromium" if blocked else ""
        return Diagnosis("fail" if needed else "warn", said, remedy)
    return Diagnosis("ok", "starts" + ("" if pool.sandbox else ", without its sandbox (AGENTQ_NO_SANDBOX=1)"))
