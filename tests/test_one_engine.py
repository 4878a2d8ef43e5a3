"""One engine for every role: policy, base and critic are an engine's weights with an adapter or without."""

from __future__ import annotations

import asyncio
import copy
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from architectures import load_plain, write_checkpoint
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer

from agentq.cli import main
from agentq.errors import ConfigError, ModelError
from agentq.learn.learner import Learner
from agentq.policies.adapters import adapter_weights, at_start, read_adapter
from agentq.policies.engine_names import check_same
from agentq.policies.protocol import Prompt, SampledAnswer, SampleRequest
from agentq.policies.transformers_engine import TransformersEngine
from agentq.policies.unadapted import Unadapted
from agentq.policies.weights import adapter_of
from agentq.recipes.ladder import DEMO_RUNGS, climb
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.settings import Demo
from agentq.store.run import RunStore
from agentq.types import Sample
from tests.learn_factory import sample
from tests.reads import made
from tests.recipes_factory import Quiet

RANK = 4
IDS = np.arange(5, 45, dtype=np.int32)


def adapted(checkpoint: Path, seed: int = 1) -> Learner:
    """A learner whose adapter changes every answer."""
    learner = Learner.from_checkpoint(checkpoint, learning_rate=1e-3, lora_rank=RANK)
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in learner.parameters.values():
            p.add_(torch.randn_like(p) * 0.3)
    return learner


def logps(model: Any, answer: SampledAnswer) -> np.ndarray:
    """Log-probabilities of an answer to IDS by the model's plain forward pass."""
    row = torch.from_numpy(np.concatenate([IDS, answer.token_ids]).astype(np.int64))[None]
    with torch.inference_mode():
        found = torch.log_softmax(model(row).logits[0].float(), dim=-1)[len(IDS) - 1 : -1]
    return found.gather(-1, row[0, len(IDS) :, None])[:, 0].numpy()


