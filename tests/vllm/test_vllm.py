"""vLLM itself, in process and as a server, against transformers: one contract, one set of numbers."""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentq import envs
from agentq.agent.patterns import action_pattern
from agentq.agent.prompts import policy_messages
from agentq.errors import ConfigError, ModelError
from agentq.learn.learner import Learner
from agentq.policies.agreement import agreement, probe
from agentq.policies.continuous import ContinuousEngine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.protocol import Gives, Prompt, SampledAnswer, SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.unadapted import Unadapted
from agentq.policies.vllm_engine import VLLMEngine, check_arguments
from agentq.recipes import sft
from agentq.recipes.ladder import climb, rungs_of
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.recipe import Recipe, Round, agrees, collect_groups
from agentq.recipes.settings import OutcomeDpo
from agentq.searching.run import run_all
from agentq.searching.tree import SearchSettings, TreeSearch
from agentq.store.records import TreeRecord
from agentq.store.run import RunStore
from agentq.types import History, Observation, Sample, StopReason
from tests.reads import made
from tests.recipes_factory import Quiet

IDS = np.random.default_rng(0).integers(5, 200, 300).astype(np.int32)  # nine of vLLM's blocks and more
NEAR = 1e-5


def ask(engine: Any, ids: np.ndarray = IDS, **settings: Any) -> list[SampledAnswer]:
    request = SampleRequest(Prompt([], ids), **{"k": 4, "seed": 3, "max_new_tokens": 16, **settings})
    return asyncio.run(engine.sample(request))


def gap(samples: list[SampledAnswer], model: Any, ids: np.ndarray = IDS) -> float:
    """The largest difference from the plain forward pass."""
    gaps = []
    for s in samples:
        whole = torch.from_numpy(np.concatenate([ids, s.token_ids]).astype(np.int64))[None]
        with torch.inference_mode():
            logps = torch.log_softmax(model(whole).logits[0].float(), dim=-1)[len(ids) - 1 : -1]
        gaps.append(np.abs(logps.gather(-1, whole[0, len(ids) :, None])[:, 0].numpy() - s.logps).max())
    return float(max(gaps))


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(checkpoint).eval()


@pytest.fixture(scope="module")
def learner(checkpoint: Path) -> Learner:
    """Other weights than the checkpoint's: adapters with values of their own."""
    learner = Learner.from_checkpoint(checkpoint, learning_rate=1e-3, lora_rank=4)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in learner.parameters.values():
            p.add_(torch.randn_like(p) * 0.2)
    return learner


def test_what_it_gives(engine: ContinuousEngine) -> None:
    assert engine.gives & ~Gives.BASE == Gives.TOKEN_IDS | Gives.LOGPS | Gives.SEEDS | Gives.PATTERNS | Gives.LETTERS
    assert engine.renderer is not None and engine.renderer.context_tokens == 2048


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_logps_are_transformers_at_temperature_1(engine: ContinuousEngine, model: Any, temperature: float) -> None:
    samples = ask(engine, temperature=temperature)
    assert [s.version for s in samples] == [engine.version] * 4
    assert gap(samples, model) < NEAR


def test_greedy_is_transformers(engine: ContinuousEngine, checkpoint: Path) -> None:
    ours = ask(TransformersEngine(checkpoint), temperature=0.0)
    for a, b in zip(ask(engine, temperature=0.0), ours, strict=True):
        assert (a.text, a.token_ids.tolist(), a.stop_reason) == (b.text, b.token_ids.tolist(), b.stop_reason)


def test_letters_have_transformers_logps_up_to_a_constant(engine: ContinuousEngine, checkpoint: Path) -> None:
    prompt = engine.render(History("book", Observation("link Blue [3]")), policy_messages, max_new_tokens=1)
    request = SampleRequest(prompt, temperature=0.0, max_new_tokens=1, letters="ABCDE")
    told = [asyncio.run(each.sample(request))[0].letter_logps for each in (engine, TransformersEngine(checkpoint))]
    assert np.ptp(np.subtract(*told)) < NEAR


