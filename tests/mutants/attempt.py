"""One fault tried: its tests run in a fork of a process that has imported what takes long, with the fault in place."""

from __future__ import annotations

import hashlib
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import hypothesis
import lxml.html  # noqa: F401
import pydantic  # noqa: F401
import pytest
import torch  # noqa: F401
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: F401

from tests.mutants import core
from tests.mutants.fault import ROOT, Fault

HOOK = ROOT / "tests/mutants/hook"
PYTEST = ["-x", "-q", *(word for name in ("cacheprovider", "xdist", "anyio") for word in ("-p", f"no:{name}"))]
PYTEST += ["-W", "ignore:Module already imported"]
PYTEST += ["--timeout=0"]  # pytest-timeout's timer would take the place of the alarm
LEAST_S = 60  # seconds that tests may take, however fast they are without the fault

hypothesis.settings.register_profile("mutants", database=None, derandomize=True)


class Plain(NamedTuple):
    """Tests without a fault, which must pass."""

    tests: str
    is_native: bool

    def __str__(self) -> str:
        return f"no fault{' in the core' * self.is_native}: {self.tests}"


class Outcome(NamedTuple):
    """`said`: survived, killed (a test failed), crashed, hung, or unusable: the tests cannot run."""

    said: str
    seconds: float
    cpu_seconds: float = 0.0


def digest(trial: Fault | Plain) -> str:
    """Names a trial: the fault, its tests, what they import of tests/, and the sources of its language."""
    tests = sorted({word.partition("::")[0] for word in _arguments(trial.tests)})
    parts = [repr(trial).encode(), _sources(trial.is_native), *((ROOT / test).read_bytes() for test in tests)]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@cache
def _sources(native: bool) -> bytes:
    files = [*ROOT.glob("csrc/*"), *ROOT.glob("bindings/*")] if native else [*ROOT.glob("python/agentq/**/*.py")]
    files += [] if native else [file for file in ROOT.glob("tests/*.py") if not file.name.startswith("test_")]
    files += [] if native else [*ROOT.glob("benchmarks/results*.py"), ROOT / "benchmarks/outcomes.py"]
    return b"".join(file.read_bytes() for file in sorted([*files, *ROOT.glob("tests/reference/*.py")]))


def attempt(trial: Fault | Plain, limit: float) -> Outcome:
    """Run the tests of a trial for at most so many seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant") as folder:
        try:
            said = _decoded(_run(trial, _place(trial, Path(folder)), Path(folder), limit))
        except (subprocess.CalledProcessError, SyntaxError):
            said = "unusable"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Outcome(said, time.monotonic() - begun, cpu)


def _place(trial: Fault | Plain, folder: Path) -> str:
    """$AGENTQ_FAULT of a trial; see `hook/sitecustomize.py`."""
    if isinstance(trial, Plain):
        return f"agentq._core{os.pathsep}{core.PLAIN}{os.pathsep}" if trial.is_native else ""
    if trial.is_native:
        return f"agentq._core{os.pathsep}{core.build(trial, folder)}{os.pathsep}"
    source = trial.source()
    compile(source, trial.file, "exec")
    (folder / "faulty.py").write_text(source)
    name = trial.file.removeprefix("python/").removeprefix("benchmarks/")
    module = name.removesuffix(".py").replace("/", ".")
    return os.pathsep.join([module, str(folder / "faulty.py"), str(ROOT / trial.file)])


def _arguments(tests: str) -> Iterable[str]:
    for word in tests.split():
        name, *rest = word.split("::")
        yield "::".join([f"tests/{name}.py", *rest])


def _run(trial: Fault | Plain, place: str, folder: Path, limit: float) -> int:
    """Run the tests in a fork, and end all that they leave; returns the exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = pytest.ExitCode.INTERNAL_ERROR
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
            signal.alarm(int(limit) + 1)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            if place:
                os.environ["AGENTQ_FAULT"] = place
                os.environ["PYTHONPATH"] = os.pathsep.join([str(HOOK), *os.environ.get("PYTHONPATH", "").split()])
                sys.path.insert(0, str(HOOK))  # worker processes get these as their PYTHONPATH
                runpy.run_path(str(HOOK / "sitecustomize.py"))
            hypothesis.settings.load_profile("mutants")
            code = pytest.main([*PYTEST, f"--basetemp={folder / 'tmp'}", *_arguments(trial.tests)])
        finally:
            os._exit(int(code))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return code


def _decoded(code: int) -> str:
    if code < 0:
        return "hung" if code == -signal.SIGALRM else "crashed"
    return {0: "survived", 1: "killed"}.get(code, "unusable")
