"""The scripts of `examples/` run as they stand; four are what a newcomer writes first, each under 20 lines."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import agentq
from agentq.envs import contract
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.check import check
from agentq.export import export
from agentq.policies.renderer import load_renderer, samples_of_texts
from agentq.store.run import RunStore
from tests.records_factory import make_tree
from tests.view_factory import make_run

ROOT = Path(__file__).parents[1]
TEXTARENA = """
import random

class Dice:
    def reset(self, num_players, seed):
        random.seed(seed)
        self.talk, self.turns, self.rolls = f"[GAME] {seed}: say [roll]", 0, 0

    def get_observation(self):
        return 0, self.talk

    def step(self, action):
        rolled = random.randrange(10**9) if action == "[roll]" else "nothing"
        self.turns, self.rolls = self.turns + 1, self.rolls + (action == "[roll]")
        self.talk += f"\\n[Player] {action}\\n[GAME] rolled {rolled}"
        return self.turns == 4, {}

    def close(self):
        return {0: self.rolls / 4}, {0: {"reason": "four turns"}}

def make(name):
    return Dice()
"""
FIRST = ("export_pairs", "search_own_env", "dpo_own_pairs", "evaluate_checkpoint")


def run(name: str, *words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FIRST)
def test_a_first_script_is_under_twenty_lines(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) < 20
    assert not re.findall(r"^\s*from agentq\.|^\s*import agentq\.", text, re.MULTILINE), "the root has all it needs"


@pytest.mark.parametrize(
    "name",
    ["dpo_own_pairs", "evaluate_checkpoint", "export_pairs", "loop", "sft_own_demonstrations", "train_with_trl"],
)
def test_a_script_without_arguments_says_what_it_takes(name: str) -> None:
    if name == "train_with_trl":
        pytest.importorskip("trl")
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f": python examples/{name}.py " in done.stderr.splitlines()[0]


def test_search_your_own_environment_with_your_own_model() -> None:
    printed = run("search_own_env")
    assert "solved in 3 steps" in printed and "success" in printed


@pytest.mark.rest
def test_dpo_on_your_own_pairs(base: Path, tmp_path: Path) -> None:
    printed = run("dpo_own_pairs", base, tmp_path / "new")
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[0] == 0.693 and losses == sorted(losses, reverse=True) and losses[-1] < 0.6
    assert (tmp_path / "new" / "model.safetensors").is_file()


@pytest.mark.rest
def test_sft_on_your_own_demonstrations(base: Path, tmp_path: Path) -> None:
    printed = run("sft_own_demonstrations", base, tmp_path / "new")
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", printed)]
    assert len(losses) == 10 and losses == sorted(losses, reverse=True) and losses[-1] < losses[0] - 0.5
    assert (tmp_path / "new" / "model.safetensors").is_file()


def test_a_loss_of_your_own_is_what_its_formula_says(base: Path) -> None:
    """On two pairs and an imitated action, whatever the parts are that the learner cuts the batch into."""
    own = runpy.run_path(str(ROOT / "examples" / "simpo.py"))
    settings = own["SimPO"](train={"beta": 2.0, "margin": 0.5, "sft_weight": 0.25})
    losses = []
    for max_tokens in (1, 4096):
        learner = agentq.Learner.from_checkpoint(base, learning_rate=1e-3, max_tokens=max_tokens)
        answers = [("Book a table", "CLICK [1]", "STOP"), ("Go on", "STOP", "CLICK [2]")]
        pairs = [agentq.PreferencePair.from_text(*texts, learner.tokenizer) for texts in answers]
        (imitated,) = samples_of_texts("Stop here", ["STOP"], learner.tokenizer)
        samples = [pairs[0].chosen[0], pairs[0].rejected[0], pairs[1].chosen[0], pairs[1].rejected[0], imitated]
        better, worse, best, worst, alone = (float(s.logps.mean()) for s in learner.recompute_logps(samples))
        by_hand = np.log1p(np.exp(0.5 - 2 * (better - worse))) + np.log1p(np.exp(0.5 - 2 * (best - worst)))
        by_hand -= 0.25 * (better + best + alone)
        metrics = own["loss"](learner, [*pairs, imitated], settings)
        assert metrics["loss"] == pytest.approx(by_hand / 3, rel=1e-4)
        assert metrics["right"] == pytest.approx(((better > worse) + (best > worst)) / 3)
        losses.append(metrics["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.rest
def test_a_method_with_a_loss_of_your_own_trains(base: Path, tmp_path: Path) -> None:
    """Fewer tasks than a real run, otherwise the command of the example."""
    example = str(ROOT / "examples" / "simpo.py")
    done = agentq.train(
        example,
        env="booking",
        out=tmp_path / "run",
        run={"num_tasks": 3},
        search={"num_iterations": 3},
        critic={"model": "none"},
        eval={"num_tasks": 2},
    )
    assert [rung.name for rung in done] == ["base", "simpo"]


@pytest.mark.rest
@pytest.mark.parametrize("form", ["trl-preference", "trl-prompt-completion"])
def test_trls_own_trainers_train_on_exports(form: str, base: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    export(make_run(tmp_path / "run"), form, tmp_path / "rows.jsonl")
    run("train_with_trl", tmp_path / "rows.jsonl", base, tmp_path / "new")
    before, after = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "new"))
    assert any((before[name] != after[name]).any() for name in after)


@pytest.mark.rest
def test_export_the_pairs_of_a_run(base: Path, tmp_path: Path) -> None:
    tokenizer = load_renderer(base).tokenizer
    tree = make_tree(3)
    prompt = np.asarray(tokenizer("COMMANDS: one of").input_ids, np.int32)
    for node, proposal in enumerate(tree.proposal):
        if proposal is not None:
            ids = np.asarray(tokenizer(f"CLICK [{node}]").input_ids, np.int32)
            logps = np.zeros(len(ids), np.float32)
            tree.proposal[node] = replace(proposal, prompt_ids=prompt, token_ids=ids, logps=logps)
    pairs = agentq.SearchResult(tree).pairs()
    with RunStore.open(tmp_path / "run", {"command": "train agent_q"}) as store:
        store.add_tree("agent_q/round1/collect", tree)
    rows = [
        json.loads(line) for line in run("export_pairs", tmp_path / "run", "agent_q/round1/collect", base).splitlines()
    ]
    assert len(rows) == len(pairs) > 0 and rows[0]["gap"] == pytest.approx(pairs[0].gap)
    assert rows[0]["prompt"] == "COMMANDS: one of"
    assert {row[side][:7] for row in rows for side in ("chosen", "rejected")} == {"CLICK ["}


@pytest.mark.rest
def test_evaluate_a_checkpoint(base: Path) -> None:
    printed = run("evaluate_checkpoint", base)
    assert re.match(r"\d+ of 20 tasks \(\d+\.\d %, 95 % interval \d+\.\d - \d+\.\d\)\n(solved|failed) after ", printed)


@pytest.mark.rest
def test_the_loop_by_hand_gains(tmp_path: Path) -> None:
    printed = run("loop", ROOT / "python" / "agentq" / "models" / "base", tmp_path / "new")
    before, after = (int(found) for found in re.findall(r"(\d+) of 60 tasks \(", printed))
    assert re.search(r"[1-9]\d* of 32 tasks solved by search, [1-9]\d* pairs", printed) and after > before + 5
    assert (tmp_path / "new" / "model.safetensors").is_file()


@pytest.mark.browser
@pytest.mark.rest
def test_your_own_site_in_chromium(browser: BrowserPool) -> None:
    printed = run("own_site")
    assert "solved in 3 steps" in printed and "TYPE [1] Guest 0" in printed


def test_a_game_with_dice_that_all_sessions_share_keeps_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "textarena.py").write_text(TEXTARENA)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the other process
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (ROOT / "examples" / "textarena_game.py").read_text()
    (tmp_path / "game.py").write_text(text)
    (tmp_path / "shared.py").write_text(text.replace("random.setstate(", "id("))
    found = {each.promise: each.holds for each in check(f"{tmp_path}/game.py:Game", 4)}
    assert list(found.values()).count(True) == 10 and False not in found.values(), found
    broken = [each.said for each in check(f"{tmp_path}/shared.py:Game", 4) if each.holds is False]
    assert "[roll] is not deterministic: '[GAME] rolled" in broken[0]
    env = contract.from_file(f"{tmp_path}/game.py:Game")()
    assert env.reset(3)["text"] == "[GAME] 3: say [roll]"
    assert env.step("SAY", None, "[wait]")["text"] == "\n[Player] [wait]\n[GAME] rolled nothing"
    for _ in range(3):
        last = env.step("SAY", None, "[roll]")
    assert last == {"text": "four turns", "reward": 0.75, "success": False, "terminated": True}


def test_plan_with_the_search_core_alone() -> None:
    printed = run("plan_with_forest")
    assert "from 1: go to 2\n" in printed and printed.endswith(" bytes\n")  # 1, 2, 5, 10, 20
