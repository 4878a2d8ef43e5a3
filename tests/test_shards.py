"""Shards of a run, and the run that is made of them: records, training and tables as without shards."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentq.cli import main
from agentq.errors import ConfigError
from agentq.policies.usage import Usage
from agentq.recipes.ladder import climb, rungs_of
from agentq.recipes.settings import AgentQ
from agentq.run_settings import read_shard
from agentq.store.claim import COMMAND, FILES, INPUTS
from agentq.store.merge import FINISHED, added, merge, together
from agentq.store.records import encode_trajectory, encode_tree
from agentq.store.run import RunStore
from agentq.store.tables import rows
from agentq.types import Proposal
from tests.reads import made
from tests.recipes_factory import Quiet
from tests.records_factory import make_trajectory, make_tree
from tests.train_factory import TINY, Taught, recipe_of, same, weights


def trained(name: str, base: Path, out: Path, *words: str) -> None:
    """`agentq train` with teachers."""
    recipe = recipe_of(name)
    settings = made(recipe.settings, [*TINY, "--run.num_tasks=5", "--eval.num_tasks=3", *words])
    with RunStore.open(out, settings.to_dict() | {"command": f"train {name}"}) as store:
        climb(Taught(store, settings, base, Quiet()), settings, rungs_of(recipe, settings))
        if settings.run.shard:
            store.set_note(FINISHED, {"finished": True})


def records(out: Path) -> dict[str, list[Any]]:
    """By stage; without times, and without log-probabilities, whose last bits depend on the batch."""

    def same_logps(proposal: Proposal | None) -> Proposal | None:
        return proposal and replace(proposal, logps=np.zeros_like(proposal.logps))

    found = {}
    with RunStore.read(out) as store:
        for stage in store.stages():
            episodes = list(store.trajectories(stage))
            for tree in (trees := list(store.trees(stage))):
                tree.info.pop("seconds")
                tree.proposal = [*map(same_logps, tree.proposal)]
            for i, t in enumerate(episodes):
                steps = tuple(replace(step, proposal=same_logps(step.proposal)) for step in t.steps)
                episodes[i] = replace(t, steps=steps)
            if trees or episodes:
                found[stage] = [*map(encode_tree, trees), *map(encode_trajectory, episodes)]
    return found


@pytest.mark.parametrize("name", ["agent_q", pytest.param("rft", marks=pytest.mark.rest)])
def test_merged_shards_train_as_one_run(name: str, base: Path, tmp_path: Path) -> None:
    shards = [tmp_path / str(i) for i in (1, 2, 3)]
    for i, out in enumerate(shards, start=1):
        trained(name, base, out, f"--run.shard={i}/3")
        assert not list((out / "checkpoints").glob(name))
    merge(shards, tmp_path / "merged")
    before = records(tmp_path / "merged")
    trained(name, base, tmp_path / "merged")
    trained(name, base, tmp_path / "whole")
    assert records(tmp_path / "merged") == records(tmp_path / "whole")
    stage = f"{name}/round1/collect"
    assert before[stage] == records(tmp_path / "whole")[stage], "nothing was left to collect"
    assert same(weights(tmp_path / "merged", name), weights(tmp_path / "whole", name))
    with RunStore.read(tmp_path / "merged") as one, RunStore.read(tmp_path / "whole") as other:
        assert (
            Usage.from_note(one.note("base/eval") or {}).total == Usage.from_note(other.note("base/eval") or {}).total
        )
        assert one.note("base/eval")["done"] == 3


def test_a_merge_that_was_interrupted_goes_on(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = [tmp_path / str(i) for i in (1, 2)]
    for i, out in enumerate(shards, start=1):
        trained("rft", base, out, f"--run.shard={i}/2")
    whole = merge(shards, tmp_path / "whole")
    add, calls = RunStore.add_trajectory, list[str]()

    def dies(self: RunStore, stage: str, key: str, trajectory: Any) -> bool:
        calls.append(key)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return add(self, stage, key, trajectory)

    monkeypatch.setattr("agentq.store.merge.ROWS", 2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunStore, "add_trajectory", dies)
        merge(shards, tmp_path / "merged")
    assert merge(shards, tmp_path / "merged") == merge(shards, tmp_path / "merged") == whole
    assert records(tmp_path / "merged") == records(tmp_path / "whole")
    with RunStore.read(tmp_path / "merged") as one, RunStore.read(tmp_path / "whole") as other:
        assert {stage: one.note(stage) for stage in one.stages()} == {s: other.note(s) for s in other.stages()}


def test_what_are_not_the_shards_of_one_run_is_refused(base: Path, tmp_path: Path) -> None:
    def shard(name: str, text: str, *words: str) -> Path:
        trained("rft", base, tmp_path / name, f"--run.shard={text}", *words)
        return tmp_path / name

    one, two = shard("one", "1/2"), shard("two", "2/2")
    other, thirds = shard("other", "2/2", "--run.seed=5"), shard("thirds", "2/3")
    trained("rft", base, tmp_path / "whole")
    unfinished, another, moved = (
        Path(shutil.copytree(two, tmp_path / name)) for name in ("unfinished", "another", "moved")
    )
    with RunStore.open(unfinished, RunStore.read(unfinished).config) as store:
        store.set_note(FINISHED, {})
    with RunStore.open(another, RunStore.read(another).config) as store:
        store.set_note("base", {"fingerprint": "f", "name": "g"})
    text = json.loads((one / "config.json").read_text())
    for runs, said in (
        ([one, other], f"got run.seed 4 in {one} and 5 in {other}"),
        ([one, thirds], f"got shards 2 in {one} and 3 in {thirds}"),
        ([one, another], "got base.fingerprint"),
        ([one, tmp_path / "whole"], f"made with --run.shard; got {tmp_path / 'whole'}"),
        ([one, unfinished], f"a shard must be finished; got {unfinished}"),
        ([one, two, moved], f"each shard must be given once; got 2/2 as {two} and {moved}"),
        ([two], "all 2 shards must be given; got none of 1"),
    ):
        with pytest.raises(ConfigError, match=said.replace("(", ".")):
            merge(runs, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    (moved / "config.json").write_text(json.dumps(text))
    with pytest.raises(ConfigError, match=f"{moved} must have the tasks of shard 1/2 alone; got"):
        merge([two, moved], tmp_path / "out")


def test_eval_by_shards_and_merge_from_the_command_line(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["eval", str(base), "--json", "--eval.num_tasks=4", "--run.executor=inline"]
    assert [main([*words, f"--run.shard={i}/2"]) for i in (1, 2)] == [0, 0]
    parts = [json.loads(line)["rungs"][0] for line in capsys.readouterr().out.splitlines()]
    shards = sorted(map(str, Path("runs").iterdir()))
    assert len(shards) == 2
    assert main(["merge", *shards, "--out", "merged", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "merged", "records": 4}
    assert main([*words, "--out", "merged"]) == main([*words, "--out", "whole"]) == 0
    merged, whole = (json.loads(line)["rungs"][0] for line in capsys.readouterr().out.splitlines())
    assert merged.pop("seconds") < whole.pop("seconds") + sum(part["seconds"] for part in parts)
    assert merged == whole and merged["n"] == sum(part["n"] for part in parts) == 4
    assert main(["merge", shards[0], "--out", "again"]) == 2
    assert "all 2 shards must be given; got none of 2" in capsys.readouterr().err


def test_a_merged_run_has_the_pair_settings_of_its_shards(tmp_path: Path) -> None:
    pairs = {"alpha": 0.75, "threshold": 0.5, "min_visits": 1, "max_pairs_per_node": 4}
    stage = "agent_q/round1/collect"

    def shard(number: int, **changes: float) -> Path:
        out = tmp_path / f"{number}{'-other' * bool(changes)}"
        settings = AgentQ.model_validate({"run": {"shard": f"{number}/2"}}).to_dict() | {"command": "train agent_q"}
        with RunStore.open(out, settings) as store:
            store.add_tree(stage, make_tree(number - 1, num_nodes=20))
            note = {"done": 1, "total": 1, "seconds": 0.5, "usage": {"policy": {"requests": 3}}, "engine": {}}
            store.set_note(stage, {**note, "pairs": pairs | changes, "own": {"number": 7}})
            store.set_note(FINISHED, {"finished": True})
        return out

    one, two = shard(1), shard(2)
    merge([one, two], tmp_path / "merged")
    with RunStore.read(tmp_path / "merged") as store:
        note = store.note(stage) or {}
        assert note["pairs"] == pairs and note["own"] == {"number": 7}
        assert (note["done"], note["total"], note["seconds"], note["usage"]["policy"]["requests"]) == (2, 2, 1.0, 6)
        found = list(rows(store, "pairs", None))
    with RunStore.read(one) as first, RunStore.read(two) as second:
        assert found == [*rows(first, "pairs", None), *rows(second, "pairs", None)] != []
    other = shard(2, alpha=1.0)
    with pytest.raises(ConfigError, match=f"got {stage}.pairs.alpha 0.75 in {one} and 1.0 in {other}"):
        merge([one, other], tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def small(out: Path, number: int, n: int, *seeds: int) -> Path:
    """A finished shard with episodes of these tasks."""
    settings = AgentQ.model_validate({"run": {"shard": f"{number}/{n}"}}).to_dict() | {"command": "train agent_q"}
    with RunStore.open(out, settings) as store:
        for seed in seeds:
            store.add_trajectory("base/eval", f"{seed}/0", make_trajectory(seed))
        store.set_note(
            COMMAND, {"words": ["train", "agent_q", f"--run.shard={number}/{n}", "--json"], "finished": True}
        )
        store.set_note(FINISHED, {"finished": True})
    return out


def test_a_merged_run_is_the_unfinished_run_of_all_shards(tmp_path: Path) -> None:
    shards = [small(tmp_path / "one", 1, 2, 2, 10), small(tmp_path / "two", 2, 2, 3, 11)]
    assert merge(shards, tmp_path / "merged") == 4
    with RunStore.read(tmp_path / "merged") as store:
        assert store.note(COMMAND) == {"words": ["train", "agent_q", "--json"], "finished": False}
        assert store.keys("base/eval") == {"2/0", "3/0", "10/0", "11/0"}
        for key in store.keys("base/eval"):
            episode = store.trajectory("base/eval", key)
            assert episode is not None and f"{episode.task.seed}/0" == key
    facts = json.loads((tmp_path / "merged" / "env.json").read_text())
    assert facts["shards"].keys() == {str(shard) for shard in shards}


def test_a_shard_that_is_missing_or_has_the_tasks_of_another_is_refused(tmp_path: Path) -> None:
    one, two, wrong = (small(tmp_path / str(i), *about) for i, about in enumerate(((1, 3, 3), (2, 3, 4), (3, 3, 7))))
    with pytest.raises(ConfigError, match="all 3 shards must be given; got none of 3"):
        merge([one, two], tmp_path / "out")
    with pytest.raises(ConfigError, match=f"{wrong} must have the tasks of shard 3/3 alone; got 7 in base/eval"):
        merge([one, two, wrong], tmp_path / "out")


def test_shards_of_other_inputs_are_refused_by_name_and_of_other_code_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shard(number: int, server: str, digest: str) -> Path:
        out = tmp_path / f"{number}-{server[-1]}"
        settings = AgentQ.model_validate({"run": {"shard": f"{number}/2"}}).to_dict() | {"command": "train agent_q"}
        with RunStore.open(out, settings | {"checkpoint": f"digest of {server}"}) as store:
            store.add_tree("agent_q/round1/collect", make_tree(number - 1, num_nodes=5))
            store.set_note(INPUTS, {"checkpoint": server})
            store.set_note(FILES, {"own.py": digest})
            store.set_note(FINISHED, {"finished": True})
        return out

    one, other, two = shard(1, "http://a/v1#a", "x"), shard(2, "http://b/v1#b", "x"), shard(2, "http://a/v1#a", "y")
    with pytest.raises(ConfigError, match=f"got checkpoint http://a/v1#a in {one} and http://b/v1#b in {other}"):
        merge([one, other], tmp_path / "out")
    facts = json.loads((two / "env.json").read_text()) | {"commit": "0ld"}
    (two / "env.json").write_text(json.dumps(facts))
    assert merge([one, two], tmp_path / "out") == 2
    code, version = capsys.readouterr().err.splitlines()
    assert code == f"agentq: own.py was another one in {one} than in {two}"
    assert version.startswith(f"agentq: {one} was made by agentq ") and version.endswith("(0ld)")


def test_shards_are_numbers_from_one_and_notes_add_up() -> None:
    assert read_shard("3/16") == (3, 16)
    for wrong in ("0/2", "3/2", "3", "a/2", "1/-2", "-1/2", "1/2/3"):
        with pytest.raises(ConfigError, match=f"I/N with I from 1 to N, such as 3/16; got '{wrong}'"):
            read_shard(wrong)
    one, other = {"n": 1, "a": {"x": 2.5, "name": "p"}, "f": True}, {"n": 2, "a": {"x": 1, "y": 3}, "f": True}
    assert together([{"rounds": 1, "done": 1}, {"rounds": 1, "done": 2, "new": 5}]) == {
        "rounds": 1,
        "done": 3,
        "new": 5,
    }
    assert together([{"rounds": 1}, {"rounds": 2, "new": 5}]) == {"rounds": 1, "new": 5}
    assert added({"n": 1}, {}) == {"n": 1}
    assert added(one, other) == {"n": 3, "a": {"x": 3.5, "name": "p", "y": 3}, "f": True}