async def both(engine: Any, seeds: Sequence[int]) -> list[list[SampledAnswer]]:
    """Answers of the policy and of the base to the same prompt, asked for at the same time."""
    asked = [SampleRequest(Prompt([], IDS), 3, seed, 1.0, 12) for seed in seeds]
    return await asyncio.gather(*(each.sample(r) for r in asked for each in (engine, Unadapted(engine))))


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Lfm2"])  # written out, by transformers' modules, row by row
def test_policy_and_base_share_batches_and_each_gets_its_own_weights(family: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(family, tmp_path)
    engine, learner = TransformersEngine(checkpoint), adapted(checkpoint)
    base, steps = copy.deepcopy(engine.model), []
    engine.publish_adapter(adapter_weights(learner.model), RANK)
    assert engine.shares_columns == (family != "Lfm2")
    forward = engine._columns.forward

    def counted(rows: Sequence[Any]) -> Tensor:
        steps.append({growth.row.adapted for growth in rows})
        return forward(rows)

    engine._columns.forward = counted  # type: ignore[method-assign]
    for _ in range(2):  # then with cached prefixes
        answers = asyncio.run(both(engine, (1, 2)))
        for of_policy, of_base in zip(answers[::2], answers[1::2], strict=True):
            for answer in of_policy:
                np.testing.assert_allclose(answer.logps, logps(learner.model, answer), atol=2e-5)
                assert answer.version == 1
            for answer in of_base:
                np.testing.assert_allclose(answer.logps, logps(base, answer), atol=2e-5)
                assert answer.version == 0
            assert np.abs(logps(base, of_policy[0]) - of_policy[0].logps).max() > 1e-3
    assert {True, False} in steps


def test_a_published_adapter_replaces_the_one_before(base: Path, tmp_path: Path) -> None:
    engine = TransformersEngine(base)
    for number in (1, 2):
        learner = adapted(base, seed=number)
        learner.save(tmp_path / "adapter", adapters_only=True)
        assert engine.publish(tmp_path / "adapter") == number
        (answer,) = engine.generate([IDS], 1, seeds=[0], max_new_tokens=8)[0]
        np.testing.assert_allclose(answer.logps, logps(learner.model, answer), atol=2e-5)
    other = Learner.from_checkpoint(base, learning_rate=1e-3, lora_rank=2)
    with pytest.raises(ModelError, match="an adapter must have the shapes of the model's; got others in"):
        engine.publish_adapter(adapter_weights(other.model), 2)
    assert engine.version == 2


def moved(learner: Learner, items: list[Sample], start: np.ndarray, *, least: float, atol: float) -> np.ndarray:
    """The log-probabilities after a step, which moves the model; its start is still there."""
    learner.step_sft(items)
    now: np.ndarray = learner.recompute_logps(items)[0].logps
    assert np.abs(now - start).max() > least
    with at_start(learner.model):
        np.testing.assert_allclose(learner.recompute_logps(items)[0].logps, start, atol=atol)
    return now


def test_training_goes_on_with_an_adapter_and_remembers_its_start(base: Path, tmp_path: Path) -> None:
    first = adapted(base)
    first.save(tmp_path / "first", adapters_only=True)
    learner = Learner.from_checkpoint(base, learning_rate=1e-2, lora_rank=RANK, adapter=tmp_path / "first")
    items = [sample([5, 6, 7], [8, 9, 3], [0.0] * 3)]
    start = first.recompute_logps(items)[0].logps
    np.testing.assert_allclose(learner.recompute_logps(items)[0].logps, start, atol=1e-6)
    now = moved(learner, items, start, least=1e-2, atol=1e-6)
    np.testing.assert_allclose(learner.recompute_logps(items)[0].logps, now, atol=1e-6)
    assert len(learner.parameters) == len(first.parameters)
    learner.save(tmp_path / "merged")
    merged = Learner.from_checkpoint(tmp_path / "merged", learning_rate=1e-3)
    np.testing.assert_allclose(merged.recompute_logps(items)[0].logps, now, atol=1e-5)
    learner.save(tmp_path / "second", adapters_only=True)
    weights, rank = read_adapter(tmp_path / "second")
    assert rank == RANK and weights.keys() == read_adapter(tmp_path / "first")[0].keys()
    assert sorted(file.name for file in (tmp_path / "second").iterdir() if file.is_dir()) == []


def from_peft(folder: Path, base: Path, **config: Any) -> Any:
    """The model that peft makes of an adapter of its own, which it writes into `folder`."""
    settings = {"r": RANK, "target_modules": "all-linear", "init_lora_weights": False, **config}
    torch.manual_seed(1)
    with warnings.catch_warnings(action="ignore"):
        made = get_peft_model(load_plain(base), LoraConfig(task_type="CAUSAL_LM", **settings))
        with torch.no_grad():
            for name, p in made.named_parameters():
                if "lora_" in name:
                    p.mul_(8)
        made.save_pretrained(folder)
        return PeftModel.from_pretrained(load_plain(base), folder).eval()


@pytest.mark.parametrize(("alpha", "rslora"), [(RANK, False), (3, False), (2 * RANK, False), (2 * RANK, True)])
def test_an_adapter_made_elsewhere_is_the_model_that_peft_makes_of_it(
    alpha: int, rslora: bool, base: Path, tmp_path: Path
) -> None:
    peft = from_peft(tmp_path / "theirs", base, lora_alpha=alpha, use_rslora=rslora)
    engine = TransformersEngine(base)
    engine.publish(tmp_path / "theirs")
    (answer,) = engine.generate([IDS], 1, seeds=[0], max_new_tokens=8)[0]
    start = logps(peft, answer)
    np.testing.assert_allclose(answer.logps, start, atol=2e-5)
    assert np.abs(start - logps(load_plain(base), answer)).max() > 1e-2  # the strength shows in this answer
    learner = Learner.from_checkpoint(base, learning_rate=1e-2, lora_rank=RANK, adapter=tmp_path / "theirs")
    items = [Sample(IDS, answer.token_ids, answer.logps)]
    np.testing.assert_allclose(learner.recompute_logps(items)[0].logps, start, atol=2e-5)
    now = moved(learner, items, start, least=1e-3, atol=2e-5)
    learner.save(tmp_path / "ours", adapters_only=True)
    with warnings.catch_warnings(action="ignore"):
        again = PeftModel.from_pretrained(load_plain(base), tmp_path / "ours")
    np.testing.assert_allclose(logps(again, answer), now, atol=2e-5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"use_dora": True}, "nothing else; got use_dora=True in"),
        ({"bias": "lora_only"}, "got bias='lora_only' in"),
        ({"modules_to_save": ["norm"]}, r"got modules_to_save=\['norm'\] in"),
        ({"rank_pattern": {"q_proj": 2}}, "got rank_pattern={'q_proj': 2} in"),
        ({"alpha_pattern": {"q_proj": 2}}, "got alpha_pattern={'q_proj': 2} in"),
        ({"init_lora_weights": "pissa"}, "got init_lora_weights='pissa' in"),
        ({"target_modules": ["q_proj", "v_proj"]}, "got others in .*train it with target_modules='all-linear'"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_an_adapter_that_is_more_or_less_than_ours_is_refused(
    config: dict[str, Any], message: str, base: Path, tmp_path: Path
) -> None:
    from_peft(tmp_path, base, **config)
    engine = TransformersEngine(base)
    for load in (
        engine.publish,
        lambda path: Learner.from_checkpoint(base, learning_rate=1e-2, lora_rank=RANK, adapter=path),
    ):
        with pytest.raises(ModelError, match=rf"(?s)^an adapter must .*{message}.*merge it into its model"):
            load(tmp_path)
    assert engine.version == 0


@pytest.mark.parametrize("start", ["gaussian", True, False])
def test_how_an_adapter_began_is_no_reason_to_refuse_it(start: str | bool, base: Path, tmp_path: Path) -> None:
    from_peft(tmp_path, base, init_lora_weights=start, lora_alpha=RANK)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "use_rslora"}))
    weights, rank = read_adapter(tmp_path)  # written before peft had the field
    theirs = load_file(tmp_path / "adapter_model.safetensors")
    assert rank == RANK and weights.keys() == theirs.keys()
    for name, w in weights.items():
        torch.testing.assert_close(w, theirs[name] * (0.5 if "lora_B" in name else 1.0), atol=0, rtol=0)


