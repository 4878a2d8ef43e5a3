"""What other trainers got wrong (docs/traps.md), where no test of a unit holds it: from prompt text to gradient."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from agentq import envs
from agentq.agent.prompts import policy_messages
from agentq.credit.episodes import credited
from agentq.errors import ConfigError, ModelError
from agentq.learn.batch import plan_step
from agentq.learn.learner import Learner
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.weights import fingerprint
from agentq.recipes.settings import RECIPES, OnPolicy
from agentq.report.page import CURVES
from agentq.store.run import RunStore
from agentq.types import (
    History,
    Observation,
    PreferencePair,
    Sample,
    Split,
    Step,
    StepResult,
    StopReason,
    Trajectory,
)
from tests.learn_factory import SIZES, plain_logps, sample, tiny_gpt2, tiny_llama, tiny_qwen
from tests.reads import keys, made
from tests.recipes_factory import tiny_checkpoint
from tests.train_factory import TINY, run
from tests.traps_factory import foreign_checkpoint

ROOT = Path(__file__).resolve().parents[1]
PAGE = Observation("OBSERVATION: link Blue Harbor [3]")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    return TransformersEngine(foreign_checkpoint(tmp_path_factory.mktemp("foreign")))


def test_every_trap_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "traps.md").read_text(), flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 27))
    for number, row in rows:
        named = re.findall(r"`(\w+)::(\w+)`", row)
        assert named, f"trap {number} names no test"
        for file, name in named:
            tree = ast.parse((ROOT / "tests" / f"{file}.py").read_text())
            found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
            assert name in found, f"trap {number} names {file}::{name}"


# 2: the ids that were sampled are the ids that are trained on


def episode(policy: ModelPolicy, seeds: list[int], actions: tuple[str, ...] = ()) -> Trajectory:
    """Some turns of a policy on one page."""
    steps = []
    for i, seed in enumerate(seeds):
        history = History("Action: cli", PAGE, (*actions, *(step.proposal.action.text for step in steps)))
        (proposal,) = asyncio.run(policy.propose(history, 1, seed=seed))
        steps.append(Step(PAGE, proposal, StepResult(PAGE, float(i), terminated=i + 1 == len(seeds))))
    return Trajectory(envs.task("shop", Split.TRAIN, seeds[0]), tuple(steps), 1.0, True)


def trained_on(samples: list[Sample]) -> list[tuple[list[int], list[int]]]:
    """(what is fed, its targets) of each sample of one step, as the learner's tensors have them."""
    (part,) = plan_step([(s,) for s in samples])
    (batch,) = part.batches
    assert batch.tree is not None
    found: dict[int, tuple[list[int], list[int]]] = {}
    for i, (row,) in zip(part.items, part.samples, strict=True):
        own = batch.samples == row
        ends = batch.predictors[batch.predicted_by[own]]
        end = torch.from_numpy(batch.tree.trie.subtree_end)
        last = int(ends.max())
        path = [k for k in range(last + 1) if k <= last < int(end[k])]
        found[i] = batch.input_ids[0, path].tolist(), batch.targets[own][batch.columns[own].argsort()].tolist()
    return [found[i] for i in range(len(samples))]


def test_training_ids_are_the_sampled_ids_though_the_tokenizer_would_write_them_otherwise(
    foreign: TransformersEngine, tmp_path: Path
) -> None:
    policy = ModelPolicy(foreign, max_new_tokens=8)
    episodes = [episode(policy, [seed, seed + 50]) for seed in range(4)]
    with RunStore.open(tmp_path / "run", {}) as store:
        for t in episodes:
            store.add_trajectory("x", f"{t.task.seed}/0", t)
        kept = list(store.trajectories("x"))
    items = credited(kept, np.arange(1.0, 9.0))
    proposals = [step.proposal for t in episodes for step in t.steps]
    found = trained_on([s for item in items for s in item.samples])
    assert found == [([*p.prompt_ids.tolist(), *p.token_ids[:-1].tolist()], p.token_ids.tolist()) for p in proposals]
    again = [
        foreign.encode_answer(foreign.renderer.decode(p.token_ids))[: len(p.token_ids)].tolist() for p in proposals
    ]
    assert again != [p.token_ids.tolist() for p in proposals]


