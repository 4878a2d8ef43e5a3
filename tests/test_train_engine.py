"""Training whose samples come from elsewhere: published weights, agreement with the learner, importance weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from agentq.agent.prompts import policy_messages
from agentq.config import Compared
from agentq.errors import ConfigError, ModelError
from agentq.learn.learner import Learner
from agentq.policies.engine_names import embedded_base
from agentq.policies.weights import adapter_of
from agentq.recipes import agent_q, policy_gradient, sft
from agentq.recipes.ladder import climb, rungs_of
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Recipe, Round, agrees, collect_groups
from agentq.recipes.resources import Resources
from agentq.recipes.settings import AgentQ, OutcomeDpo, PolicyGradient
from agentq.store.run import RunStore
from agentq.types import CreditedTrajectory, History, Observation, PreferencePair, Sample
from tests.learn_factory import sample, tiny_llama
from tests.openai_factory import FakeOpenAI, fake_openai
from tests.reads import made
from tests.recipes_factory import Quiet
from tests.train_factory import TINY, run


def credit(r: Round[OutcomeDpo]) -> list[Sample]:
    """As SFT's, of sampled actions; the sampler is compared with the learner."""
    agrees(r, r.settings.train.logp_tolerance)
    return sft.credit(r)


ALL = Recipe("all", OutcomeDpo, collect_groups, credit, sft.loss)
WORDS = (
    *("--run.num_rounds=2", "--run.num_tasks=1", "--run.group_size=2", "--eval.num_tasks=1"),
    *("--eval.measure_base=false", "--train.batch_size=4"),
)


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with fake_openai(tokenizer=AutoTokenizer.from_pretrained(embedded_base()), root=embedded_base()) as fake:
        yield fake


def trained(engine: str, out: Path, *words: str) -> Path:
    """The checkpoint of a run of `ALL` from the embedded base."""
    settings = made(OutcomeDpo, [*WORDS, f"--run.engine={engine}", *words])
    with RunStore.open(out, settings.to_dict()) as store:
        p = Pipeline(store, settings, embedded_base(), Quiet())
        try:
            climb(p, settings, rungs_of(ALL, settings))
        finally:
            p.close()
    return out / "checkpoints" / "all"


def test_each_round_samples_from_the_engine_with_the_weights_before_it(server: FakeOpenAI, tmp_path: Path) -> None:
    out = trained(server.url, tmp_path / "run")
    assert server.loaded == [str(out.with_name("all.served") / f"round{n}") for n in (1, 2)] + [str(out)]
    assert server.weights == server.cached == str(out) and not out.with_name("all.served").exists()
    with RunStore.read(tmp_path / "run") as store:
        for number in (1, 2):
            steps = [step for t in store.trajectories(f"all/round{number}/collect") for step in t.steps]
            assert steps and {step.proposal.policy_version for step in steps} == {number}
        lines = [line for line in store.metrics() if line["stage"] == "all/agreement"]
        (held_out,) = store.trajectories("all/eval")
        assert {step.proposal.policy_version for step in held_out.steps} == {3}
        rounds = [line for line in store.metrics() if line["stage"] == "all"]
    assert [(line["step"], line["recomputed"]) for line in lines] == [(1, 1.0), (2, 1.0)]
    assert all(line["logp_difference/max"] >= line["logp_difference/mean"] > 0.1 for line in lines)  # made up there
    assert all(line["policy/requests"] > 0 and line["policy/prompt_tokens"] > 0 for line in rounds)
    assert "logp_difference/mean" in (Path(tmp_path / "run" / "metrics.jsonl").read_text())
    sizes = [(path / "model.safetensors").read_bytes() for path in (out, embedded_base())]
    assert sizes[0] != sizes[1]


@pytest.mark.rest
def test_a_run_that_goes_on_finds_its_weights_served(server: FakeOpenAI, tmp_path: Path) -> None:
    out = trained(server.url, tmp_path / "run")
    server.kill()
    server.start()
    settings = made(OutcomeDpo, [f"--run.engine={server.url}"])
    with RunStore.read(tmp_path / "run") as store:
        p = Pipeline(store, settings, embedded_base(), Quiet())
        assert p.engine(out).version == 1 and server.weights == str(out)
        p.close()


@pytest.mark.rest
def test_adapters_are_served_as_adapters(server: FakeOpenAI, tmp_path: Path) -> None:
    server.device = "cpu"  # where weights with the embedding for a head cannot be exchanged
    out = trained(server.url, tmp_path / "run", "--train.lora_rank=2")
    assert list(server.adapters.values()) == [str(adapter_of(out))] and server.loaded == []
    with pytest.raises(ModelError, match="must have a separate output head"):
        trained(server.url, tmp_path / "whole")


