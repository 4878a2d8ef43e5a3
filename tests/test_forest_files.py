"""What saving does to files: it follows no link, replaces nothing but a file, and survives a power cut at any point."""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks_core import null_device

from agentq._core import Forest
from tests.reference.builders import fan, visit
from tests.reference.records import split

SECTOR = 512
REGULAR = r"a forest must be in a regular file; got "


def test_save_follows_no_link_that_lies_in_its_way(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (".partial", ".0.partial", ".00000000.partial"):
        (tmp_path / f"a.forest{name}").symlink_to(victim)
    forest = fan(3)
    forest.save(tmp_path / "a.forest")
    assert victim.read_text() == "precious"
    assert Forest.load(tmp_path / "a.forest").to_bytes() == forest.to_bytes()


@pytest.mark.parametrize("leads_to", ["a file", "nothing", "its own file"])
def test_save_refuses_a_link_as_its_path(tmp_path, leads_to):
    forest, target, path = fan(3), tmp_path / "target", tmp_path / "a.forest"
    if leads_to == "its own file":
        forest.save(path)
        path.rename(target)
    elif leads_to == "a file":
        target.write_text("precious")
    before = target.read_bytes() if target.exists() else None
    path.symlink_to(target)
    visit(forest, 0, 1.0)
    with pytest.raises(OSError, match=REGULAR + "a symbolic link: '.*a.forest'"):
        forest.save(path)
    assert path.is_symlink() and (target.read_bytes() if target.exists() else None) == before
    path.unlink()
    forest.save(path)  # the refusal cost nothing
    assert Forest.load(path).to_bytes() == forest.to_bytes()


def test_save_and_load_refuse_what_is_no_file(tmp_path):
    forest = fan(3)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        device = null_device(tmp_path / "device")
        kinds = {"pipe": "a pipe", "folder": "a directory", "socket": "a socket", str(device): "a device"}
        for name, kind in kinds.items():
            path = tmp_path / name  # an absolute name stands alone
            mode = path.stat().st_mode
            with pytest.raises(OSError, match=REGULAR + kind):
                forest.save(path)
            assert path.stat().st_mode == mode
            with pytest.raises(OSError, match=None if kind == "a socket" else REGULAR + kind):
                Forest.load(path)  # does not wait for a writer
    assert stat.S_ISCHR(device.stat().st_mode)
    assert {file.name for file in tmp_path.iterdir()} - {"device"} == {"folder", "pipe", "socket"}
    with pytest.raises(IsADirectoryError):
        forest.save(tmp_path)


def test_a_path_with_a_null_byte_is_refused(tmp_path):
    for path in (f"{tmp_path}/a\0.forest", f"{tmp_path}/a\0.forest".encode()):
        for call in (fan(3).save, Forest.load):
            with pytest.raises(ValueError, match=r"path must contain no null byte; got b?'"):
                call(path)
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    forest, path = fan(3), tmp_path / "a.forest"
    forest.save(path)
    before = path.read_bytes()
    script = (
        "import resource, sys; from agentq._core import Forest; forest = Forest.load(sys.argv[1]);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)); import signal; signal.signal(25, signal.SIG_IGN);"
        "forest.add_trees(300); forest.save(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert f"OSError: [Errno 27] File too large: '{path}" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["a.forest"] and path.read_bytes() == before


# Power cuts -----------------------------------------------------------------------------------------------------------


def saved_twice(path: Path) -> tuple[bytes, bytes]:
    """The file after one record and after two; the pages of 40 trees fill several sectors."""
    forest = Forest()
    forest.add_trees(40)
    forest.save(path)
    one = path.read_bytes()
    forest.tell_one(forest.ask_one(17)[0], 0.5)
    forest.save(path)
    return one, path.read_bytes()


def test_a_record_that_was_never_finished_is_left_out(tmp_path):
    one, two = saved_twice(tmp_path / "a.forest")
    begun = two[: len(one)] + bytes(8) + two[len(one) + 8 :]
    for end in range(len(one) + 1, len(two) + 1, 7):
        assert Forest.from_bytes(begun[:end]).to_bytes() == Forest.from_bytes(one).to_bytes()
    hole = one + bytes(len(two) - len(one))
    assert Forest.from_bytes(hole).to_bytes() == Forest.from_bytes(one).to_bytes()
    (tmp_path / "a.forest").write_bytes(begun)
    forest = Forest.load(tmp_path / "a.forest")
    forest.tell_one(forest.ask_one(3)[0], 1.0)
    forest.save(tmp_path / "a.forest")  # not behind it
    assert len(split((tmp_path / "a.forest").read_bytes())) == 1


def test_a_record_with_another_behind_it_was_finished(tmp_path):
    one, two = saved_twice(tmp_path / "a.forest")
    forest = Forest.load(tmp_path / "a.forest")
    forest.tell_one(forest.ask_one(3)[0], 1.0)
    forest.save(tmp_path / "a.forest")
    three = (tmp_path / "a.forest").read_bytes()
    assert len(split(three)) == 3
    with pytest.raises(ValueError, match="record 1 is followed by another but has no beginning"):
        Forest.from_bytes(three[: len(one)] + bytes(8) + three[len(one) + 8 :])
    with pytest.raises(ValueError, match="a forest snapshot must start with AGQFORST"):
        Forest.from_bytes(bytes(8) + two[8:])


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler as cc")
    out = tmp_path_factory.mktemp("power") / "power.so"
    source = Path(__file__).with_name("native") / "power.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(out), "-ldl"], check=True)
    return out


SAVES = """
import sys
from agentq._core import Forest
forest, path = Forest(), sys.argv[1]
forest.add_trees(40)
for step in range(9):
    forest.save(path)
    print(forest.to_bytes().hex(), flush=True)
    print(f"saved {step}", file=open(sys.argv[2], "a"))
    forest.tell_one(forest.ask_one(step * 4)[0], 0.5)
"""


def test_power_cut_at_any_point_leaves_the_last_save_or_the_one_before(tmp_path, recorder):
    folder, log = tmp_path / "files", tmp_path / "log"
    folder.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(recorder), "POWER_LOG": str(log), "POWER_UNDER": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", SAVES, folder / "a.forest", log], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    states = [bytes.fromhex(line) for line in done.stdout.split()]
    lines = log.read_text().splitlines()
    assert sum(line.startswith("rename") for line in lines) >= 2 and sum(line.startswith("open") for line in lines) > 9
    saved = -1
    found = set()
    for end in range(len(lines)):
        if lines[end].startswith("saved"):
            saved += 1
        for seed in range(4):
            disk = after_cut(lines[: end + 1], random.Random(seed * 1000 + end))
            content = disk.get(str(folder / "a.forest"))
            if content is None:
                assert saved == -1
                continue
            now = states.index(Forest.from_bytes(content).to_bytes())
            assert now in (saved, saved + 1)
            found.add(now - saved)
    assert found == {0, 1}


def after_cut(lines: list[str], rng: random.Random) -> dict[str, bytes]:
    """The files on a disk that has all that was synced, and of the rest any sectors, in any order; names last after
    their folder has been synced, and at random before."""
    names: dict[str, int] = {}  # as a program sees them: path to file
    lasting: dict[str, int] = {}
    synced: list[bytearray] = []
    loose: list[list[tuple[int, bytes]]] = []
    handles: dict[int, int | None] = {}
    for words in (line.split(" ", 3) for line in lines):
        match words:
            case ["open", handle, create, path]:
                if create != "0":
                    names[path] = len(synced)
                    synced.append(bytearray())
                    loose.append([])
                handles[int(handle)] = names.get(path)
            case ["write", handle, offset, data]:
                loose[_file(handles, handle)].append((int(offset), bytes.fromhex(data)))
            case ["sync", handle]:
                file = handles[int(handle)]
                if file is None:
                    lasting = dict(names)
                    continue
                for at, piece in loose[file]:
                    _put(synced[file], at, piece)
                loose[file] = []
            case ["rename", old, new]:
                names[new] = names.pop(old)
    for file, pieces in enumerate(loose):
        for at, sector in (part for piece in pieces for part in _sectors(*piece)):
            if rng.random() < 0.5:
                _put(synced[file], at, sector)
    return {path: bytes(synced[file]) for path, file in (names if rng.random() < 0.5 else lasting).items()}


def _file(handles: dict[int, int | None], handle: str) -> int:
    file = handles[int(handle)]
    assert file is not None
    return file


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """A sector reaches the disk as a whole."""
    at = 0
    while at < len(data):
        size = SECTOR - (offset + at) % SECTOR
        yield offset + at, data[at : at + size]
        at += size


def _put(file: bytearray, at: int, data: bytes) -> None:
    file.extend(bytes(max(0, at + len(data) - len(file))))
    file[at : at + len(data)] = data