def test_k_samples_follow_from_the_seed(engine: ContinuousEngine) -> None:
    first, again, other = (
        [s.token_ids.tolist() for s in ask(engine, temperature=2.0, **more)] for more in ({}, {}, {"seed": 4000})
    )
    assert first == again and len({tuple(ids) for ids in first}) == 4
    assert first != other


def test_more_prompts_than_are_read_at_once(engine: ContinuousEngine, model: Any) -> None:
    """A seeded prompt that is read in parts would end vLLM on a CPU."""

    async def every() -> list[list[SampledAnswer]]:
        prompts = [Prompt([], np.roll(np.tile(IDS, 2), n)) for n in range(12)]
        return await asyncio.gather(*(engine.sample(SampleRequest(p, 2, n, 1.0, 8)) for n, p in enumerate(prompts)))

    for n, samples in enumerate(asyncio.run(every())):
        assert gap(samples, model, np.roll(np.tile(IDS, 2), n)) < NEAR


def test_an_answer_ends_with_the_end_token_or_says_length(engine: ContinuousEngine) -> None:
    assert engine.renderer is not None
    (end,) = engine.renderer.end_ids
    prompt = engine.render(History("book", Observation("link Blue [3]")), policy_messages, max_new_tokens=60)
    samples = [s for n in (1, 60) for s in ask(engine, prompt.ids, max_new_tokens=n)]
    assert {s.stop_reason for s in samples} == {StopReason.EOS, StopReason.LENGTH}
    for s in samples:
        assert (s.token_ids[-1] == end) == (s.stop_reason is StopReason.EOS) and end not in s.token_ids[:-1]


def test_known_prefixes_are_not_computed_again(engine: ContinuousEngine) -> None:
    ids = np.concatenate([IDS[:200], np.arange(5, 105, dtype=np.int32)])
    ask(engine, IDS, role="one")
    ask(engine, ids, role="two")
    assert engine.usage.roles["two"].prompt_tokens == 300 and engine.usage.roles["two"].cached_tokens >= 160
    assert engine.usage.roles["two"].generated_tokens > 0
    if isinstance(engine, VLLMEngine):  # samples that find one another's prompt do not count; a server counts them
        ask(engine, IDS[::-1].copy(), role="new")
        assert engine.usage.roles["new"].cached_tokens == 0


def test_agreement_with_a_learner(engine: ContinuousEngine, checkpoint: Path, learner: Learner) -> None:
    samples = asyncio.run(probe(engine, [Prompt([], IDS[: 40 * n]) for n in (1, 3, 6)], k=2))
    same = agreement(samples, Learner.from_checkpoint(checkpoint, learning_rate=1e-3).recompute_logps)
    assert same.mean <= same.max < NEAR and same.num_tokens == sum(len(s.token_ids) for s in samples)
    assert agreement(samples, learner.recompute_logps).mean > 0.01


def test_published_weights_are_served_without_stale_prefixes(
    engine: ContinuousEngine, model: Any, learner: Learner, tmp_path: Path
) -> None:
    """Prefixes computed with the weights of before are off by far more than rounding."""
    before = engine.version
    assert gap(ask(engine), model) < NEAR
    learner.save(tmp_path / "new")
    assert engine.publish(tmp_path / "new") == before + 1
    samples = ask(engine)
    assert [s.version for s in samples] == [before + 1] * 4
    assert gap(samples, learner.merged()) < NEAR and gap(samples, model) > 0.01


