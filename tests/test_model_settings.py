"""The settings of models: devices, types, budgets, threads and memory reach every engine, learner and role."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agentq import envs
from agentq.agent.prompts import policy_messages
from agentq.cli import main
from agentq.config import Dpo, Train
from agentq.critics.ranker import LLMRanker
from agentq.errors import ConfigError
from agentq.learn.learner import Learner
from agentq.model_settings import CriticSettings, ModelSettings
from agentq.policies import llama, placement
from agentq.policies.engine_names import make_engine
from agentq.policies.placement import (
    only_devices,
    read_devices,
    training_devices,
    trains_off_mps,
    trains_where_it_samples,
    use_threads,
)
from agentq.policies.transformers_engine import TransformersEngine, load_checkpoint
from agentq.policies.vllm_engine import arguments_of, check_arguments, share_of
from agentq.recipes import here, memory, run
from agentq.recipes.learners import learner_of
from agentq.recipes.pipeline import Pipeline
from agentq.recipes.prompted import policy_of
from agentq.recipes.settings import RECIPES, AgentQ, EvalCommand, Training
from agentq.store.run import RunStore
from agentq.types import History, Observation
from tests.learn_factory import sample, tiny_llama
from tests.reads import made
from tests.recipes_factory import Quiet

HISTORY = History("book", Observation("link Blue [3]"))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight GPUs, each with 79 of 80 GiB free, and as much main memory."""
    monkeypatch.setattr(memory, "free_memory", lambda: 79 << 30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (79 << 30, 80 << 30))


def test_devices_are_named_as_people_name_them(gpus: None) -> None:
    assert read_devices("auto") == read_devices("cuda") == ("cuda:0",)
    assert read_devices("0-2,5") == ("cuda:0", "cuda:1", "cuda:2", "cuda:5") and read_devices("7") == ("cuda:7",)
    assert read_devices("cpu") == ("cpu",)
    with pytest.raises(ConfigError, match=r"model.devices must name devices of this machine, which has 8 CUDA .*'6-8'"):
        read_devices("6-8")
    with pytest.raises(ConfigError, match=r"train.devices must be auto, cpu, mps, cuda or numbers .* got 'gpu0'"):
        read_devices("gpu0", "train.devices")


def test_without_a_gpu_models_run_on_the_cpu(base: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert read_devices("auto") == ("cpu",)
    with pytest.raises(ConfigError, match="which has 0 CUDA devices; got '0'"):
        make_engine(base, ModelSettings(devices="0"))


@pytest.mark.parametrize(
    ("instruction", "dtype"),
    [("avx512_bf16", "auto"), ("amx_bf16", "auto"), ("bf16", "auto"), ("avx2", torch.float32)],
)
def test_the_type_on_a_cpu_is_the_checkpoints_where_it_multiplies_bfloat16(
    instruction: str, dtype: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False, instruction: True})
    assert placement.dtype_on("cpu", "auto") == dtype
    assert placement.dtype_on("cpu", "bfloat16") is torch.bfloat16


def test_the_type_on_a_gpu_is_bfloat16_unless_another_is_given() -> None:
    assert placement.dtype_on("cuda:0", "auto") is placement.dtype_on("mps", "auto") is torch.bfloat16
    assert placement.dtype_on("cuda:0", "float32") is torch.float32


@pytest.mark.parametrize(
    ("own", "most", "instruction", "dtype"),
    [
        (torch.float16, llama.SMALL, "amx_bf16", torch.float32),
        (torch.bfloat16, llama.SMALL, "amx_bf16", torch.float32),
        (torch.float16, 0, "amx_bf16", torch.bfloat16),
        (torch.float16, 0, "avx2", torch.float16),
        (torch.bfloat16, 0, "amx_bf16", torch.bfloat16),
        (torch.float32, 0, "amx_bf16", torch.float32),
    ],
)
def test_on_a_cpu_a_small_model_runs_in_float32_and_no_large_one_in_float16_where_bfloat16_is_fast(
    own: torch.dtype, most: int, instruction: str, dtype: torch.dtype, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load_checkpoint(base, device="cpu", dtype=own)
    monkeypatch.setattr(llama, "SMALL", most)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {instruction: True})
    assert llama.type_on_cpu(model) == dtype


