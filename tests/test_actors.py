"""Collection by actors of a Ray cluster: the same stores as in one process, whichever nodes die."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentq.cli import main
from agentq.error_kinds import WORKER_LOST
from agentq.errors import ConfigError
from agentq.searching import actors
from agentq.searching.collect import inline
from agentq.store.run import RunStore
from tests import processes_lab
from tests.openai_factory import fake_openai
from tests.processes_lab import Lab
from tests.test_processes import KINDS, TASKS, TREE, filled
from tests.train_factory import TINY

SMALL = [word for word in TINY if "--search" not in word] + ["--eval.measure_base=false"]
pytestmark = [pytest.mark.rest, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings
ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Four nodes of one core."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_DISABLE_MEMORY_MONITOR"] = "1"
    small = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=small)
    found.small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    for _ in range(3):
        found.add_node(**found.small)
    ray.init(address=found.address, log_to_driver=False, logging_level=logging.ERROR)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def started(cluster: Any) -> Iterator[Callable[..., actors.Actors]]:
    made: list[actors.Actors] = []

    def start(lab: Lab, n: int = 4) -> actors.Actors:
        made.append(actors.Actors(lab, n, address=cluster.address))
        return made[-1]

    yield start
    for each in made:
        each.close()


def expected(folder: Path, kind: str) -> list[Any]:
    with RunStore.open(folder / "unused", {}) as unused:
        return filled(folder / "inline", inline(KINDS[kind][0](Lab(folder / "log"), unused)), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_actors_fill_the_store_of_one_process(kind: str, tmp_path: Path, started: Callable[..., actors.Actors]) -> None:
    workers = started(Lab(tmp_path / "log"))
    assert filled(tmp_path / "ray", workers.stage(KINDS[kind][0], kind), kind) == expected(tmp_path, kind)
    assert workers.usage.total.requests > 0
    assert str(workers).count("/s") >= 1 and "(" in str(workers)


def test_a_node_that_is_killed_and_one_that_is_added_change_nothing(
    tmp_path: Path, cluster: Any, started: Callable[..., actors.Actors]
) -> None:
    job = partial(processes_lab.searches, stage="x", pause_s=0.02)
    workers, node = started(Lab(tmp_path / "log")), cluster.add_node(**cluster.small)
    begun = time.monotonic()

    def disturb() -> None:
        while not workers._done:
            time.sleep(0.05)
            assert time.monotonic() < begun + 60
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(**cluster.small)

    killer = Thread(target=disturb)
    killer.start()
    workers.num_workers = 5
    found = filled(tmp_path / "ray", workers.stage(job, TREE), TREE, in_flight=5)
    killer.join()
    assert found == expected(tmp_path, TREE)


def test_an_item_that_kills_three_actors_is_kept_with_the_reason(
    tmp_path: Path, started: Callable[..., actors.Actors]
) -> None:
    lab = Lab(tmp_path / "deaths", {TASKS[2].instruction: 99, TASKS[5].instruction: 1})
    found = filled(tmp_path / "ray", started(lab, 2).stage(KINDS[TREE][0], TREE), TREE)
    same = [a == b for a, b in zip(found, expected(tmp_path, TREE), strict=True)]
    assert same == [task != TASKS[2] for task in TASKS]
    with RunStore.read(tmp_path / "ray") as store:
        (broken,) = [tree for tree in store.trees("x") if tree.fault]
    assert broken.fault == WORKER_LOST
    assert broken.info["error_message"].startswith("3 worker processes died over this task, the last: ")


def test_a_node_with_another_agentq_is_refused(
    tmp_path: Path, started: Callable[..., actors.Actors], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "build_of_agentq", lambda: "0.0.1 (abc)")
    with pytest.raises(ConfigError, match=r"agentq must be the same on all nodes; the run has 0.0.1 \(abc\), "):
        started(Lab(tmp_path / "log"), 1).load(KINDS[TREE][0])


def test_nothing_goes_through_the_object_store(tmp_path: Path, started: Callable[..., actors.Actors]) -> None:
    job = partial(processes_lab.large, size=300_000)
    workers, sizes = started(Lab(tmp_path / "log"), 1), list[int]()
    get = workers._ray.get

    def measured(reference: Any) -> Any:
        piece = get(reference)
        sizes.append(len(piece))
        return piece

    workers._ray = type("Ray", (), vars(ray) | {"get": staticmethod(measured)})
    found = filled(tmp_path / "ray", workers.stage(job, TREE), TREE)
    assert len(found) == len(TASKS)
    assert sum(sizes) > 300_000 and max(sizes) <= actors.PIECE_BYTES


def test_a_run_with_servers_publishes_once_and_actors_are_their_clients(
    cluster: Any, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    words = ["train", "rft", "--base", str(base), *SMALL, "--run.num_tasks=6", "--json"]
    tables = {}
    with ExitStack() as stack:
        servers = [stack.enter_context(fake_openai(tokenizer=tokenizer, root=base)) for _ in range(2)]
        urls = ",".join(server.url for server in servers)
        for kind, more in (("inline", []), ("ray", [f"--run.address={cluster.address}", "--run.workers=2"])):
            more += [f"--run.engine={urls}", f"--run.executor={kind}", f"--out={tmp_path / 'run'}", "--clean"]
            assert main([*words, *more]) == 0
            *_, last = capsys.readouterr().out.splitlines()  # the test's own connection to Ray prints what nodes say
            tables[kind] = json.loads(last)["rungs"]
            for row in tables[kind]:
                row.pop("seconds")
    assert tables["ray"] == tables["inline"]
    for server in servers:
        assert len(server.loaded) == 4, "each run's start and end, published by the driver alone"


def test_actors_end_with_the_stage_that_fails(tmp_path: Path, started: Callable[..., actors.Actors]) -> None:
    job = partial(processes_lab.sleeps, out=tmp_path)
    workers = started(Lab(tmp_path / "log"), 2)

    def interrupt() -> None:
        while len(list(tmp_path.glob("*.pid"))) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        filled(tmp_path / "ray", workers.stage(job, TREE), TREE)
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    give_up = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < give_up
        time.sleep(0.05)
