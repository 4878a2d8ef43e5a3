"""The ladder on a tiny run: what every rung learns from, that nothing is done twice, and that it may be interrupted."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.cli import main
from agentq.critics.ranker import LLMRanker
from agentq.model_settings import CriticSettings
from agentq.policies.protocol import Policy
from agentq.recipes.ladder import DEMO_RUNGS, RUNGS, climb, rungs_of
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import RECIPES, Ladder
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.types import Split
from tests.reads import keys, made, recorded_reads
from tests.recipes_factory import Idle, Quiet, Schooled, Teacher
from tests.train_factory import recipe_of, same, weights

SMALL = (  # seed 9: every learner finds pairs in both rounds
    "--run.env=shop --run.seed=9 --rft.num_tasks=2 --rft.attempts=2 --rft.epochs=1 --run.num_tasks=1 "
    "--run.num_rounds=2 --search.num_iterations=4 --search.num_proposals=3 "
    "--eval.num_tasks=2 --eval.num_iterations=2 --train.sft_weight=0"
)
SMALLER = (
    "--rft.num_tasks=1 --rft.attempts=2 --run.num_tasks=1 --run.num_rounds=1 "
    "--search.num_iterations=3 --search.num_proposals=2 --eval.num_tasks=1 --eval.num_iterations=2"
)


class Taught(Schooled):
    """A pipeline whose policies are teachers, and that notes which checkpoint each collection uses."""

    def policy(self, checkpoint: Path) -> Policy:  # type: ignore[override]
        c = self.settings
        assert isinstance(c, Ladder)
        self.__dict__.setdefault("used", []).append(self.called(checkpoint))
        scripts = self.scripts(c.rft.num_tasks + c.run.num_rounds * c.run.num_tasks)
        return Teacher(self.engine(checkpoint), scripts, learnt=checkpoint != self.base)

    def called(self, checkpoint: Path) -> str:
        """base, RUNG, or RUNG/roundN."""
        served = checkpoint.parent.name.endswith(".served")
        name = f"{checkpoint.parent.stem}/{checkpoint.name}" if served else checkpoint.name
        return "base" if checkpoint == self.base else name


class Learnt(Schooled):
    """A pipeline that starts from a policy that has learnt."""

    def policy(self, checkpoint: Path) -> Policy:  # type: ignore[override]
        return Teacher(self.engine(checkpoint), self.scripts(4), learnt=True)


Climbed = tuple[Path, Ladder, Taught, list[Any]]


@pytest.fixture(scope="module")
def climbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Climbed:
    """A whole ladder of teachers."""
    out = tmp_path_factory.mktemp("climbed") / "run"
    settings = made(Ladder, SMALL.split())
    with RunStore.open(out, settings.to_dict()) as store:
        pipeline = Taught(store, settings, base, Quiet())
        with recorded_reads() as read:
            rows = climb(pipeline, settings)
        # the command reads them; the policy and the critic, which are a teacher and a scripted one here
        policy = {f"model.{name}" for name in ("max_new_tokens", "stop", "prompt", "grammar")}
        elsewhere = {
            f"run.{name}" for name in ("out", "executor", "workers", "address", "gpus", "constrained")
        } | policy
        elsewhere |= {"model.memory", "model.sleep", "critic.max_new_tokens", "critic.method"}
        overridden = {"run.group_size"}  # by rungs
        assert read - overridden - elsewhere == keys(Ladder) - elsewhere
    return out, settings, pipeline, rows


def contents(store: RunStore) -> dict[str, tuple[int, int]]:
    return {stage: (store.count(stage, TREE), store.count(stage, TRAJECTORY)) for stage in store.stages()}


def test_ladder_writes_every_rung_in_order(climbed: Climbed) -> None:
    out, _, _, rows = climbed
    summary = json.loads((out / "summary.json").read_text())
    assert summary == [row.to_dict() for row in rows]
    assert [row["name"] for row in summary] == [rung.name for rung in RUNGS] and set(DEMO_RUNGS) <= set(RUNGS)
    assert [(row["successes"], row["n"]) for row in summary] == [(0, 2)] + [(2, 2)] * 6  # greedy, only a base stops
    assert all(row["env_steps"] > 0 and row["prompt_tokens"] > 0 and row["seconds"] > 0 for row in summary)


def test_ladder_collects_with_the_checkpoints_of_the_paper(climbed: Climbed) -> None:
    out, _, pipeline, _ = climbed
    learners = ("outcome_dpo", "agent_q_no_critic", "agent_q")
    # one round and an evaluation of RFT, two rounds and an evaluation of each learner; two searches
    rounds = ["rft/round1", "rft"] + [f"{rung}{part}" for rung in learners for part in ("/round1", "/round2", "")]
    assert pipeline.__dict__["used"] == ["base", *rounds, "rft", "agent_q"]
    with RunStore.read(out) as store:
        held_out = [t.task for t in store.trajectories("agent_q/eval")]
        assert {task.split for task in held_out} == {Split.TEST}
        assert store.done("agent_q_mcts/eval") == {task.seed for task in held_out}
        trained_on = [store.done(f"{rung}/round{i}/collect") for rung in learners for i in (1, 2)]
        assert trained_on == [{2}, {3}] * 3  # the same tasks for every learner, none of RFT's (0 and 1)
        assert store.done("rft/round1/collect") == {0, 1}


def test_ladder_trains_each_learner_from_the_policy_that_collected(climbed: Climbed) -> None:
    out, _, _, _ = climbed
    with RunStore.read(out) as store:
        lines = [line for line in store.metrics() if line["stage"].endswith("/learn")]
        notes = {stage: store.note(stage) or {} for stage in store.stages() if stage.endswith("/learn")}
    first = {(line["stage"], line["round"]): line["loss"] for line in reversed(lines)}
    dpo = [place for place in first if place[0] != "rft/learn"]
    assert len(dpo) == 6 and all(note["items"] > 0 for note in notes.values())
    for place in dpo:  # DPO starts at ln 2 where the reference is the policy that the round began with
        assert first[place] == pytest.approx(math.log(2), abs=1e-3), place
    assert notes["agent_q/round1/learn"]["items"] != notes["outcome_dpo/round1/learn"]["items"]


def test_a_searching_rung_costs_its_search_and_a_learning_rung_its_training(climbed: Climbed) -> None:
    out, _, _, rows = climbed
    row = {r.name: r for r in rows}
    with RunStore.read(out) as store:
        trees = {stage: list(store.trees(stage)) for stage in store.stages()}
        episodes = {stage: list(store.trajectories(stage)) for stage in store.stages()}
        assert row["agent_q_mcts"].env_steps == sum(t.info["env_steps"] for t in trees["agent_q_mcts/eval"])
        collected = sum(t.info["env_steps"] for i in (1, 2) for t in trees[f"agent_q/round{i}/collect"])
        assert row["agent_q"].env_steps == collected + sum(len(t.steps) for t in episodes["agent_q/eval"])
        searched = trees["agent_q_mcts/eval"]
        assert any(t.info["succeeded"] for t in searched)
        assert all(t.success.sum() == t.info["succeeded"] for t in searched)  # stops at its first success
        ranked = [(store.note(f"agent_q/round{i}/collect") or {})["usage"]["critic"]["prompt_tokens"] for i in (1, 2)]
        read = sum(t.info["prompt_tokens"] for i in (1, 2) for t in trees[f"agent_q/round{i}/collect"])
        read += sum(len(step.proposal.prompt_ids) for t in episodes["agent_q/eval"] for step in t.steps)
        assert row["agent_q"].prompt_tokens == read + sum(ranked)
        notes = [store.note(stage) or {} for stage in store.stages()]
        assert any("critic" in note.get("usage", {}) for note in notes)


def test_a_finished_ladder_does_nothing_again(base: Path, climbed: Climbed) -> None:
    out, settings, _, _ = climbed
    with RunStore.open(out, settings.to_dict()) as store:
        before, summary = contents(store), (out / "summary.json").read_bytes()
        climb(Idle(store, settings, base, Quiet()), settings)
        assert contents(store) == before and (out / "summary.json").read_bytes() == summary


@pytest.mark.parametrize("rung", ["outcome_dpo", "agent_q_no_critic", "agent_q"])
def test_a_rung_and_a_run_of_its_recipe_end_with_the_same_weights(
    rung: str, base: Path, climbed: Climbed, tmp_path: Path
) -> None:
    out, _, _, _ = climbed
    recipe = "outcome_dpo" if rung == "outcome_dpo" else "agent_q"
    more = {
        "outcome_dpo": ["--run.group_size=4"],
        "agent_q": [f"--critic.model={base}"],
        "agent_q_no_critic": ["--critic.model=none"],
    }[rung]
    settings = made(RECIPES[recipe], [*SMALL.split(), "--run.first_task=2", "--eval.measure_base=false", *more])
    with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
        start = out / "checkpoints" / "rft"
        found = recipe_of(recipe)
        climb(Learnt(store, settings, start, Quiet()), settings, rungs_of(found, settings))
    assert same(weights(tmp_path / "run", recipe), weights(out, rung))
    assert not same(weights(tmp_path / "run", recipe), weights(out, "rft"))


def test_the_critic_is_the_base_another_model_or_none_and_stays_loaded(base: Path, tmp_path: Path) -> None:
    for name in ("other", "trained"):
        shutil.copytree(base, tmp_path / name)
    settings = made(RECIPES["agent_q"])
    with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
        p = Pipeline(store, settings, base, Quiet())
        assert p.critic(CriticSettings(model="none")) is None and not p.engines
        p.engine(tmp_path / "trained")
        ranker = p.critic(CriticSettings(model=str(tmp_path / "other"), method="letters"))
        assert isinstance(ranker, LLMRanker) and ranker.method == "letters"
        assert set(p.engines) == {tmp_path / "trained", tmp_path / "other"}
        p.close_others()
        assert set(p.engines) == {tmp_path / "other"}
        p.close()


INTERRUPTED = """
import os, signal, sys
from agentq import status
from agentq.cli import main

shown = status.RichStatus.stage

def stage(self, name, total, unit):
    def show(*told, show=shown(self, name, total, unit)):
        show(*told)
        if name == "rft/round1/collect":
            os.kill(os.getpid(), signal.SIGINT)
    return show

status.RichStatus.stage = stage
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.rest
def test_an_interrupted_ladder_goes_on_and_ends_with_the_same_rows(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def words(name: str) -> list[str]:
        return ["ladder", "--json", "--base", str(base), f"--run.out={tmp_path / name}", *SMALLER.split()]

    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words("cut")], capture_output=True, text=True, check=False, timeout=120
    )
    out, err = process.stdout, process.stderr
    assert process.returncode == 130, err
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert "agentq: interrupted; go on with: agentq ladder --json" in err

    rows = {}
    for name in ("whole", "cut"):
        assert main(words(name)) == 0
        rows[name] = json.loads(capsys.readouterr().out)["rungs"]
        assert json.loads((tmp_path / name / "summary.json").read_text()) == rows[name]
        assert (tmp_path / name / "report.html").exists()
        for row in rows[name]:
            assert row.pop("seconds") > 0
    assert rows["cut"] == rows["whole"] and [row["name"] for row in rows["cut"]] == [rung.name for rung in RUNGS]