@pytest.mark.parametrize("where", ["file", "config"])
def test_what_cannot_be_published_changes_nothing(
    engine: ContinuousEngine, model: Any, learner: Learner, tmp_path: Path, where: str
) -> None:
    """`config`: files that agentq's own check lets pass, and vLLM does not."""
    before, samples = engine.version, ask(engine)
    learner.save(tmp_path / "broken")
    if where == "file":
        file = tmp_path / "broken" / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
    else:
        index = tmp_path / "broken" / "model.safetensors.index.json"
        (tmp_path / "broken" / "model.safetensors").rename(tmp_path / "broken" / "other.safetensors")
        index.write_text("{}")
    with pytest.raises(ModelError, match=f"version {before} stays"):
        engine.publish(tmp_path / "broken")
    again = ask(engine)
    assert [s.token_ids.tolist() for s in again] == [s.token_ids.tolist() for s in samples]
    assert gap(again, model) < NEAR and engine.version == before


def test_the_base_answers_beside_the_policy(
    engine: ContinuousEngine, model: Any, learner: Learner, tmp_path: Path
) -> None:
    """Requests of both at the same time; the critic that is the base asks so. On a CPU vLLM cannot, and says so."""
    learner.save(tmp_path / "adapter", adapters_only=True)
    if isinstance(engine, VLLMEngine):
        engine.sleep()  # does nothing on a CPU
    engine.publish(tmp_path / "adapter")

    if Gives.BASE not in engine.gives:
        assert not torch.cuda.is_available()
        return

    async def both() -> list[list[SampledAnswer]]:
        asked = SampleRequest(Prompt([], IDS), 3, 5, 1.0, 12)
        return await asyncio.gather(*(each.sample(asked) for each in (engine, Unadapted(engine)) * 3))

    answers = asyncio.run(both())
    for of_policy, of_base in zip(answers[::2], answers[1::2], strict=True):
        assert gap(of_policy, learner.merged()) < NEAR and gap(of_base, model) < NEAR
        assert gap(of_policy, model) > 0.01
        assert {s.version for s in of_base} == {0} and {s.version for s in of_policy} == {engine.version}


def test_an_answer_stops_at_a_text(engine: ContinuousEngine) -> None:
    warm = {"k": 1, "max_new_tokens": 24, "temperature": 2.0}
    (free,) = ask(engine, **warm)
    stop = free.text[len(free.text) // 2 :][:2]
    (cut,) = ask(engine, **warm, stop=(stop,))
    assert cut.text == free.text[: free.text.index(stop)] and cut.stop_reason is StopReason.EOS
    assert cut.token_ids.tolist() == free.token_ids[: len(cut.token_ids)].tolist()


def test_adapters_are_published_and_taken_off(
    engine: ContinuousEngine, model: Any, learner: Learner, checkpoint: Path, tmp_path: Path
) -> None:
    learner.save(tmp_path / "adapter", adapters_only=True)
    engine.publish(tmp_path / "adapter")
    assert gap(ask(engine), learner.merged()) < NEAR
    shutil.copytree(tmp_path / "adapter", tmp_path / "broken")
    file = tmp_path / "broken" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="stays"):
        engine.publish(tmp_path / "broken")
    assert gap(ask(engine), learner.merged()) < NEAR
    engine.publish(checkpoint)
    assert gap(ask(engine), model) < NEAR


def test_training_samples_from_a_server_that_agrees_with_the_learner(
    server: Any, checkpoint: Path, tmp_path: Path
) -> None:
    words = [
        *("--run.num_rounds=2", "--run.num_tasks=2", "--run.group_size=2", "--eval.num_tasks=1"),
        *("--eval.measure_base=false", f"--run.engine={server.url}", "--train.learning_rate=0.01"),
    ]

    def credit(r: Round[OutcomeDpo]) -> list[Sample]:
        agrees(r, r.settings.train.logp_tolerance)
        return sft.credit(r)

    every, settings = Recipe("all", OutcomeDpo, collect_groups, credit, sft.loss), made(OutcomeDpo, words)
    with (
        RunStore.open(tmp_path / "run", settings.to_dict()) as store,
        closing(Pipeline(store, settings, checkpoint, Quiet())) as p,
    ):
        climb(p, settings, rungs_of(every, settings))
        lines = [line for line in store.metrics() if line["stage"] == "all/agreement"]
        rounds = [list(store.trajectories(f"all/round{n}/collect")) for n in (1, 2)]
    assert len(lines) == 2 and all(line["logp_difference/max"] < 10 * NEAR for line in lines)
    assert [{s.proposal.policy_version for t in some for s in t.steps} for some in rounds] == [{1}, {2}]
    with closing(OpenAIEngine(server.url)) as engine:
        engine.publish(checkpoint)


