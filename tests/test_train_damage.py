"""Lost and damaged checkpoints of a run: what a round needs is learnt again exactly, what a run left is noticed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from agentq.errors import ModelError, StoreError
from agentq.learn.learner import Learner
from agentq.recipes import here
from agentq.recipes.ladder import climb
from agentq.recipes.settings import Ladder
from agentq.store.durable import BLOCK_BYTES, WHOLE_BYTES, flaw, seal
from agentq.store.run import RunStore
from tests.kill_factory import Moment, killed
from tests.learn_factory import tiny_llama
from tests.reads import made
from tests.recipes_factory import Idle, Quiet
from tests.test_recipes import SMALLER
from tests.test_recipes import Taught as Climber
from tests.test_store_disk import full_disk
from tests.train_factory import run, same, weights

WORDS = (
    *("--run.env=shop", "--run.num_rounds=3", "--run.num_tasks=2", "--run.group_size=3", "--eval.num_tasks=1"),
    *("--train.batch_size=2", "--train.epochs=1", "--eval.measure_base=false"),
)
Damage = Callable[[Path], None]


def lose(path: Path) -> None:
    shutil.rmtree(path)


def lose_one(path: Path) -> None:
    next(path.rglob("optimizer.safetensors")).unlink()


def truncate(path: Path) -> None:
    file = next(path.rglob("weights.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])


def alter(path: Path) -> None:
    file = next(path.rglob("weights.safetensors"))
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))


def lose_position(path: Path) -> None:
    next(path.rglob("position.json")).unlink()


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def make(name: str) -> Path:
        out = tmp_path_factory.mktemp(name) / "run"
        run(name, base, out, WORDS)
        return out

    return make


@pytest.mark.parametrize(
    "damage",
    [lose, alter, *(pytest.param(one, marks=pytest.mark.rest) for one in (lose_one, truncate, lose_position))],
)
def test_rounds_whose_state_is_lost_are_learnt_again_exactly(
    damage: Damage, base: Path, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    killed("grpo", base, tmp_path / "run", WORDS, Moment("round3/collect", 3))
    states = tmp_path / "run" / "checkpoints" / "grpo.states"
    assert [p.name for p in states.iterdir()] == ["round2"]
    damage(states)
    run("grpo", base, tmp_path / "run", WORDS)
    assert same(weights(tmp_path / "run", "grpo"), weights(whole("grpo"), "grpo"))
    with RunStore.read(tmp_path / "run") as store:
        again = [(store.note(f"grpo/round{n}/learn") or {}).get("learnt_again", 0) for n in (1, 2, 3)]
    assert again == [1, 1, 0]


def test_a_redoing_run_that_is_killed_again_ends_with_the_same_weights(
    base: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "CHECKPOINT_EVERY", 1)
    out = tmp_path / "run"
    killed("grpo", base, out, WORDS, Moment("round3/learn", 1))
    assert sorted(p.name for p in (out / "checkpoints" / "grpo.states").iterdir()) == ["round2", "round3"]
    lose(out / "checkpoints" / "grpo.states" / "round2")
    killed("grpo", base, out, WORDS, Moment("round1/learn", 1))
    killed("grpo", base, out, WORDS, Moment("round2/learn", 2))
    run("grpo", base, out, WORDS)
    assert same(weights(out, "grpo"), weights(whole("grpo"), "grpo"))


def test_a_damaged_checkpoint_of_the_round_under_way_stops_the_run(
    base: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "CHECKPOINT_EVERY", 1)
    out = tmp_path / "run"
    killed("grpo", base, out, WORDS, Moment("round2/learn", 2))
    alter(out / "checkpoints" / "grpo.states" / "round2")
    with pytest.raises(
        ModelError, match=r"weights.safetensors was altered: .* delete .*round2 to take its steps again"
    ):
        run("grpo", base, out, WORDS)
    lose(out / "checkpoints" / "grpo.states" / "round2")
    run("grpo", base, out, WORDS)
    assert same(weights(out, "grpo"), weights(whole("grpo"), "grpo"))


def test_a_lost_value_head_stops_ppo(base: Path, tmp_path: Path) -> None:
    words = [*WORDS[:-1], "--run.num_rounds=2", "--eval.measure_base=false", "--policy_gradient.values=ridge"]
    killed("ppo", base, tmp_path / "run", words, Moment("round2/collect", 3))
    head = tmp_path / "run" / "checkpoints" / "ppo.value-round1.safetensors"
    data = head.read_bytes()
    for damage, message in ((data[:-1], f"has {len(data) - 1} bytes instead of {len(data)}"), (None, "is missing")):
        head.write_bytes(damage) if damage else head.unlink()
        with pytest.raises(StoreError, match=rf"must be the value head of round 1; .*{message}: .* or delete .*states"):
            run("ppo", base, tmp_path / "run", words)
    lose(tmp_path / "run" / "checkpoints" / "ppo.states")
    run("ppo", base, tmp_path / "run", words)
    run("ppo", base, tmp_path / "whole", words)
    assert same(weights(tmp_path / "run", "ppo"), weights(tmp_path / "whole", "ppo"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, "it is missing"),
        (lambda p: (p / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda p: (p / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda p: (p / "model.safetensors").write_bytes(b"torn"), "model.safetensors has 4 bytes instead of"),
        (lambda p: (p / "config.json").write_text((p / "config.json").read_text()[::-1]), "config.json was altered"),
    ],
)
def test_a_damaged_checkpoint_of_a_finished_run_is_noticed(
    change: Damage, message: str, base: Path, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(whole("grpo"), tmp_path / "run")
    change(tmp_path / "run" / "checkpoints" / "grpo")
    with pytest.raises(
        StoreError, match=rf"grpo must be as the run left it; {message}.*: restore a copy, or .*--clean"
    ):
        run("grpo", base, tmp_path / "run", WORDS)


def test_a_damaged_checkpoint_of_a_finished_ladder_is_noticed(base: Path, tmp_path: Path) -> None:
    settings = made(Ladder, SMALLER.split())
    with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
        climb(Climber(store, settings, base, Quiet()), settings)
        checkpoints = tmp_path / "run" / "checkpoints"
        assert not list(checkpoints.glob("*.partial"))
        rft = checkpoints / "rft" / "model.safetensors"
        rft.write_bytes(rft.read_bytes()[:1000])
        with pytest.raises(StoreError, match=r"rft must be as the run left it; .* has 1000 bytes instead of"):
            climb(Idle(store, settings, base, Quiet()), settings)


def test_a_damaged_model_is_one_line(tmp_path: Path, base: Path) -> None:
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        for damage in (lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"\7" * len(data)):
            shutil.copytree(base, tmp_path / "model")
            file = tmp_path / "model" / name
            file.write_bytes(damage(file.read_bytes()))
            with pytest.raises(ModelError) as raised:
                Learner.from_checkpoint(tmp_path / "model", learning_rate=1e-3)
            assert "\n" not in str(raised.value)
            shutil.rmtree(tmp_path / "model")


def test_a_full_disk_leaves_the_checkpoint_that_was_there(tmp_path: Path) -> None:
    first, second = (Learner(tiny_llama(seed), learning_rate=1e-3) for seed in (1, 2))
    first.save(tmp_path / "model")
    before = seal(tmp_path / "model")
    for path in (tmp_path / "model", tmp_path / "other"):
        with full_disk(), pytest.raises(StoreError, match=f"{path.name} must be writable; got .*: make room"):
            second.save(path)
    assert flaw(tmp_path / "model", before) is None and [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_large_file_is_sealed_by_blocks(tmp_path: Path) -> None:
    file = tmp_path / "large"
    size = WHOLE_BYTES * 2 + 5
    with file.open("wb") as handle:
        handle.truncate(size)
    sealed = seal(file)
    assert flaw(file, sealed) is None
    for at in (0, BLOCK_BYTES - 1, size - 1, (size - BLOCK_BYTES) * 31 // 63):
        with file.open("rb+") as handle:
            handle.seek(at)
            handle.write(b"\1")
        assert flaw(file, sealed) == "large was altered"
        with file.open("rb+") as handle:
            handle.seek(at)
            handle.write(b"\0")
    with file.open("rb+") as handle:
        handle.truncate(size - 1)
    assert flaw(file, sealed) == f"large has {size - 1} bytes instead of {size}"
