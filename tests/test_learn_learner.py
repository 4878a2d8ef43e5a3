"""The learner: steps against plain torch, known answers of SFT and DPO, adapters, resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentq.errors import ConfigError, ModelError, StoreError
from agentq.learn.epochs import train
from agentq.learn.learner import Learner
from agentq.types import PreferencePair
from tests.learn_factory import (
    VOCAB,
    exact,
    gradients,
    node_pairs,
    plain_logps,
    random_sample,
    sample,
    tiny_gpt2,
    tiny_llama,
    tiny_qwen,
    tiny_windowed,
    tokenizer,
    trajectory_pairs,
)


def learner(seed: int = 0, **settings: Any) -> Learner:
    return Learner(tiny_llama(seed), **({"learning_rate": 1e-3} | settings))


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def plain_dpo(model: Any, pairs: list[PreferencePair], beta: float) -> torch.Tensor:
    """Mean loss, one sequence at a time, in torch."""
    losses = []
    for pair in pairs:
        chosen, rejected = (
            sum(plain_logps(model, s).sum() - float(s.logps.astype(np.float64).sum()) for s in side)
            for side in (pair.chosen, pair.rejected)
        )
        losses.append(-torch.nn.functional.logsigmoid(beta * (chosen - rejected)))  # type: ignore[arg-type]
    return torch.stack(losses).mean()


def mixed_pairs() -> list[PreferencePair]:
    """Node and trajectory pairs, with another model as reference."""
    return learner(seed=1).recompute_reference(node_pairs(0, 4) + trajectory_pairs(1, 3))


@pytest.mark.parametrize("max_tokens", [1, 60, 10_000])
@pytest.mark.parametrize(
    ("make", "atol"),
    [
        (tiny_llama, 2e-6),
        (tiny_qwen, 2e-6),
        (lambda: exact(tiny_qwen()), 1e-10),
        (lambda: exact(tiny_windowed()), 1e-10),
    ],
)
def test_step_dpo_has_the_plain_loss_and_gradient_however_it_is_cut(make: Any, atol: float, max_tokens: int) -> None:
    pairs, model = mixed_pairs(), make()
    expected = plain_dpo(model, pairs, beta=0.3)
    expected.backward()
    want = gradients(model)
    model.zero_grad()
    # No clipping and hardly a step, so that the gradient is there to be read.
    metrics = Learner(model, learning_rate=1e-12, max_grad_norm=1e9, max_tokens=max_tokens).step_dpo(pairs, beta=0.3)
    assert metrics["loss"] == pytest.approx(expected.item(), abs=10 * atol)
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, want[name], atol=atol, rtol=100 * atol)


@pytest.mark.parametrize("max_tokens", [1, 60, 10_000])
def test_step_sft_is_the_mean_over_all_tokens_however_it_is_cut(max_tokens: int) -> None:
    rng, model = np.random.default_rng(0), tiny_llama()
    samples = [random_sample(rng) for _ in range(7)]
    samples.append(samples[0])  # forwarded once, counted twice
    expected = -torch.cat([plain_logps(model, s) for s in samples]).mean()
    expected.backward()
    want = gradients(model)
    model.zero_grad()
    metrics = Learner(model, learning_rate=1e-12, max_grad_norm=1e9, max_tokens=max_tokens).step_sft(samples)
    assert metrics["loss"] == pytest.approx(expected.item(), abs=1e-5)
    assert metrics["num_tokens"] == sum(len(s.prompt_ids) + len(s.token_ids) - 1 for s in samples[:-1])
    for name, grad in gradients(model).items():
        torch.testing.assert_close(grad, want[name], atol=2e-6, rtol=2e-4)


def test_step_sft_weights_scale_each_sample() -> None:
    # Weight 0 is no sample at all but for the normaliser; weight -1 turns the gradient round.
    a, b = sample([1, 2, 3], [4, 5]), sample([6, 7], [8, 9])
    found = []
    for weights in ([1.0, 0.0], [-1.0, 0.0]):
        trained = learner(max_grad_norm=1e9)
        trained.step_sft([a, b], weights)
        found.append(gradients(trained.model))
    alone = learner(max_grad_norm=1e9)
    alone.step_sft([a])
    for name, grad in gradients(alone.model).items():
        torch.testing.assert_close(found[0][name], grad / 2)
        torch.testing.assert_close(found[1][name], -grad / 2)


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_step_dpo_of_own_records_starts_at_ln2(lora_rank: int) -> None:
    trained = learner(lora_rank=lora_rank)
    pairs = trained.recompute_reference(node_pairs(0, 4) + trajectory_pairs(1, 3))
    metrics = trained.step_dpo(pairs, beta=0.5)
    assert metrics["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert metrics["rewards/margins"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["grad_norm"] > 0


def test_recompute_reference_gives_the_plain_logps() -> None:
    trained, pairs = learner(), trajectory_pairs(0, 2)
    for old, new in zip(pairs, trained.recompute_reference(pairs), strict=True):
        for before, after in zip(old.chosen + old.rejected, new.chosen + new.rejected, strict=True):
            assert before.token_ids is after.token_ids
            want = plain_logps(trained.model, before).detach().numpy()
            np.testing.assert_allclose(after.logps, want, atol=1e-5)


def test_step_dpo_raises_the_chosen_margin() -> None:
    trained = learner()
    pairs = trained.recompute_reference(node_pairs(0, 1))  # two pairs
    seen = [trained.step_dpo(pairs, beta=0.1) for _ in range(30)]
    assert seen[-1]["rewards/margins"] > 0.5 > seen[1]["rewards/margins"] > 0
    assert seen[-1]["rewards/accuracies"] == 1.0
    assert seen[-1]["rewards/chosen"] > seen[-1]["rewards/rejected"]
    # Metrics agree with one another: reward = beta * (log pi - log ref).
    ref = np.mean([pair.rejected[0].logps.sum() for pair in pairs])
    assert seen[-1]["rewards/rejected"] == pytest.approx(0.1 * (seen[-1]["logps/rejected"] - ref), abs=1e-4)


def test_step_dpo_adds_the_chosen_sides_likelihood_per_token() -> None:
    trained = learner()
    pairs = trained.recompute_reference(node_pairs(0, 4) + trajectory_pairs(1, 3))
    nll = [-sum(s.logps.sum() for s in p.chosen) / sum(len(s.token_ids) for s in p.chosen) for p in pairs]
    metrics = trained.step_dpo(pairs, beta=0.5, sft_weight=2.0)
    assert metrics["loss"] == pytest.approx(math.log(2) + 2.0 * np.mean(nll), abs=1e-5)
    with pytest.raises(ValueError, match=r"sft_weight must be at least 0; got -1"):
        trained.step_dpo(pairs, beta=0.5, sft_weight=-1.0)


def test_step_dpo_replays_actions_beside_the_pairs() -> None:
    trained = learner()
    pairs = trained.recompute_reference(node_pairs(0, 4))
    replay = trained.recompute_logps([sample([1, 2, 3], [4, 5]), sample([1, 2], [6])])
    held_up = [p.chosen[0] for p in pairs] + replay
    nll = [-s.logps.sum() / len(s.token_ids) for s in held_up]
    want = (len(pairs) * math.log(2) + 2.0 * sum(nll)) / len(held_up)
    metrics = trained.step_dpo(pairs, replay, beta=0.5, sft_weight=2.0)
    assert metrics["loss"] == pytest.approx(want, abs=1e-5)
    assert metrics["rewards/margins"] == pytest.approx(0.0, abs=1e-5)
    alone = learner().step_dpo([], replay, beta=0.5, sft_weight=2.0)
    assert alone["loss"] == pytest.approx(2.0 * np.mean(nll[len(pairs) :]), abs=1e-5)
    with pytest.raises(ValueError, match="sft_weight must be greater than 0 if actions are replayed; got 0 and 2"):
        trained.step_dpo(pairs, replay, beta=0.5)


def test_step_sft_overfits_one_sample() -> None:
    trained = learner(learning_rate=1e-2)
    losses = [trained.step_sft([sample([1, 2, 3], [4, 5, 6, 7])])["loss"] for _ in range(30)]
    assert losses[0] > 2.0
    assert losses[-1] < 0.05


def test_step_dpo_refuses_unknown_references() -> None:
    pair = PreferencePair((sample([1], [2, 3], [-1.0, math.nan]),), (sample([1], [4], [-1.0]),), 1.0)
    with pytest.raises(ValueError, match=r"recorded, finite .* got 1 for 2 tokens"):
        learner().step_dpo([pair], beta=0.1)


def test_update_refuses_token_ids_the_model_does_not_have() -> None:
    with pytest.raises(ModelError, match=r"less than the model's vocabulary \(64\); got 64"):
        learner().step_sft([sample([1, 2], [VOCAB])])


@pytest.mark.parametrize("ids", [([1, -100], [2]), ([1], [-100, 2])])
def test_update_refuses_negative_token_ids(ids: tuple[list[int], list[int]]) -> None:
    with pytest.raises(ModelError, match="token ids must be at least 0; got -100"):
        learner().step_sft([sample(*ids)])


def test_update_refuses_an_item_without_samples() -> None:
    for items in ([()], [(sample([1], [2]),), ()]):
        with pytest.raises(ValueError, match="an item must have at least one sample; got none"):
            learner().update(items, lambda part, logps: (logps.sum(), {}))
    with pytest.raises(ValueError, match="at least one prompt and one action token; got 0 and 0"):
        learner().step_sft([sample([], [])])


@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (lambda part, logps: logps.sum(), "a tensor and a dict of metrics; got Tensor"),
        (lambda part, logps: (0.5, {}), "a tensor and a dict of metrics; got float and dict"),
        (lambda part, logps: (logps.sum(), None), "got Tensor and NoneType"),
        (lambda part, logps: (logps.sum(-1), {}), r"a scalar; got a tensor of shape \[2\]: sum it"),
        (lambda part, logps: (logps.detach().sum(), {}), "follows from logps; got one without a gradient"),
        (lambda part, logps: (logps.sum(), {"rows": logps}), r"must be a number; got rows: Tensor of shape \[2, 1\]"),
        (lambda part, logps: (logps.sum(), {"kind": "dpo"}), "must be a number; got kind: str"),
    ],
)
@pytest.mark.parametrize("max_tokens", [100, 2], ids=["whole", "cut"])
def test_update_says_what_a_loss_must_return(loss_fn: Any, message: str, max_tokens: int) -> None:
    own = learner(max_tokens=max_tokens)
    before = weights_of(own.model)
    with pytest.raises(ConfigError, match=message):
        own.update([(sample([1, 2, 3], [2]), sample([4, 5, 6], [3]))], loss_fn)
    assert own.step_count == 0 and all(torch.equal(p, before[name]) for name, p in own.model.named_parameters())


def test_update_takes_metrics_that_still_have_their_graph() -> None:
    torch.set_warn_always(True)  # else torch warns of a graph once per process
    try:
        found = learner().update(
            [(sample([1], [2]),)], lambda part, logps: (-logps.sum(), {"own": logps.sum(), "two": 2})
        )
    finally:
        torch.set_warn_always(False)
    assert found["own"] == pytest.approx(-found["loss"]) and found["two"] == 2.0


def test_update_refuses_items_that_are_no_tuples_of_samples() -> None:
    one, (pair, *_) = sample([1], [2]), node_pairs(0, 1)
    for items, got in (([one], "Sample"), ([(one,), (pair,)], "PreferencePair"), ([{"prompt": "a"}], "dict")):
        with pytest.raises(ConfigError, match=rf"must be a tuple of samples, such as \(sample,\) .*; got {got}"):
            learner().update(items, lambda part, logps: (logps.sum(), {}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"must be a tuple of samples, .*; got PreferencePair"):
        learner().step_sft([pair])  # type: ignore[list-item]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_update_refuses_weights_of_16_bits_which_small_steps_do_not_change(dtype: torch.dtype) -> None:
    trained = Learner(tiny_llama().to(dtype), learning_rate=1e-5)
    assert len(trained.recompute_logps([sample([1], [2])])[0].logps) == 1  # to compare with an engine
    with pytest.raises(ModelError, match=f"must have 32 bits; got {str(dtype)[6:]}, .* dtype=torch.float32"):
        trained.step_sft([sample([1], [2])])
    adapted = Learner(tiny_llama().to(dtype), learning_rate=1e-5, lora_rank=2)
    assert adapted.step_sft([sample([1], [2])])["num_tokens"] == 1


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_learner_refuses_a_model_in_which_peft_has_put_an_adapter(lora_rank: int) -> None:
    # with lora_rank 0 it would train the adapter alone, and save files that miss most weights of the model
    model = tiny_llama()
    first = Learner(model, learning_rate=1e-3, lora_rank=2)
    for taken in (model, first.model):
        with pytest.raises(ModelError, match="must have no adapter yet; got a LlamaForCausalLM with one"):
            Learner(taken, learning_rate=1e-3, lora_rank=lora_rank)
    merged = first.merged().requires_grad_(True)
    assert Learner(merged, learning_rate=1e-3, lora_rank=lora_rank).step_count == 0


def test_learner_refuses_a_model_without_weights_to_train() -> None:
    frozen = tiny_llama().requires_grad_(False)
    with pytest.raises(ModelError, match="must have weights to train; got a LlamaForCausalLM with all weights frozen"):
        Learner(frozen, learning_rate=1e-3)
    assert Learner(frozen, learning_rate=1e-3, lora_rank=2).step_sft([sample([1], [2])])["grad_norm"] > 0


def out_of_memory_over(trained: Learner, most: int) -> list[int]:
    """Make forward passes of more than `most` tokens fail. Returns the tokens of each pass."""
    passes, logps_of = [], trained.logps_of

    def small(batch: Any) -> torch.Tensor:
        passes.append(batch.input_ids.numel())
        found = logps_of(batch)
        if passes[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return found

    trained.logps_of = small  # type: ignore[method-assign]
    return passes


def test_a_step_that_memory_cannot_hold_begins_again_in_smaller_parts(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = mixed_pairs()
    want, found = learner(max_tokens=400), learner(max_tokens=400)
    wanted = want.step_dpo(pairs, beta=0.1)
    passes = out_of_memory_over(found, 150)
    got = found.step_dpo(pairs, beta=0.1)
    assert [got[name] for name in ("loss", "grad_norm")] == pytest.approx([wanted["loss"], wanted["grad_norm"]])
    for name, p in found.model.named_parameters():
        torch.testing.assert_close(p, want.model.get_parameter(name), atol=1e-6, rtol=1e-4)
    assert max(passes) > 150 and found.max_tokens == 100
    assert capsys.readouterr().err.splitlines() == [
        f"agentq: a step must have memory for {n} tokens at once; it has not, and goes on with {n // 2}"
        for n in (400, 200)
    ]
    passes.clear()
    found.step_dpo(pairs, beta=0.1)
    assert max(passes) <= 100


def test_a_sequence_alone_that_memory_cannot_hold_is_an_error() -> None:
    trained = learner(max_tokens=100)
    out_of_memory_over(trained, 0)
    with pytest.raises(torch.OutOfMemoryError):
        trained.step_sft([sample(list(range(40)), [1, 2])])
    assert trained.max_tokens == 41 * 5 // 4 and trained.step_count == 0


def test_update_leaves_the_weights_when_the_gradient_is_not_finite() -> None:
    trained = learner()
    before = weights_of(trained.model)
    with pytest.raises(FloatingPointError, match="gradient must be finite"):
        trained.step_sft([sample([1], [2])], [math.inf])
    assert all(torch.equal(p, before[name]) for name, p in trained.model.named_parameters())
    assert trained.step_count == 0


def test_update_leaves_the_weights_when_the_loss_is_not_finite_though_its_gradient_is() -> None:
    """The gradient of a clamp is 0 where its input is NaN, as with unknown old log-probabilities."""
    trained = learner()
    before = weights_of(trained.model)
    with pytest.raises(FloatingPointError, match="the loss must be finite; got nan"):
        trained.update([[sample([1], [2])]], lambda part, logps: ((logps.sum() + math.nan).clamp(max=1.0), {}))
    assert all(torch.equal(p, before[name]) for name, p in trained.model.named_parameters())
    assert trained.step_count == 0


def test_update_leaves_a_head_whose_gradient_is_not_finite() -> None:
    trained = learner()
    trained.add_head("head", torch.zeros(2))
    with pytest.raises(FloatingPointError, match="must be finite; got nan or inf in a head and loss nan"):
        trained.update(
            [[sample([1], [2])]], lambda part, logps: (logps.sum() + (math.nan * trained.heads["head"]).sum(), {})
        )
    assert trained.heads["head"].tolist() == [0, 0] and trained.step_count == 0


def test_update_clips_the_gradient_and_reports_it_unclipped() -> None:
    trained = learner(max_grad_norm=1e-3)
    norm = trained.step_sft([sample([1, 2], [3, 4])])["grad_norm"]
    clipped = torch.cat([grad.flatten() for grad in gradients(trained.model).values()]).norm()
    assert norm > 0.1
    assert float(clipped) == pytest.approx(1e-3, rel=1e-3)


def test_learning_rate_warms_up_then_stays() -> None:
    trained = learner(learning_rate=1.0, warmup_steps=3)
    rates = [trained.step_sft([sample([1], [2])])["learning_rate"] for _ in range(5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_learner_turns_dropout_off() -> None:
    trained = Learner(tiny_llama(attention_dropout=0.5).train(), learning_rate=1e-3)
    s = [sample([1, 2, 3, 4], [5, 6])]
    assert trained.recompute_logps(s)[0].logps.tolist() == trained.recompute_logps(s)[0].logps.tolist()


def test_lora_starts_from_its_seed_alone() -> None:
    def first_factors(seed: int) -> list[torch.Tensor]:
        model = tiny_llama()
        torch.rand(seed + 1)  # whatever was drawn before
        trained = Learner(model, learning_rate=1e-3, lora_rank=2, seed=seed // 2)
        return [p.detach().clone() for name, p in trained.parameters.items() if "lora_A" in name]

    torch.testing.assert_close(first_factors(0), first_factors(1), atol=0, rtol=0)
    assert not torch.equal(first_factors(0)[0], first_factors(2)[0])


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's loading, not ours
def test_lora_moves_adapters_alone_and_saves_them_both_ways(tmp_path: Path) -> None:
    trained = learner(lora_rank=4, learning_rate=1e-2)
    base = {n: p for n, p in weights_of(trained.model).items() if "lora_" not in n}
    s = sample([1, 2, 3], [4, 5, 6])
    first = trained.step_sft([s])["loss"]
    for _ in range(10):
        trained.step_sft([s])
    after = weights_of(trained.model)
    assert all(torch.equal(after[name], weight) for name, weight in base.items())
    (own,) = trained.recompute_logps([s])
    assert -own.logps.mean() < first - 0.5

    trained.save(tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    np.testing.assert_allclose(plain_logps(merged, s).detach().numpy(), own.logps, atol=1e-5)

    from peft import PeftModel

    trained.save(tmp_path / "adapters", adapters_only=True)
    assert json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())["lora_alpha"] == 8
    reloaded = PeftModel.from_pretrained(tiny_llama(), tmp_path / "adapters")
    np.testing.assert_allclose(plain_logps(reloaded, s).detach().numpy(), own.logps, atol=1e-5)

    published = tiny_llama(seed=5)
    published.load_state_dict(trained.state_dict())
    np.testing.assert_allclose(plain_logps(published, s).detach().numpy(), own.logps, atol=1e-5)


class Killed(BaseException):
    """What a test throws to end a run between two steps."""


def run(trained: Learner, directory: Path | None, stop_after: int | None = None, **changes: Any) -> list[float]:
    """Four steps of DPO in two epochs; returns the losses of the steps this call made."""
    losses = []

    def on_step(step: int, num_steps: int, metrics: dict[str, float]) -> None:
        assert num_steps == 2 * -(-6 // settings["batch_size"])
        losses.append(metrics["loss"])
        if step == stop_after:
            raise Killed

    pairs = learner(seed=1).recompute_reference(node_pairs(0, 3))  # six pairs
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 3, "seed": 7, "checkpoint_every": 1} | changes
    train(
        trained,
        pairs,
        step_fn=lambda batch: trained.step_dpo(batch, beta=0.1),
        on_step=on_step,
        checkpoint_dir=directory,
        **settings,
    )
    return losses


@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize("checkpoint_every", [1, 2, 3])
def test_train_resumed_is_bit_equal_to_uninterrupted(tmp_path: Path, lora_rank: int, checkpoint_every: int) -> None:
    settings = {"lora_rank": lora_rank, "warmup_steps": 3}
    whole = learner(**settings)
    losses = run(whole, None)
    assert len(losses) == 4

    with pytest.raises(Killed):
        run(learner(**settings), tmp_path, stop_after=2, checkpoint_every=checkpoint_every)
    resumed = learner(**settings)
    kept = 2 // checkpoint_every * checkpoint_every
    assert run(resumed, tmp_path, checkpoint_every=checkpoint_every) == losses[kept:]
    for name, p in resumed.model.named_parameters():
        assert torch.equal(p, whole.model.get_parameter(name)), name
    # A finished run called again does nothing, and still ends with the trained weights.
    again = learner(**settings)
    assert run(again, tmp_path) == []
    assert all(torch.equal(p, whole.model.get_parameter(n)) for n, p in again.model.named_parameters())


def test_train_killed_while_it_writes_goes_on_from_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = run(learner(), None)
    from agentq.learn import checkpoint
    from agentq.store import durable

    written, save_file = [], checkpoint.save_file

    def torn(tensors: Any, path: Path) -> None:
        save_file(tensors, path)
        written.append(path)
        if len(written) == 4:  # the second checkpoint's second file
            path.write_bytes(path.read_bytes()[:100])
            monkeypatch.setattr(durable.shutil, "rmtree", lambda *_, **__: None)  # dead processes clean nothing up
            raise Killed

    monkeypatch.setattr(checkpoint, "save_file", torn)
    with pytest.raises(Killed):
        run(learner(), tmp_path)
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".step-00000002.partial", "step-00000001"]
    assert run(learner(), tmp_path) == losses[1:]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004"]


@pytest.mark.parametrize("change", [{"epochs": 3}, {"batch_size": 2}, {"seed": 8}])
def test_train_refuses_to_resume_another_plan(tmp_path: Path, change: dict[str, int]) -> None:
    run(learner(), tmp_path)
    with pytest.raises(ConfigError, match=f"same {next(iter(change))} .* got {next(iter(change.values()))}"):
        run(learner(), tmp_path, **change)


def test_train_refuses_to_resume_other_items(tmp_path: Path) -> None:
    trained, samples = learner(), [sample([1], [2]), sample([1], [3])]
    train(trained, samples, step_fn=trained.step_sft, batch_size=1, checkpoint_dir=tmp_path)
    with pytest.raises(ConfigError, match="same items"):
        train(trained, samples[::-1], step_fn=trained.step_sft, batch_size=1, checkpoint_dir=tmp_path)


def test_train_refuses_damaged_and_foreign_checkpoints(tmp_path: Path) -> None:
    run(learner(), tmp_path)
    with pytest.raises(ModelError, match="must hold this model's weights"):
        run(learner(lora_rank=2), tmp_path)
    (tmp_path / "step-00000004" / "weights.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="damaged"):
        run(learner(), tmp_path)


def test_train_takes_a_directory_by_its_name(tmp_path: Path) -> None:
    trained, samples = learner(), [sample([1], [2]), sample([1], [3])]
    train(trained, samples, step_fn=trained.step_sft, batch_size=2, checkpoint_dir=str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_train_visits_every_item_once_an_epoch_in_another_order() -> None:
    trained, seen = learner(), []
    samples = [sample([1], [token]) for token in range(10)]

    def step(batch: list[Any]) -> dict[str, float]:
        seen.append([int(s.token_ids[0]) for s in batch])
        return {}

    assert train(trained, samples, step_fn=step, epochs=2, batch_size=4, seed=3) == 6
    assert [len(batch) for batch in seen] == [4, 3, 3, 4, 3, 3]
    first, second = ([i for batch in half for i in batch] for half in (seen[:3], seen[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second != list(range(10)) != first
    train(trained, samples, step_fn=step, batch_size=10, seed=4)
    assert seen[-1] != first


def test_checkpoint_round_trip_keeps_weights_and_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = Learner(tiny_llama(), learning_rate=1e-2, tokenizer=tokenizer(VOCAB))
    trained.step_sft([sample([1, 2], [3, 4])])
    trained.save(tmp_path / "model")
    trained.step_sft([sample([1, 2], [3, 4])])
    trained.save(tmp_path / "model")  # takes the place of the first
    again = Learner.from_checkpoint(tmp_path / "model", learning_rate=1e-3)
    assert len(again.tokenizer) == VOCAB
    for name, p in again.model.named_parameters():
        assert torch.equal(p, trained.model.get_parameter(name))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert capsys.readouterr().err == ""  # no progress bars


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a checkpoint"])
@pytest.mark.parametrize("held", ["script.py", "config.json", "run.sqlite", "checkpoint-500/optimizer.pt", "notes.txt"])
def test_save_deletes_nothing_but_a_checkpoint(held: str, beside: bool, tmp_path: Path) -> None:
    trained = Learner(tiny_llama(), learning_rate=1e-2, tokenizer=tokenizer(VOCAB))
    out = tmp_path / "out"
    if beside and held != "config.json":  # which is part of one
        trained.save(out)
    (out / held).parent.mkdir(parents=True, exist_ok=True)
    (out / held).write_text("mine")
    shown = held.partition("/")[0]
    with pytest.raises(StoreError, match=rf"at a new path, or in place of another; got .*out, which has {shown}, and"):
        trained.save(out)
    with pytest.raises(StoreError, match="which has"):
        trained.save(out / held)
    assert (out / held).read_text() == "mine"
    (tmp_path / "empty").mkdir()
    trained.save(tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").is_file()


def test_from_checkpoint_refuses_a_tokenizer_that_does_not_fit(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    tokenizer(VOCAB + 1).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="tokenizer must fit the model") as caught:
        Learner.from_checkpoint(tmp_path, learning_rate=1e-3)
    assert "\n" not in str(caught.value)


def test_learner_refuses_settings_out_of_range() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        learner(learning_rate=0.0)
    with pytest.raises(ValueError, match="adapters_only"):
        learner().save(Path("nowhere"), adapters_only=True)


def test_update_gives_each_token_its_own_gradient_however_the_step_is_cut() -> None:
    # A loss of the learner's callers, not linear in a sample's sum: the second token counts twice the first, and so on.
    items = [(*pair.chosen, *pair.rejected) for pair in trajectory_pairs(0, 2)]

    def loss(part: Any, logps: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        count = torch.arange(1, logps.shape[1] + 1)
        rows = [row for samples in part.samples for row in samples]
        return (torch.where(part.action_mask, logps, 0.0) * count)[rows].square().sum(), {}

    found = []
    for max_tokens in (1, 10_000):
        trained = Learner(tiny_gpt2().double(), learning_rate=1e-12, max_grad_norm=1e9, max_tokens=max_tokens)
        trained.update(items, loss)
        found.append(gradients(trained.model))
    for name, grad in found[0].items():
        torch.testing.assert_close(grad, found[1][name], atol=1e-8, rtol=1e-9)


def test_bf16_changes_the_arithmetic_and_nothing_else() -> None:
    # The relative error of bfloat16 is 2 ** -9; of a whole gradient a few times that.
    pairs, found = mixed_pairs(), []
    for bf16 in (False, True):
        trained = Learner(tiny_llama(), learning_rate=1e-12, max_grad_norm=1e9, bf16=bf16)
        loss = trained.step_dpo(pairs, beta=0.1)["loss"]
        grad = gradients(trained.model)
        assert all(g.dtype == torch.float32 for g in grad.values())
        found.append((loss, torch.cat([g.flatten() for g in grad.values()])))
    (exact_loss, exact_grad), (loss, grad) = found
    assert loss == pytest.approx(exact_loss, abs=0.05)
    assert 1e-4 < float((grad - exact_grad).norm() / exact_grad.norm()) < 0.1


def test_learner_takes_fewer_tokens_at_once_where_a_large_model_is_on_a_cpu() -> None:
    model = tiny_llama()
    assert Learner(model, learning_rate=1e-3).max_tokens == 8192
    assert Learner(model, learning_rate=1e-3, max_tokens=7).max_tokens == 7
    model.config.hidden_size, model.config.num_hidden_layers = 384, 6
    assert Learner(model, learning_rate=1e-3).max_tokens == 2**24 // (384 * 6)
    model.config.hidden_size, model.config.num_hidden_layers = 4096, 32
    assert Learner(model, learning_rate=1e-3).max_tokens == 2048


@pytest.mark.parametrize("seed", [-1, 1 << 32])
def test_adapters_refuse_a_seed_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match=r"seed must be in \[0, 4294967296\); got "):
        Learner(tiny_llama(), learning_rate=1e-3, lora_rank=2, seed=seed)


def test_the_embedded_base_has_a_name() -> None:
    assert Learner.from_checkpoint("embedded", learning_rate=1e-4).model.num_parameters() > 1e6