def test_a_small_checkpoint_in_half_precision_is_computed_by_the_core(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = load_checkpoint(base, device="cpu", dtype=torch.float16)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "half")
    assert TransformersEngine(tmp_path / "half").told["dtype"] == "float32"
    assert TransformersEngine(tmp_path / "half", dtype=torch.float16).told["dtype"] == "float16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})  # else all is float32
    learner = learner_of(Training(train=Train(lora_rank=2)), tmp_path / "half")
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}  # as it samples


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_device_and_type_reach_every_weight(dtype: torch.dtype, base: Path) -> None:
    model, _ = load_checkpoint(base, device="meta", dtype=dtype, attention="eager")
    assert {(str(p.device), p.dtype) for p in model.parameters()} == {("meta", dtype)}
    assert model.config._attn_implementation == "eager"


def test_adapters_and_their_moments_are_float32_over_bfloat16_weights(base: Path) -> None:
    settings = Training(model=ModelSettings(dtype="bfloat16"), train=Train(lora_rank=2))
    learner = learner_of(settings, base)
    kinds = {name: p.dtype for name, p in learner.model.named_parameters()}
    assert {kind for name, kind in kinds.items() if "lora_" in name} == {torch.float32}
    assert {kind for name, kind in kinds.items() if "lora_" not in name} == {torch.bfloat16}
    before = learner.recompute_logps([sample([5, 6, 7], [8, 9, 3], [0.0] * 3)])[0].logps
    learner.step_sft([sample([5, 6, 7], [8, 9, 3], [0.0] * 3)])
    moments = [m for state in learner.optimizer.state.values() for m in state.values() if m.ndim]
    assert moments and {m.dtype for m in moments} == {torch.float32} and learner.bf16
    assert before.dtype == "float32"
    whole = learner_of(replace_train(settings, lora_rank=0), base)
    assert {p.dtype for p in whole.model.parameters()} == {torch.float32} and whole.bf16


def replace_train(s: Training, **changes: Any) -> Training:
    return s.model_copy(update={"train": s.train.model_copy(update=changes)})