@settings(max_examples=50)
@given(st.sampled_from(["Action: click the button", "COMMANDS: CLICK [3]"]), st.integers(1, 12))
def test_an_answer_is_tokenized_alone_wherever_a_text_is_cut(foreign: TransformersEngine, text: str, cut: int) -> None:
    whole = foreign.renderer.tokenizer(text, add_special_tokens=False)["input_ids"]
    apart = foreign.renderer.tokenizer(text[:cut], add_special_tokens=False)["input_ids"]
    proposal = ModelPolicy(foreign).write(History(text[:cut], PAGE), text[cut:])
    answer = proposal.token_ids.tolist()
    assert foreign.renderer.decode(proposal.token_ids) == text[cut:] and answer[-1] == 1 and 0 not in answer
    assert proposal.prompt_ids.tolist() == foreign.renderer.encode(policy_messages(History(text[:cut], PAGE))).tolist()
    assert len(whole) < len(apart) + len(answer) - 1  # together they would be other tokens


# 3: one beginning token


@pytest.mark.parametrize("template", [True, False])
def test_a_beginning_token_stands_once_and_first(template: bool, foreign: TransformersEngine, tmp_path: Path) -> None:
    engine = foreign if template else TransformersEngine(foreign_checkpoint(tmp_path, template=None))
    (step,) = episode(ModelPolicy(engine, max_new_tokens=4), [0]).steps
    written = ModelPolicy(engine).write(History("Action: cli", PAGE), "ck the button")
    for prompt in (step.proposal.prompt_ids, written.prompt_ids):
        assert np.flatnonzero(prompt == 0).tolist() == [0]
    assert 0 not in written.token_ids
    text = engine.renderer.tokenizer.decode(step.proposal.prompt_ids.tolist())
    assert text.startswith("<s><|system|>" if template else "<s>You are")


# 4: nothing is cut


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_a_sample_longer_than_the_context_is_refused_and_the_longest_is_not(make: Callable[[], Any]) -> None:
    learner = Learner(make(), learning_rate=1e-3)
    fits, too_long = sample([5] * 250, list(range(7))), sample([5] * 250, list(range(8)))
    assert learner.step_sft([fits])["num_tokens"] == 256
    before = {name: p.clone() for name, p in learner.parameters.items()}
    for call in (learner.step_sft, learner.recompute_logps):
        with pytest.raises(ModelError, match=r"must fit the model's context \(256 tokens\); got 257"):
            call([fits, too_long])
    assert all(torch.equal(p, before[name]) for name, p in learner.parameters.items()) and learner.step_count == 1


# 5: what the environment said is not learnt


@pytest.mark.parametrize("packed", [True, False])
def test_only_rows_that_predict_the_policys_own_tokens_get_a_gradient(packed: bool) -> None:
    learner = Learner(tiny_llama(), learning_rate=1e-3)
    learner.packed = packed
    # One conversation that is appended to: prompt 4, action 2, page 3, action 3.
    first = sample([5, 6, 7, 8], [9, 3], [-1.0] * 2)
    second = sample([5, 6, 7, 8, 9, 3, 10, 11, 12], [13, 14, 3], [-1.0] * 3)
    other = sample([5, 6, 7, 8], [15, 3], [-1.0] * 2)
    states: list[torch.Tensor] = []

    def keep(_: Any, __: Any, out: Any) -> None:
        out.last_hidden_state.retain_grad()
        states.append(out.last_hidden_state)

    learner.model.get_decoder().register_forward_hook(keep)
    learner.step_dpo([PreferencePair((first, second), (other,), 1.0)], beta=0.1)
    (hidden,) = states
    assert hidden.grad is not None
    moved = hidden.grad.norm(dim=-1) > 0
    # Packed: 5 6 7 [8 9] 3 and the page 10 11 [12 13 14], then 15, behind 8; else a row each, without the last token.
    apart = [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1], [0] * 8 + [1, 1, 1]]
    wanted = [[0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1]] if packed else apart
    assert [row[: len(own)].int().tolist() for row, own in zip(moved, wanted, strict=True)] == wanted
    assert int(moved.sum()) == sum(map(sum, wanted))


# 13: the density that was sampled from is the density that is trained


def test_recipes_with_ratios_have_no_temperature_and_no_grammar() -> None:
    for name, model in RECIPES.items():
        assert issubclass(model, OnPolicy) == ("search.temperature" not in keys(model)) or name == "sft"
        if issubclass(model, OnPolicy):
            with pytest.raises(ConfigError, match=f"run.constrained must be false for {name}"):
                made(model, ["--run.constrained=true"], command=f"train {name}")


