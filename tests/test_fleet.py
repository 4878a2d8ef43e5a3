"""Several servers as one engine: trees that stay, servers that die and come back, and weights that reach all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from agentq.errors import ConfigError, ModelError
from agentq.policies import fleet
from agentq.policies.engine_names import make_engine, path_in, read_name
from agentq.policies.fleet import Fleet, at_home
from agentq.policies.protocol import Gives, Prompt, SampleRequest
from tests.openai_factory import FakeOpenAI, fake_openai


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "RETRY_S", 0.2)
    monkeypatch.setattr(fleet, "PATIENCE_S", 0.3)


@pytest.fixture
def servers(base: Path) -> Iterator[list[FakeOpenAI]]:
    tokenizer = AutoTokenizer.from_pretrained(base)
    with ExitStack() as stack:
        yield [stack.enter_context(fake_openai(tokenizer=tokenizer, root=base)) for _ in range(3)]


@pytest.fixture
def made() -> Iterator[Callable[[str], Fleet]]:
    fleets: list[Any] = []

    def make(name: str) -> Fleet:
        fleets.append(make_engine(name))
        return fleets[-1]

    yield make
    for each in fleets:
        each.close()


def request(seed: int) -> SampleRequest:
    return SampleRequest(Prompt([], np.arange(5, 25, dtype=np.int32)), 2, seed, 1.0, 16)


def urls(servers: list[FakeOpenAI]) -> str:
    return ",".join(server.url for server in servers)


def asked(servers: list[FakeOpenAI]) -> list[set[int]]:
    """The seeds that each server was asked for, and forget them."""
    found = [{body["seed"] for body in server.asked} for server in servers]
    for server in servers:
        server.asked.clear()
    return found


async def trees(engine: Any, n: int, steps: int = 3, pause_s: float = 0.02) -> list[list[Any]]:
    """`n` trees at once, whose requests have the seeds 10 * tree + step."""

    async def tree(i: int) -> list[Any]:
        with at_home():
            found = []
            for step in range(steps):
                found += await engine.sample(request(10 * i + step))
                await asyncio.sleep(pause_s)
            return found

    return list(await asyncio.gather(*map(tree, range(n))))


def texts(found: list[list[Any]]) -> list[list[str]]:
    return [[sample.text for sample in tree] for tree in found]


def wait_until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up, "it never came"
        time.sleep(0.02)


def test_a_tree_stays_with_its_server_and_the_next_goes_to_the_one_with_the_fewest(
    servers: list[FakeOpenAI], made: Callable[[str], Fleet]
) -> None:
    engine, alone = made(urls(servers)), made(servers[0].url)
    assert Gives.TOKEN_IDS | Gives.LOGPS | Gives.SEEDS in engine.gives
    asked(servers)
    found = asyncio.run(trees(engine, 6))
    by_server = asked(servers)
    assert sorted(len({seed // 10 for seed in seeds}) for seeds in by_server) == [2, 2, 2]
    assert sum(map(len, by_server)) == 18, "each request once, and all of a tree at one server"
    assert texts(found) == texts(asyncio.run(trees(alone, 6)))
    assert engine.usage.total.requests == 18


def test_a_server_that_dies_gives_its_requests_to_others_and_comes_back_with_the_latest_weights(
    servers: list[FakeOpenAI], made: Callable[[str], Fleet], base: Path, tmp_path: Path
) -> None:
    engine, dead = made(urls(servers)), servers[1]
    weights = base
    assert engine.publish(weights) == 1
    dead.faults.append("die")
    found = asyncio.run(trees(engine, 6))
    assert len(engine.members) == 2 and dead.url not in engine.members
    assert engine.publish(weights) == 2
    again = asyncio.run(trees(engine, 6))
    assert texts(again) == texts(found)
    assert {s.version for tree in found for s in tree} == {1} and {s.version for tree in again for s in tree} == {2}
    dead.start()
    assert dead.weight_version == "default"
    wait_until(lambda: dead.url in engine.members)
    assert dead.weight_version == servers[0].weight_version != "default"
    asked(servers)
    assert texts(asyncio.run(trees(engine, 6))) == texts(found)
    assert all(asked(servers))


def test_a_file_of_servers_may_change(
    servers: list[FakeOpenAI], made: Callable[[str], Fleet], tmp_path: Path, base: Path
) -> None:
    file = tmp_path / "engines.txt"
    file.write_text(f"# ours\n{servers[0].url}\n\n{servers[1].url}\n")
    assert read_name(str(file)) == str(file) and path_in(str(file)) == file
    engine = made(str(file))
    assert list(engine.members) == [servers[0].url, servers[1].url]
    engine.publish(base)
    file.write_text(f"{servers[1].url}\n{servers[2].url}#tiny\n")
    wait_until(lambda: list(engine.members) == [servers[1].url, f"{servers[2].url}#tiny"])
    assert servers[2].weight_version == servers[1].weight_version
    asked(servers)
    asyncio.run(trees(engine, 4))
    first, *others = asked(servers)
    assert not first and all(others)
    file.unlink()
    time.sleep(3 * fleet.RETRY_S)
    assert len(engine.members) == 2


def test_a_server_that_comes_back_in_time_ends_the_wait_of_all(
    servers: list[FakeOpenAI], made: Callable[[str], Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made(urls(servers[:2]))

    async def later() -> list[list[Any]]:
        for server in servers[:2]:
            server.kill()
        waiting = asyncio.create_task(trees(engine, 2))
        await asyncio.sleep(1.0)
        assert not engine.members and not waiting.done()
        servers[0].start()
        return await waiting

    assert len(asyncio.run(later())) == 2
    servers[0].kill()
    monkeypatch.setattr(fleet, "LAST_PATIENCE_S", 1.0)
    with pytest.raises(ModelError, match=r"must answer within"):
        asyncio.run(trees(engine, 1))


def test_what_another_process_published_is_found_there(servers: list[FakeOpenAI], base: Path) -> None:
    one, other = make_engine(servers[0].url), make_engine(servers[0].url)
    try:
        one.publish(base)
        asyncio.run(trees(one, 1))
        other.publish(base)
        assert servers[0].loaded == [str(base)], "the second has nothing to load"
    finally:
        one.close()
        other.close()


def test_names_of_several_engines_are_checked(servers: list[FakeOpenAI], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"several engines must be servers, .*; got 'vllm:x' in"):
        read_name(f"{servers[0].url},vllm:x")
    (tmp_path / "none.txt").write_text("# nothing\n")
    with pytest.raises(ConfigError, match=r"none.txt must name an engine; got none"):
        make_engine(str(tmp_path / "none.txt"))
    with fake_openai() as plain, pytest.raises(ConfigError, match="engines must serve one model; got another"):
        make_engine(f"{servers[0].url},{plain.url}")
