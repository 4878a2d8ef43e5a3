"""The same numbers on a GPU as on the CPU: engine, critic's letters, learner, the base's training, memory.

`pytest -m gpu` runs what needs a GPU; without that word each test runs on the CPU.
"""

from __future__ import annotations

import asyncio
import gc
import math
from pathlib import Path

import gpu_learner
import gpu_parts
import numpy as np
import pytest
import torch
from architectures import load_plain, plain_logps, sampled, worst
from gpu import TOLERANCE
from learner_workload import QUICK, SIZES, model, preferences

from agentq.agent.prompts import policy_messages
from agentq.learn.learner import Learner
from agentq.model_settings import ModelSettings
from agentq.policies.adapters import adapter_weights
from agentq.policies.agreement import agreement
from agentq.policies.engine_names import make_engine
from agentq.policies.protocol import SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
from agentq.recipes.ladder import climb, rungs_of
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import AgentQ
from agentq.store.run import RunStore
from agentq.types import History, Observation, PreferencePair, Sample
from tests.reads import made
from tests.recipes_factory import Quiet
from tests.train_factory import recipe_of

NEAR = {"cpu": 1e-5, "cuda": 2e-3}  # nats, float32
ROUNDED = 0.05  # nats per token on average, bfloat16

device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def as_samples(engine: TransformersEngine, prompts: list[np.ndarray]) -> list[Sample]:
    answers = engine.generate(prompts, 3, seeds=range(len(prompts)), max_new_tokens=12)
    return [Sample(p, s.token_ids, s.logps) for p, some in zip(prompts, answers, strict=True) for s in some]


def some_prompts() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(4, 200, n).astype(np.int32) for n in (12, 70, 130)]


@device
def test_the_engine_gives_the_models_own_log_probabilities(base: Path, device: str) -> None:
    samples = sampled(TransformersEngine(base, device=device, dtype=torch.float32))
    assert worst([s.logps for s in samples], plain_logps(load_plain(base), samples)) < NEAR[device]


@device
def test_greedy_answers_are_those_of_the_cpu(base: Path, device: str) -> None:
    answers = [
        TransformersEngine(base, device=where, dtype=torch.float32).generate(
            some_prompts(), 1, seeds=[0] * 3, temperature=0.0, max_new_tokens=24
        )
        for where in (device, "cpu")
    ]
    for (found,), (want,) in zip(*answers, strict=True):
        assert found.token_ids.tolist() == want.token_ids.tolist()


@device
def test_engine_and_learner_agree_in_bfloat16(base: Path, device: str) -> None:
    samples = as_samples(TransformersEngine(base, device=device, dtype=torch.bfloat16), some_prompts())
    settings = {"device": device, "dtype": torch.bfloat16, "learning_rate": 1e-3}
    assert agreement(samples, Learner.from_checkpoint(base, **settings).recompute_logps).mean < ROUNDED


@device
def test_an_adapter_changes_the_policy_and_not_the_base(base: Path, device: str) -> None:
    learner = Learner.from_checkpoint(base, device=device, learning_rate=1e-3, lora_rank=4)
    with torch.no_grad():
        for p in learner.parameters.values():
            p.add_(torch.randn_like(p) * 0.3)
    engine = TransformersEngine(base, device=device, dtype=torch.float32)
    before = as_samples(engine, some_prompts())
    engine.publish_adapter(adapter_weights(learner.model), 4)
    after = as_samples(engine, some_prompts())
    assert agreement(after, learner.recompute_logps).max < NEAR[device]
    assert agreement(before, learner.recompute_logps).mean > 0.01


@device
def test_letters_have_the_cpus_log_probabilities(base: Path, device: str) -> None:
    told = []
    for where in (device, "cpu"):
        engine = TransformersEngine(base, device=where, dtype=torch.float32)
        prompt = engine.render(History("book", Observation("link Blue [3]")), policy_messages, max_new_tokens=1)
        asked = SampleRequest(prompt, temperature=0.0, max_new_tokens=1, letters="ABCDE")
        told.append(asyncio.run(engine.sample(asked))[0].letter_logps)
    assert len(told[0]) == 5 and np.abs(np.subtract(*told)).max() < NEAR[device]


@pytest.mark.parametrize(  # without a GPU, test_learn_batch.py is the quick one
    "device", [pytest.param("cpu", marks=pytest.mark.rest), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_packed_gradients_are_those_of_one_item_at_a_time(device: str) -> None:
    for name, apart in gpu_learner.compare(device).items():
        assert apart < TOLERANCE[device], name


def pairs_of() -> list[PreferencePair]:
    return preferences(QUICK["C"], SIZES["1M"]["vocab_size"])


def stepped(where: str, *, bf16: bool = False, again: bool = False) -> tuple[float, torch.Tensor]:
    """Loss and gradient of a step."""
    learner = Learner(
        model("1M", initializer_range=0.1),
        learning_rate=1e-3,
        max_grad_norm=1e9,
        device=where,
        bf16=bf16,
        gradient_checkpointing=again,
    )
    loss = learner.step_dpo(pairs_of(), beta=0.1)["loss"]
    grads = [p.grad.flatten().float().cpu() for p in learner.parameters.values() if p.grad is not None]
    return loss, torch.cat(grads)


@device
@pytest.mark.parametrize(("bf16", "again", "near"), [(False, False, 5e-3), (True, False, 0.15), (True, True, 0.15)])
def test_a_step_has_the_cpus_gradient(device: str, bf16: bool, again: bool, near: float) -> None:
    loss, want = stepped("cpu")
    found_loss, found = stepped(device, bf16=bf16, again=again)
    assert float((found - want).norm() / want.norm()) < near and math.isclose(found_loss, loss, rel_tol=near)


@device
def test_the_base_trains_as_on_the_cpu(device: str) -> None:
    found = gpu_parts._base_differences(device)
    assert found["loss"] < 0.01 and found["gradient"] < 0.05


@device
def test_settings_of_a_model_reach_it(base: Path, device: str) -> None:
    settings = ModelSettings(devices=device, dtype="bfloat16", attention="eager", context=256, threads=1)
    engine = make_engine(base, settings)
    assert isinstance(engine, TransformersEngine) and engine.renderer.context_tokens == 256
    told = engine.told
    assert (told["device"].split(":")[0], told["dtype"], told["attention"]) == (device, "bfloat16", "eager")
    assert ("gpu" in told) == (device == "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("rank", [0, 4])
def test_a_stage_gives_the_learners_memory_back(base: Path, tmp_path: Path, rank: int) -> None:
    words = ["--run.num_rounds=2", "--run.num_tasks=2", "--eval.num_tasks=1", "--eval.measure_base=false"]
    words += ["--search.num_iterations=2", "--search.num_proposals=2", "--pairs.threshold=0", "--model.devices=cuda"]
    settings, recipe = made(AgentQ, [*words, f"--train.lora_rank={rank}"]), recipe_of("agent_q")
    before = memory()
    with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
        p = Pipeline(store, settings, base, Quiet())
        climb(p, settings, rungs_of(recipe, settings))
        p.close()
        del p
    assert memory() - before < 1 << 20


@pytest.mark.gpu
def test_attention_that_builds_a_kernel_for_each_length_is_off(base: Path) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    TransformersEngine(base, device="cuda")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def memory() -> int:
    """Bytes of tensors on the GPU. The matrix library keeps a workspace of 32 MiB for each thread that has used it."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    return torch.cuda.memory_allocated()