@pytest.mark.parametrize("several", [False, True])
def test_prompts_of_a_server_fit_the_learners_context(several: bool, server: FakeOpenAI) -> None:
    # The server takes 2,048 tokens, the base 1,024. A history too long for that loses its oldest actions.
    history = History("book", Observation("link Blue [3]"), tuple(f"CLICK [{i}]" for i in range(600)))
    name = f"{server.url},{server.url}/" if several else server.url
    for words, most in (([], 1024), (["--model.context=700"], 700)):
        resources = Resources(made(OutcomeDpo, [f"--run.engine={name}", *words]), embedded_base())
        prompt = resources.sampler().render(history, policy_messages, max_new_tokens=96)
        resources.close()
        assert most - 196 < len(prompt.ids) <= most - 96


def test_what_cannot_be_trained_with_is_refused(tmp_path: Path) -> None:
    with fake_openai() as text, pytest.raises(ConfigError, match=r"run\.engine must return token ids and log-prob"):
        trained(text.url, tmp_path / "text")
    with pytest.raises(ConfigError, match=r"run\.engine must be vllm:PATH or a vLLM server's URL; got some/path"):
        trained("some/path", tmp_path / "path")


@pytest.mark.parametrize(("tolerance", "recomputed"), [(0.0, True), (0.01, False)])
def test_the_samplers_logps_stand_where_they_are_near(
    tolerance: float, recomputed: bool, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    recompute = Learner.recompute_logps

    def counted(self: Learner, samples: Any) -> list[Sample]:
        asked.append(len(samples))
        return recompute(self, samples)

    monkeypatch.setattr(Learner, "recompute_logps", counted)
    run("grpo", base, tmp_path / "run", [*TINY, f"--train.logp_tolerance={tolerance}"])
    with RunStore.read(tmp_path / "run") as store:
        (line,) = [line for line in store.metrics() if line["stage"] == "grpo/agreement"]
        first = next(line for line in store.metrics() if line["stage"] == "grpo/learn")
    assert line["recomputed"] == recomputed and 0 < line["logp_difference/mean"] < 1e-4
    assert len(asked) == 1 + recomputed and 0 < asked[0] <= 32
    assert abs(first["ratio"] - 1) < 1e-4 and (first["approx_kl"] < 1e-12) == recomputed  # teachers' are a little off


@pytest.mark.parametrize("known", [True, False])
def test_a_reference_by_the_sampler_must_be_known(known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expert's action has no log-probability of the sampler's."""
    learner, told = Learner(tiny_llama(), learning_rate=1e-3), -1.0 if known else float("nan")
    pair = PreferencePair((sample([5, 6], [8, 3], [told, told]),), (sample([5, 6], [9, 3], [-1.0, -1.0]),), 1.0)
    with RunStore.open(tmp_path / "run", {}) as store:
        settings = AgentQ()
        r = Round(Pipeline(store, settings, "base", Quiet()), settings, "agent_q", 1, tmp_path, tmp_path, learner)
        monkeypatch.setattr(agent_q, "agrees", lambda r, tolerance: True)
        (found,) = agent_q.with_learners_reference(r, [pair])
    assert isinstance(found, PreferencePair) and (found.rejected[0].logps.tolist() == [-1.0, -1.0]) == known
    assert np.isfinite(found.chosen[0].logps).all()


@pytest.mark.parametrize(("apart", "weight"), [(np.log(3.0), 2.0), (0.0, 1.0), (-np.log(4.0), 0.25)])
def test_importance_weights_are_truncated(apart: float, weight: float) -> None:
    """The learner's log-probabilities are `apart` above the sampler's: w = min(exp(apart), 2), and the loss is -w A."""
    learner = Learner(tiny_llama(), learning_rate=1e-9)
    capped = PolicyGradient(policy_gradient=Compared(importance_cap=2))
    turns = (sample([5, 6, 7], [8, 9, 3], [0.0] * 3), sample([5, 6, 8], [10, 3], [0.0] * 2))
    near = [Sample(s.prompt_ids, s.token_ids, s.logps - apart) for s in learner.recompute_logps(turns)]
    (item,) = policy_gradient.with_old_logps(learner, [CreditedTrajectory(tuple(near), np.ones(2))])
    step = policy_gradient.policy_gradient()
    metrics = step(learner, [item], capped)
    assert metrics["loss"] == pytest.approx(-weight, rel=1e-4)
    assert metrics["importance_weight"] == pytest.approx(weight, rel=1e-4)
    plain = step(learner, [item], PolicyGradient())
    assert plain["loss"] == pytest.approx(-1.0, rel=1e-4) and "importance_weight" not in plain
    replayed = step(learner, [CreditedTrajectory(item.samples, item.advantages)], capped)
    assert replayed["importance_weight"] == pytest.approx(1.0, rel=1e-4)  # its old ones are the sampler's