def test_every_recipe_that_trains_by_advantages_is_on_policy() -> None:
    with_ratios = {name for name, model in RECIPES.items() if issubclass(model, OnPolicy)}
    assert with_ratios == set(RECIPES) - {"sft", "rft", "ei", "outcome_dpo", "agent_q", "step_agent_implicit"}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_logps_are_those_of_temperature_one_in_engine_and_learner(
    temperature: float, foreign: TransformersEngine
) -> None:
    prompts = [np.arange(5, 5 + n, dtype=np.int32) for n in (3, 17, 9)]
    out = foreign.generate(prompts, 2, seeds=range(3), temperature=temperature, max_new_tokens=12)
    samples = [Sample(p, g.token_ids, g.logps) for p, own in zip(prompts, out, strict=True) for g in own]
    learner = Learner(foreign.model, learning_rate=1e-3)
    for recorded, again in zip(samples, learner.recompute_logps(samples), strict=True):
        np.testing.assert_allclose(recorded.logps, again.logps, atol=2e-5)


def test_the_whole_distribution_is_sampled(foreign: TransformersEngine, tmp_path: Path) -> None:
    """E_pi[other / pi] = 1; it is the kept mass where only likely tokens are sampled."""
    other = TransformersEngine(foreign_checkpoint(tmp_path, seed=2))
    prompt = np.arange(5, 15, dtype=np.int32)
    ((*samples,),) = foreign.generate([prompt], 6000, seeds=[0], max_new_tokens=1)
    with torch.inference_mode():
        ids = torch.tensor(prompt.astype(np.int64))[None]
        logps, others = (torch.log_softmax(e.model(ids).logits[0, -1].double(), -1) for e in (foreign, other))
    exact = (others - logps).exp()
    ratios = np.array([float(others[s.token_ids[0]]) - s.logps[0] for s in samples])
    sd = float((logps.exp() @ exact.square() - 1).sqrt()) / 6000**0.5
    assert sd < 0.05
    assert abs(np.exp(ratios).mean() - 1) < 4 * sd
    assert (
        float(others.exp()[logps.topk(20).indices].sum()) < 0.1
    )  # the mean if only the likeliest 20 were sampled, but for its scale


# 15: padding


@pytest.mark.parametrize("gpt2", [False, True])
def test_what_is_sampled_beside_others_has_the_logps_it_has_alone(gpt2: bool, tmp_path: Path) -> None:
    engine = TransformersEngine(foreign_checkpoint(tmp_path, gpt2=gpt2))
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, 300, n).astype(np.int32) for n in (3, 40, 17, 90)]
    for prompt in prompts:
        prompt[1] = 1  # the pad token, which also ends, inside the text
    together = engine.generate(prompts, 2, seeds=range(4), max_new_tokens=6)
    for prompt, seed, found in zip(prompts, range(4), together, strict=True):
        (alone,) = engine.generate([prompt], 2, seeds=[seed], max_new_tokens=6)
        for a, b in zip(alone, found, strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            plain = plain_logps(engine.model, sample(prompt.tolist(), b.token_ids.tolist())).detach().numpy()
            np.testing.assert_allclose(b.logps, plain, atol=2e-5)


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen, tiny_gpt2])
@pytest.mark.parametrize("packed", [True, False])
def test_a_sample_has_the_logps_it_has_alone_also_with_the_pad_token_inside(
    make: Callable[[], Any], packed: bool
) -> None:
    learner = Learner(make(), learning_rate=1e-3)
    learner.packed = packed
    samples = [sample([3, 3, 0, 3], [3, 0, 3]), sample([4] * 30, [5, 3, 3]), sample([3], [3]), sample([0, 0], [0, 0])]
    for s, found in zip(samples, learner.recompute_logps(samples), strict=True):
        np.testing.assert_allclose(found.logps, plain_logps(learner.model, s).detach().numpy(), atol=2e-5)


# 18: the stop token


def test_the_stop_token_is_trained_on_when_sampled_and_never_added(foreign: TransformersEngine) -> None:
    out = foreign.generate([np.arange(5, 9, dtype=np.int32)], 60, seeds=[0], max_new_tokens=30)[0]
    found = trained_on([Sample(np.arange(5, 9, dtype=np.int32), g.token_ids, g.logps) for g in out])
    reasons = {g.stop_reason for g in out}
    assert reasons == {StopReason.EOS, StopReason.LENGTH}
    for g, (_, targets) in zip(out, found, strict=True):
        assert targets == g.token_ids.tolist()
        assert (targets[-1] == 1) == (g.stop_reason is StopReason.EOS) and 1 not in targets[:-1]