def test_an_adapter_as_the_base_is_sampled_from_and_not_trained(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = tmp_path / "adapter", "the base of training and of adapters must be a whole checkpoint; got an adapter"
    peft = from_peft(path, base, lora_alpha=RANK, target_modules=["q_proj"])
    AutoTokenizer.from_pretrained(base).save_pretrained(path)
    engine = TransformersEngine(path)
    (answer,) = engine.generate([IDS], 1, seeds=[0], max_new_tokens=8)[0]
    np.testing.assert_allclose(answer.logps, logps(peft, answer), atol=2e-5)
    for rank in (0, RANK):
        with pytest.raises(ModelError, match=f"{said}, {path}: merge it"):
            Learner.from_checkpoint(path, learning_rate=1e-2, lora_rank=rank)
        with pytest.raises(ModelError, match=f"{said}, a LlamaForCausalLM with one: merge it"):  # a name on the hub
            Learner(load_plain(path), learning_rate=1e-2, lora_rank=rank)
    adapted(base).save(tmp_path / "second", adapters_only=True)
    with pytest.raises(ModelError, match=said):
        engine.publish(tmp_path / "second")
    (again,) = engine.generate([IDS], 1, seeds=[0], max_new_tokens=8)[0]
    np.testing.assert_allclose(again.logps, answer.logps, atol=2e-5)  # the prompt is cached now
    before = sorted(tmp_path.iterdir())
    capsys.readouterr()
    assert main(["train", "rft", "--base", str(path), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"agentq: {said}, {path}: merge it into its model") and told.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def made_engines(monkeypatch: pytest.MonkeyPatch) -> list[str | Path]:
    """The models that engines are loaded for, in order."""
    made: list[str | Path] = []
    plain = TransformersEngine.__init__

    def counted(self: TransformersEngine, model: str | Path, **settings: Any) -> None:
        made.append(model)
        plain(self, model, **settings)

    monkeypatch.setattr(TransformersEngine, "__init__", counted)
    return made


def test_a_ladder_with_adapters_loads_the_base_once_to_sample(
    base: Path, tmp_path: Path, made_engines: list[str | Path]
) -> None:
    words = ["--run.num_tasks=1", "--run.num_rounds=1", "--rft.num_tasks=2", "--rft.attempts=2", "--eval.num_tasks=1"]
    words += ["--eval.num_iterations=2", "--search.num_iterations=2", "--search.num_proposals=2"]
    settings = made(Demo, [*words, "--train.lora_rank=2", "--pairs.threshold=0"])
    with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
        p = Pipeline(store, settings, base, Quiet())
        climb(p, settings, DEMO_RUNGS)
        assert made_engines == [base] and list(p.engines) == [base]
        rft, agent_q = (store.path / "checkpoints" / name for name in ("rft", "agent_q"))
        engine = p.engine(agent_q)
        (answer,) = asyncio.run(engine.sample(SampleRequest(Prompt([], IDS), 1, 0, 1.0, 8)))
        merged = TransformersEngine(agent_q)
        np.testing.assert_allclose(answer.logps, logps(merged.model, answer), atol=1e-4)
        p.close()
    assert adapter_of(rft).is_dir() and adapter_of(agent_q).is_dir()


def test_adapters_are_served_on_the_base_they_are_made_for(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Learner.from_checkpoint(base, learning_rate=1e-3).save(other)
    check_same(base, f"vllm:{base}")
    check_same(base, "http://127.0.0.1:8000/v1")
    with pytest.raises(ConfigError, match=r"run.engine must start with the base, .*, to serve its adapters; got vllm:"):
        check_same(base, f"vllm:{other}")


@pytest.mark.parametrize(
    ("critic", "more", "loaded"),
    [("none", [], 1), ("itself", [], 1), ("base", [], 1), ("base", ["--base=embedded"], 2)],
)
def test_a_search_loads_the_base_only_as_its_critic(
    critic: str, more: list[str], loaded: int, base: Path, tmp_path: Path, made_engines: list[str | Path]
) -> None:
    named = str(base) if critic == "itself" else critic
    sizes = ["--eval.num_tasks=1", "--eval.num_iterations=1", "--search.num_proposals=2"]
    words = ["eval", str(base), "--search", f"--critic.model={named}", *sizes, f"--out={tmp_path / 'run'}", "--json"]
    assert main([*words, *more, "--run.executor=inline"]) == 0 and len(made_engines) == loaded