def test_float16_is_for_sampling_alone(base: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.dtype must be bfloat16 or float32 for training; got float16"):
        learner_of(Training(model=ModelSettings(dtype="float16")), base)


def test_several_devices_are_for_vllm(gpus: None, base: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.devices must be one device here; got '0-3': vllm:PATH takes several"):
        make_engine(base, ModelSettings(devices="0-3"))
    with pytest.raises(ConfigError, match=r"model.devices must be one .* got '0-3': --train.devices names those that"):
        learner_of(Training(model=ModelSettings(devices="0-3")), base)


def test_the_learner_has_a_process_per_gpu_or_so_many_on_the_cpu(
    gpus: None, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert training_devices("", "auto") == ("cuda:0",) and training_devices("", "cpu") == ("cpu",)
    assert training_devices("4-6", "0-3") == ("cuda:4", "cuda:5", "cuda:6")
    assert training_devices("0,2", "auto") == ("cuda:0", "cuda:2") and training_devices("4", "0-3") == ("cuda:4",)
    assert training_devices("3", "cpu") == ("cpu",) * 3 and training_devices("cpu", "0") == ("cpu",)
    assert training_devices("cuda", "cpu") == ("cuda:0",) and training_devices("cores", "auto") == ("cuda:0",)
    monkeypatch.setattr(placement, "cores", lambda: 64)
    assert training_devices("cores", "cpu") == ("cpu",) * 4
    with pytest.raises(ConfigError, match=r"train.devices must be at least 1 process on the CPU; got 0"):
        training_devices("0", "cpu")
    with pytest.raises(ConfigError, match=r"train.devices must name devices .* has 8 CUDA .* got '8': 0-7 names all"):
        training_devices("8", "auto")


def test_on_a_mac_the_policy_trains_on_the_cpu(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_accelerators", lambda: (0, True))
    assert read_devices("auto") == ("mps",)
    for given in ("", "auto", "cores", "cpu"):
        assert training_devices(given, "auto") == ("cpu",)
        assert trains_off_mps(given, "auto") == (given != "cpu")
    assert training_devices("2", "cpu") == ("cpu",) * 2 and not trains_off_mps("", "cpu")
    said = "must be the CPU or a CUDA device, since MPS has no float64; got 'mps'"
    with pytest.raises(ConfigError, match=f"train.devices {said}"):
        training_devices("mps", "auto")
    with pytest.raises(ConfigError, match=f"device {said}"):
        Learner(tiny_llama(), learning_rate=1e-3, device="mps")
    assert learner_of(Training(), base).device.type == "cpu"


def test_every_role_has_its_budget(base: Path) -> None:
    model = ModelSettings(max_new_tokens=3, context=700)
    engine = make_engine(base, model)
    assert engine.renderer.context_tokens == 700  # type: ignore[attr-defined]
    asked: list[tuple[str, int]] = []
    sampled = engine.sample

    async def sample(request: Any) -> Any:
        asked.append((request.role, request.max_new_tokens))
        return await sampled(request)

    engine.sample = sample  # type: ignore[method-assign]
    (proposal,) = asyncio.run(policy_of(engine, model).propose(HISTORY, 1, seed=0))
    assert len(proposal.token_ids) <= 3
    asyncio.run(LLMRanker(engine, max_new_tokens=7).rank(HISTORY, [None, None], seed=0))
    assert set(asked) == {("policy", 3), ("critic", 7)}
    with pytest.raises(ConfigError, match=r"model.context must be greater than model.max_new_tokens \(96\); got 96"):
        made(EvalCommand, ["--model.context=96"])


def test_settings_are_read_from_words(tmp_path: Path) -> None:
    words = ['--model.template={"enable_thinking": false}', '--model.stop=["\\n\\n", "END"]', "--model.devices=0-3"]
    found = made(AgentQ, [*words, "--critic.model=none"])
    assert found.model.template == {"enable_thinking": False} and found.model.stop == ["\n\n", "END"]
    assert made(AgentQ, ["--model.stop=OBSERVATION:"]).model.stop == ["OBSERVATION:"]
    kept = found.to_dict()
    assert "devices" not in kept["model"] and "threads" not in kept["model"] and kept["critic"]["model"] == "none"


def test_a_run_notes_what_it_used(base: Path, tmp_path: Path) -> None:
    words = ["--run.num_tasks=1", "--run.num_rounds=1", "--eval.num_tasks=1", "--eval.measure_base=false"]
    command = ["train", "sft", "--base", str(base), "--out", str(tmp_path / "run"), *words]
    assert main([*command, "--model.attention=eager", "--model.threads=1"]) == 0
    noted = json.loads((tmp_path / "run" / "env.json").read_text())["models"]
    plain = {"device": "cpu", "dtype": "float32", "attention": "eager", "threads": 1}
    assert noted[str(base)] == plain
    assert noted["learner"] == plain | {"lora_rank": 0, "products_in_bf16": False, "processes": 1}
    (row,) = json.loads((tmp_path / "run" / "summary.json").read_text())
    task, env = envs.task("booking", "test", 0), envs.make("booking")
    engine = TransformersEngine(base)
    ids = engine.renderer.encode(policy_messages(History.of(task, env.reset(task))))
    engine.close()
    assert row["prompt"] == hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()[:16]


def test_threads_are_those_given_or_one_for_a_small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 0)
    monkeypatch.setattr(placement.os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    use_threads(0, tiny_llama())
    monkeypatch.delenv("OMP_NUM_THREADS")
    use_threads(0, tiny_llama())
    use_threads(7, tiny_llama())
    monkeypatch.setattr(placement, "SMALL", 10)
    use_threads(0, tiny_llama())
    assert chosen == [5, 1, 7, 64]


def test_training_takes_the_threads_it_is_given_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(here, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # runs side by side, each with one core
    with here._threads(0, 1):
        pass
    monkeypatch.delenv("OMP_NUM_THREADS")
    for wanted, num_ranks in ((0, 1), (3, 1), (0, 8)):
        with here._threads(wanted, num_ranks):
            pass
    assert chosen[::2] == [1, 2, 3, 1] and chosen[1::2] == [1] * 4


# vLLM's own arguments


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that has three arguments."""

    @dataclass
    class AsyncEngineArgs:
        model: str = ""
        tensor_parallel_size: int = 1
        kv_cache_dtype: str = "auto"
        disable_log_stats: bool = False

    for name in ("vllm", "vllm.engine", "vllm.engine.arg_utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["vllm.engine.arg_utils"].AsyncEngineArgs = AsyncEngineArgs  # type: ignore[attr-defined]


def test_vllm_gets_its_own_arguments_by_its_own_names(vllm: None) -> None:
    found = made(EvalCommand)
    assert dict(found.vllm) == {}
    given = load_vllm(tensor_parallel_size="4", kv_cache_dtype="fp8", trust_remote_code="true")
    assert given == {"tensor_parallel_size": 4, "kv_cache_dtype": "fp8", "trust_remote_code": True}
    check_arguments({"tensor_parallel_size": 4})
    with pytest.raises(ConfigError, match=r"vllm.tensor_paralel_size must be an argument .*; did you mean 'tensor_par"):
        check_arguments({"tensor_paralel_size": 4})
    with pytest.raises(ConfigError, match=r"vllm.model is set by agentq and must not be given"):
        check_arguments({"model": "other"})


def test_arguments_for_vllm_need_one(
    base: Path, tmp_path: Path, vllm: None, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", str(base), "--out", str(tmp_path / "run"), "--vllm.tensor_parallel_size", "4"]
    assert main(command) == 2
    assert "vllm.tensor_parallel_size must go with a model vllm:PATH; got none" in capsys.readouterr().err
    assert main(["eval", f"vllm:{base}", *command[2:], "--vllm.kv_cache_dtyp", "fp8"]) == 2
    assert "vllm.kv_cache_dtyp must be an argument of vLLM's engine; did you mean" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def load_vllm(**given: str) -> dict[str, Any]:
    from agentq.recipes.load import load

    return dict(load(EvalCommand, "eval", None, {"vllm": given}).vllm)


def test_vllm_divides_one_model_among_the_devices(gpus: None) -> None:
    found = arguments_of(ModelSettings(devices="0-3", sleep=2), lora_rank=16)
    assert found["tensor_parallel_size"] == 4 and found["dtype"] == "bfloat16" and found["max_lora_rank"] == 16
    assert (found["devices"], found["sleep_level"], found["enable_sleep_mode"]) == (read_devices("0-3"), 2, True)
    assert "enable_sleep_mode" not in arguments_of(ModelSettings(devices="cpu"), lora_rank=0)
    share = share_of(("cuda:0",), 16 << 30, {})["gpu_memory_utilization"]
    assert share == pytest.approx((79 - 16 - 1) / 80)
    assert share_of(("cuda:0",), 0, {"gpu_memory_utilization": 0.5}) == share_of(("cpu",), 0, {}) == {}


def test_vllms_processes_see_only_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for before, wanted in ((None, "2,3"), ("4,5,6,7", "6,7")):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if before:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
        with only_devices(("cuda:2", "cuda:3")):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == wanted
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


# memory

BIG = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}


@pytest.fixture(scope="module")
def eight_billion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a Llama with 8.03 billion parameters, without weights."""
    path = tmp_path_factory.mktemp("8b")
    config = BIG | {"vocab_size": 128256, "num_key_value_heads": 8, "model_type": "llama", "dtype": "bfloat16"}
    (path / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    return path


def test_an_8b_model_with_adapters_trains_on_one_gpu_of_80_gib(gpus: None, eight_billion: Path) -> None:
    s = AgentQ(train=Dpo(lora_rank=16, gradient_checkpointing=True))
    found = memory.needs(s, eight_billion)
    places = [("base", "cuda:0"), ("learner", "cuda:0"), ("merged", "cpu")]
    assert [(need.what.split()[0], need.device) for need in found] == places
    total = sum(max(need.sampling, need.training) for need in found[:2]) / memory.GIB
    assert 40 < total < 75
    assert found[2].sampling == 0 and found[2].training == 2 * memory.size_of(eight_billion).parameters
    memory.check_memory(s, eight_billion)


def test_what_does_not_fit_is_refused_with_what_would(gpus: None, eight_billion: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"must fit into the memory of cuda:0, 79.0 GiB free; they need about 2\d\d.\d GiB: --train."
        r"gradient_checkpointing true --train.lora_rank 16 would fit",
    ):
        memory.check_memory(AgentQ(), eight_billion)
    memory.check_memory(AgentQ(model=ModelSettings(memory=False)), eight_billion)
    served = AgentQ(run=AgentQ().run.model_copy(update={"engine": f"vllm:{eight_billion}"}))
    policy = next(need for need in memory.needs(served, eight_billion) if need.what.startswith("policy"))
    assert policy.sampling > 15 << 30 and policy.training == 0  # it sleeps


def test_a_command_refuses_before_it_makes_anything(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 20)
    monkeypatch.setattr(run, "free_memory", lambda: 1 << 20)
    assert main(["train", "sft", "--base", str(base), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("agentq: the models must fit into the memory of cpu, 0.0 GiB free") and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_start_of_a_run_is_loaded_beside_a_learner_of_all_weights(gpus: None, eight_billion: Path) -> None:
    def of_learner(*words: str) -> int:
        s = made(RECIPES["grpo"], ["--train.gradient_checkpointing=true", *words])
        return sum(need.training for need in memory.needs(s, eight_billion) if need.what == "learner")

    plain, kl = of_learner(), of_learner("--policy_gradient.kl_weight=0.1")
    size = memory.size_of(eight_billion, "cuda:0").parameters
    assert 16 * size + 4 * size < kl < plain + 4 * size  # it is gone before a step
    assert of_learner("--train.lora_rank=4") == of_learner("--train.lora_rank=4", "--policy_gradient.kl_weight=0.1")
    shares = of_learner("--train.devices=0-3"), of_learner("--train.devices=0-3", "--policy_gradient.kl_weight=0.1")
    assert shares[1] >= 4 * (16 * size // 4 + 4 * size // 4) and shares[1] - shares[0] <= 4 * size


def test_processes_share_what_a_learner_keeps(gpus: None, eight_billion: Path) -> None:
    one, four = (
        {
            need.device: need
            for need in memory.needs(AgentQ(train=Dpo(devices=each)), eight_billion)
            if "learn" in need.what
        }
        for each in ("4", "4-7")
    )
    assert list(four) == ["cuda:4", "cuda:5", "cuda:6", "cuda:7", "cpu"]
    kept = 16 * memory.size_of(eight_billion).parameters
    assert one["cuda:4"].sampling == kept and four["cuda:4"].sampling == 0  # the processes end with the round
    assert four["cuda:4"].training == four["cuda:7"].training == one["cuda:4"].training - kept + kept // 4
    assert four["cpu"].training == kept // 4  # one process loads the weights in float32 at first


def test_the_pipeline_leaves_room_for_the_learner(gpus: None, eight_billion: Path) -> None:
    adapters = AgentQ(train=Dpo(lora_rank=16))
    assert 14 << 30 < memory.learner_bytes(adapters, eight_billion) < 20 << 30
    apart = adapters.model_copy(update={"train": Dpo(lora_rank=16, devices="4")})
    assert memory.learner_bytes(apart, eight_billion) == 0 and not trains_where_it_samples(
        apart.train.devices, apart.model.devices
    )
    assert memory.learner_bytes(EvalCommand(), eight_billion) == 0


@pytest.mark.gpu
def test_a_gpu_samples_and_trains(base: Path, tmp_path: Path) -> None:
    settings = AgentQ(train=Dpo(lora_rank=4))
    learner = learner_of(settings, base)
    assert learner.device.type == "cuda" and learner.bf16
    with RunStore.open(tmp_path / "run", settings.to_dict()) as store:
        p = Pipeline(store, settings, base, Quiet())
        (proposal,) = asyncio.run(p.policy(base).propose(HISTORY, 1, seed=0))
        assert len(proposal.token_ids) and p.sampler().told["dtype"] == "bfloat16"  # type: ignore[attr-defined]
        assert p.critic(CriticSettings()) is not None
        p.close()
    learner.step_sft([sample([5, 6, 7], [8, 9, 3], [0.0] * 3)])


def measured(path: Path) -> int:
    """Bytes of the weights, gradients and moments of a learner that has taken a step."""
    learner = Learner.from_checkpoint(path, learning_rate=1e-3)
    learner.step_sft([sample([5, 6, 7], [8, 9, 3], [0.0] * 3)])
    held = list(learner.parameters.values())
    moments = [m for state in learner.optimizer.state.values() for m in state.values() if m.ndim]
    return sum(t.nbytes for t in [*held, *(p.grad for p in held if p.grad is not None), *moments])


def test_a_learner_keeps_what_the_estimate_says(base: Path) -> None:
    size = memory.size_of(base)
    kept, peak = memory.to_train(size, 4, lora_rank=0, bf16=False, gradient_checkpointing=False)
    assert kept == measured(base) < peak
    less = replace(size, tokens=size.tokens // 2)
    assert memory.to_train(less, 4, lora_rank=0, bf16=False, gradient_checkpointing=False)[1] < peak