def searched(engine: Any, on_done: Any = lambda trees: None) -> list[TreeRecord]:
    settings, trees = SearchSettings(num_iterations=3, num_proposals=3), list[TreeRecord]()
    policy = ModelPolicy(engine, max_new_tokens=48)

    def search(task: Any) -> Any:
        return TreeSearch(envs.make("booking"), task, policy, settings).run()

    def keep(tree: TreeRecord) -> None:
        trees.append(tree)
        on_done(trees)

    run_all(envs.tasks("booking", "train", 4), search, in_flight=2, on_done=keep)
    return sorted(trees, key=lambda tree: tree.task.seed)


def test_a_server_without_its_tokenizer_here_gives_text(server: Any, checkpoint: Path) -> None:
    server.path.unlink()
    try:
        engine = OpenAIEngine(server.url)
    finally:
        server.path.symlink_to(checkpoint)
    assert engine.gives & ~Gives.SEEDS == Gives.LETTERS and engine.renderer is None
    trees = searched(engine)
    proposals = [p for tree in trees for p in tree.proposal if p is not None]
    assert proposals and all(p.action.text and p.token_ids.size == 0 for p in proposals)
    engine.close()


def test_a_search_survives_the_server(server: Any, learner: Learner, tmp_path: Path) -> None:
    """Killed after the first tree and started again: the same trees, sampled with the published weights."""
    learner.save(tmp_path / "new")
    engine = OpenAIEngine(server.url, patience_s=3600.0)
    engine.publish(tmp_path / "new")
    clean = searched(engine)

    def kill(trees: list[TreeRecord]) -> None:
        if len(trees) == 1:
            server.kill()
            server.start()

    found = searched(engine, kill)
    for a, b in zip(clean, found, strict=True):
        assert a.parent.tolist() == b.parent.tolist() and a.visit_count.tolist() == b.visit_count.tolist()
        for p, q in zip(a.proposal[1:], b.proposal[1:], strict=True):
            assert p is not None and q is not None and p.action.text == q.action.text and q.policy_version == 1
            np.testing.assert_allclose(p.logps, q.logps, atol=NEAR)
    engine.close()


def test_answers_keep_to_a_pattern(engine: ContinuousEngine) -> None:
    page = "heading Tables\nlink Home [1]\ntextbox Name [2]\ncombobox Party [3]: 2\nbutton Find [12]"
    history = History("book", Observation(page), ("COMMANDS: CLICK [1]",))
    pattern = action_pattern(history)
    prompt = engine.render(history, policy_messages, max_new_tokens=200)
    ask = SampleRequest(prompt, 8, 3, 1.5, 200, pattern=pattern)
    ended = [sample for sample in asyncio.run(engine.sample(ask)) if sample.stop_reason is StopReason.EOS]
    assert ended and all(re.fullmatch(pattern, sample.text) for sample in ended)
    assert all(len(sample.token_ids) == len(sample.logps) == 0 for sample in ended)
    free = asyncio.run(engine.sample(SampleRequest(prompt, 8, 3, 1.5, 200)))
    assert not all(re.fullmatch(pattern, sample.text) for sample in free)


def test_unknown_arguments_are_refused() -> None:
    check_arguments({"tensor_parallel_size": 2, "gpu_memory_utilization": 0.5, "logprobs_mode": "raw_logprobs"})
    with pytest.raises(ConfigError, match=r"vllm\.max_model_length must be .*; did you mean 'max_model_len'"):
        check_arguments({"max_model_length": 2048})