def test_an_action_that_ends_teaches_to_end_and_one_that_was_cut_off_does_not() -> None:
    stop, gains = 3, []
    for tokens in ([8, 9, stop], [8, 9]):
        learner = Learner(tiny_llama(tie_word_embeddings=False), learning_rate=1e-3)
        ends = sample([5, 6, 7], [8, 9, stop])
        before = learner.recompute_logps([ends])[0].logps[-1]
        for _ in range(5):
            learner.step_sft([sample([5, 6, 7], tokens)])
        gains.append(learner.recompute_logps([ends])[0].logps[-1] - before)
    assert gains[0] > 3 > 0.5 > gains[1]


# 19: log-probabilities of another model


def test_a_run_goes_on_only_with_the_base_that_it_began_with(tmp_path: Path) -> None:
    base = tiny_checkpoint(tmp_path / "base")
    run("sft", base, tmp_path / "run", TINY)
    run("sft", base.rename(tmp_path / "moved"), tmp_path / "run", TINY)
    learner = Learner.from_checkpoint(tmp_path / "moved", learning_rate=1e-3)
    learner.step_sft([sample([5], [6])])
    learner.save(tmp_path / "other")
    with pytest.raises(
        ConfigError, match=r"must go on with the base that it began with, .*base; got .*other, whose files"
    ):
        run("sft", tmp_path / "other", tmp_path / "run", TINY)


def test_a_fingerprint_tells_weights_tokenizers_and_templates_apart(tmp_path: Path) -> None:
    made = [
        foreign_checkpoint(tmp_path / "a"),
        foreign_checkpoint(tmp_path / "b", seed=1),
        foreign_checkpoint(tmp_path / "c", template="{{ messages }}"),
    ]
    assert len({fingerprint(path) for path in made}) == 3
    assert fingerprint(foreign_checkpoint(tmp_path / "again")) == fingerprint(made[0])
    (made[0] / "training.jsonl").write_text("{}\n")
    assert fingerprint(made[0]) == fingerprint(tmp_path / "again")
    assert fingerprint(Path("some/name")) != fingerprint(Path("some/other"))


# 20: what is packed


def tiny_sinks() -> Any:
    """Full attention with sinks: each head's softmax has one more term."""
    torch.manual_seed(0)
    sizes = {**SIZES, "num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 8}
    return GptOssForCausalLM(GptOssConfig(**sizes, layer_types=["full_attention"] * 2)).eval()


def tiny_mamba() -> Any:
    """Recurrent: no attention at all."""
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4, initializer_range=0.3)
    return MambaForCausalLM(config).eval()


def tiny_mixture() -> Any:
    """A mixture of experts; each token is routed alone."""
    torch.manual_seed(0)
    return MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)).eval()


@pytest.mark.parametrize(("make", "packed"), [(tiny_sinks, False), (tiny_mamba, False), (tiny_mixture, True)])
def test_a_model_is_packed_only_where_that_changes_nothing(make: Callable[[], Any], packed: bool) -> None:
    learner = Learner(make(), learning_rate=1e-3)
    assert learner.packed == packed
    prompt = [5, 6, 7, 8]
    samples = [sample(prompt, [9, 10, 3]), sample(prompt, [11, 3]), sample(prompt, [9, 10, 3]), sample([5], [6])]
    for s, found in zip(samples, learner.recompute_logps(samples), strict=True):
        np.testing.assert_allclose(found.logps, plain_logps(learner.model, s).detach().numpy(), atol=2e-5)


# 21: both sides


def test_both_sides_log_probabilities_are_reported() -> None:
    learner = Learner(tiny_llama(), learning_rate=1e-3)
    pairs = learner.recompute_reference(
        [PreferencePair((sample([5, 6], [7, 3]), sample([5, 8], [3])), (sample([5, 6], [9, 3]),), 1.0)]
    )
    want = [
        sum(float(plain_logps(learner.model, s).detach().sum()) for s in side)
        for side in (pairs[0].chosen, pairs[0].rejected)
    ]
    metrics = learner.step_dpo(pairs * 2, beta=0.1)
    assert [metrics["logps/chosen"], metrics["logps/rejected"]] == pytest.approx(want, abs=1e-4)
    assert {"logps/chosen", "logps/rejected"} <= set(CURVES)
