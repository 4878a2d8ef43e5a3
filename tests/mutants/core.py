"""The core with a fault: objects of the plain sources are kept, and a fault compiles only the files that include it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.mutants.fault import ROOT, Fault

OBJECTS = ROOT / "build/mutants"
PLAIN = OBJECTS / "_core.so"
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread", "-ffp-contract=off"]
DECODING = ["-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]  # as in CMakeLists.txt


def build_plain(jobs: int) -> None:
    """Compile what is missing or out of date, and link it."""
    OBJECTS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(_bring_up_to_date, _units()))
    _link([_object(unit) for unit in _units()], PLAIN)


def build(fault: Fault, folder: Path) -> Path:
    """The core with the fault, built in a folder."""
    faulty = folder / fault.file
    faulty.parent.mkdir(parents=True)
    faulty.write_text(fault.source())
    objects = []
    for unit in _units():
        objects.append(_object(unit))
        if fault.file in _included(unit):
            objects[-1] = folder / _object(unit).name
            _compile(faulty if ROOT / fault.file == unit else unit, objects[-1], folder)
    core = folder / "_core.so"
    _link(objects, core)
    return core


@cache
def _units() -> tuple[Path, ...]:
    return tuple(sorted([*ROOT.glob("csrc/*.cc"), *ROOT.glob("bindings/*.cc")]))


@cache
def _pybind() -> list[str]:
    return subprocess.check_output([sys.executable, "-m", "pybind11", "--includes"], text=True).split()


def _object(unit: Path) -> Path:
    return OBJECTS / f"{unit.parent.name}-{unit.stem}.o"


def _included(unit: Path) -> set[str]:
    """The project's files that make up an object, below the root."""
    words = _object(unit).with_suffix(".d").read_text().replace("\\\n", " ").split()[1:]
    files = {(ROOT / word).resolve() for word in words}
    return {str(file.relative_to(ROOT)) for file in files if file.is_relative_to(ROOT)}


def _bring_up_to_date(unit: Path) -> None:
    made = _object(unit)
    if made.exists() and all((ROOT / f).stat().st_mtime < made.stat().st_mtime for f in _included(unit)):
        return
    _compile(unit, made, ROOT)


def _compile(unit: Path, made: Path, first: Path) -> None:
    """Compile a file whose headers are looked for in `first`, then below the root."""
    more = DECODING if unit.stem in ("kernels", "llama") else []
    words = ["c++", *FLAGS, *more, *_pybind(), f"-I{first}", f"-I{ROOT}", "-MMD", "-c", unit, "-o", made]
    subprocess.run(words, check=True, cwd=ROOT)


def _link(objects: list[Path], made: Path) -> None:
    subprocess.run(["c++", "-shared", "-pthread", *objects, "-o", made], check=True)
