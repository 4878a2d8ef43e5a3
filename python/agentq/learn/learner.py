"""The learner: one `update` for every method, which brings items and a loss; the loop knows neither SFT nor DPO.

The model stays in eval mode (no dropout), so at step 0 the policy is exactly the one that recorded the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from agentq.learn.adamw import adamw, check_numbers, check_plain, check_types
from agentq.learn.batch import LossFn, MicroBatch, Part, check_fits, check_items, default_tokens, plan_step
from agentq.learn.gradient import add, gradient
from agentq.learn.logps import action_logps, can_pack, check_forward, padded
from agentq.learn.recompute import recompute_layers
from agentq.learn.sharding import Placed, Ranks, check_launcher, fingerprint_of, join, load, whole
from agentq.learn.steps import imitation_step, preference_step, with_reference
from agentq.learn.trie_attention import tree_attention_of
from agentq.policies.adapters import base_of, keep_start, load_adapter, read_adapter, with_adapters
from agentq.policies.engine_names import EMBEDDED, embedded_base
from agentq.policies.head import context_of
from agentq.policies.placement import check_trains
from agentq.policies.saved import check_replaceable
from agentq.policies.weights import check_whole
from agentq.types import PreferencePair, Sample

Metrics = dict[str, float]


class Learner:
    """A causal LM and its optimiser (AdamW, linear warm-up, then a constant rate)."""

    def __init__(
        self,
        model: Any,
        *,
        learning_rate: float,
        max_grad_norm: float = 1.0,
        weight_decay: float = 0.0,
        lora_rank: int = 0,
        warmup_steps: int = 0,
        max_tokens: int | None = None,
        bf16: bool = False,
        gradient_checkpointing: bool = False,
        seed: int = 0,
        adapter: Path | None = None,
        tokenizer: Any = None,
        device: torch.device | str | None = None,
        shard: bool = False,
        from_first: bool = False,
    ) -> None:
        """Train `model` in place.

        Args:
            model: a transformers causal LM. Steps are packed as tries if a trial shows that the model supports it.
            learning_rate: peak rate, > 0.
            max_grad_norm: larger gradients are scaled down to this global norm, > 0.
            weight_decay: decay of matrices; norms and biases do not decay.
            lora_rank: 0 trains all weights; otherwise adapters of this rank on all linear layers except the head.
            warmup_steps: number of steps in which the rate rises to its peak.
            max_tokens: limit per forward pass. It changes memory and speed, never the result. None: `default_tokens`.
                One process alone halves it when memory does not suffice.
            bf16: compute matrix products in bfloat16; weights, gradients and log-probabilities keep their type.
            gradient_checkpointing: keep only each layer's input and compute the layer again in the backward pass. It
                costs at most a third more arithmetic and needs the memory of about one layer.
            seed: draws the adapters' initial values; unused when all weights are trained.
            adapter: an adapter of the same rank on this model, in peft's layout, with which training begins.
            tokenizer: saved beside the weights.
            device: where to train; None keeps the model where it is.
            shard: divide weights and steps among the processes of `accelerate launch` or `torchrun` (FSDP2). Each
                makes the same calls with the same arguments; results are those of one process.
            from_first: process 0 alone has the weights (`sharding.load`).

        Raises:
            ValueError: if a number is out of range, or sharded weights or items differ between the processes.
            ModelError: if a padded batch does not give the logits of the model's own forward pass, the model has an
                adapter already, or all its weights are frozen.
            ConfigError: if it is sharded and accelerate's configuration asks for other settings, on MPS, or without
                adapters on quantized weights.
        """
        check_numbers(learning_rate, max_grad_norm, weight_decay, lora_rank, warmup_steps)
        check_whole(model, plain=not lora_rank)
        check_plain(model, lora_rank)
        check_trains(where := base_of(model).device if device is None else device)
        self.ranks = join(where) if shard else Ranks()
        if written := self.ranks.first or not from_first:
            check_forward(model.eval())
        self.model = (with_adapters(model, lora_rank, seed=seed) if lora_rank else model).eval()
        if adapter is not None:
            load_adapter(self.model, read_adapter(adapter)[0])
            keep_start(self.model)
        self.packed = self.ranks.gather(written and can_pack(self.model))[0]
        if gradient_checkpointing:
            recompute_layers(self.model)
        if shard:
            check_launcher(bf16=bf16, gradient_checkpointing=gradient_checkpointing)
        self.placed = Placed(self.model, self.ranks, where, from_first=from_first)
        self.learning_rate, self.max_grad_norm, self.warmup_steps = learning_rate, max_grad_norm, warmup_steps
        self.lora_rank, self.bf16, self.gradient_checkpointing = lora_rank, bf16, gradient_checkpointing
        self.tokenizer, self.step_count = tokenizer, 0
        self.reference: dict[bytes, np.ndarray] = {}  # see `steps.with_reference`
        self.parameters = {name: p for name, p in self.placed.parameters.items() if p.requires_grad}
        self.device = next(iter(self.parameters.values())).device
        self.max_tokens = max_tokens or default_tokens(base_of(self.model))
        self.optimizer = adamw(list(self.parameters.values()), learning_rate, weight_decay)
        self.heads: dict[str, torch.nn.Parameter] = {}

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        *,
        device: str = "cpu",
        dtype: torch.dtype | str = torch.float32,
        attention: str = "auto",
        **settings: Any,
    ) -> Self:
        """A learner over a Hugging Face checkpoint, by name or path, or "embedded"; `settings` as in `Learner`.

        `dtype`: type of the weights; adapters on weights of 16 bits are float32. `attention`: implementation in
        transformers; "auto": its own choice. With `shard`, process 0 loads the model and gives the others their shares.

        Raises:
            ModelError: if it cannot be loaded, is an adapter, or its tokenizer has ids without a row in the embedding.
        """
        path = embedded_base() if str(path) == EMBEDDED and not Path(path).exists() else path
        check_whole(path, plain=not settings.get("lora_rank"))
        ranks = join(device) if settings.get("shard") else Ranks()
        model, tokenizer = load(path, ranks, device=device, dtype=dtype, attention=attention)
        learner = cls(model, tokenizer=tokenizer, device=device, from_first=ranks.size > 1, **settings)
        learner.placed.origin = path
        return learner

    def add_head(self, name: str, value: Tensor) -> None:
        """Train a tensor beside the model, at the same rate, by losses that use `heads[name]`. Every rank has it whole.

        The training's states hold it, the checkpoint does not. Its gradient is not clipped.
        """
        self.heads[name] = head = torch.nn.Parameter(value.to(self.device))
        self.optimizer.add_param_group({"params": [head], "weight_decay": 0.0})

    @property
    def trained(self) -> dict[str, torch.nn.Parameter]:
        """All that a training's state holds: trained parameters of the model, and heads."""
        return {**self.parameters, **self.heads}

    def step_sft(self, samples: Sequence[Sample], weights: Sequence[float] | None = None) -> Metrics:
        """One step on the negative log-likelihood, divided by the number of action tokens in the step.

        Args:
            weights: one per sample, of any sign. None weighs each by 1, which makes the loss the mean over tokens.
        """
        return self.update(*imitation_step(samples, weights))

    def step_dpo(
        self,
        pairs: Sequence[PreferencePair],
        replay: Sequence[Sample] = (),
        *,
        beta: float,
        label_smoothing: float = 0.0,
        sft_weight: float = 0.0,
    ) -> Metrics:
        """One step on the DPO loss of pairs plus the SFT loss of good actions, the mean over all items of the step.

        The reference's log-probabilities are the recorded ones of the behaviour policy. If these are unknown (all NaN),
        they are those of the weights before the first step. A pair with several samples per side is a trajectory pair:
        its log-probabilities are sums over the samples. |a| is an action's number of tokens.

            loss of a pair:              DPO loss - sft_weight * log pi(chosen) / |chosen|
            loss of a replayed action:            - sft_weight * log pi(action) / |action|

        Args:
            replay: extra actions for the SFT term; must be empty when sft_weight is 0.
            sft_weight: at least 0. DPO alone mostly pushes the rejected side down, and similar actions with it.
                Source: Pang et al. 2024, "Iterative reasoning preference optimization", arXiv:2404.19733, eq. 1.

        Returns:
            As `update`, and rewards/*, logps/*: means over the pairs.

        Raises:
            ValueError: if a recorded log-probability is not finite, an unknown one cannot be computed any more, or
                beta, label_smoothing or sft_weight is out of range.
        """
        pairs = with_reference(self, pairs)
        return self.update(*preference_step(pairs, replay, beta, label_smoothing, sft_weight))

    def update(self, items: Sequence[Sequence[Sample]], loss_fn: LossFn) -> Metrics:
        """One optimiser step.

        Returns:
            The loss's own metrics and loss, grad_norm (before clipping), num_tokens (without padding) and
            learning_rate, of the whole step, in every process.

        Raises:
            ValueError: if there are no items, an item is no tuple of samples, a sample is empty, or `loss_fn` returns
                anything but a scalar computed from the log-probabilities and a dict of numbers.
            ModelError: if a token id is outside the model's vocabulary, a sample longer than its context, or the
                trained weights have 16 bits.
            FloatingPointError: if the gradient or the loss is not finite; the weights are then unchanged.
        """
        if not items:
            raise ValueError("a step must have at least one item; got 0")
        check_items(items)
        check_types(self.parameters.values())
        totals: Metrics = {}
        for of_rank in self.ranks.gather(gradient(self, items, loss_fn)):
            add(totals, of_rank)
        for head in self.heads.values():  # each rank has the gradient of its own parts
            part_of = (torch.zeros_like(head) if head.grad is None else head.grad).cpu().numpy()
            head.grad = torch.from_numpy(np.sum(self.ranks.gather(part_of), axis=0)).to(head)
        grad_norm = float(whole(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.max_grad_norm)))
        of_heads = [head.grad for head in self.heads.values() if head.grad is not None]
        if not math.isfinite(grad_norm) or not all(bool(grad.isfinite().all()) for grad in of_heads):
            of = f"norm {grad_norm}" if not math.isfinite(grad_norm) else "nan or inf in a head"
            raise FloatingPointError(f"the gradient must be finite; got {of} and loss {totals['loss']}")
        if not math.isfinite(totals["loss"]):  # with a finite gradient: a clamp has none where its input is NaN
            raise FloatingPointError(f"the loss must be finite; got {totals['loss']}")
        rate = self.learning_rate * min(1.0, (self.step_count + 1) / (self.warmup_steps + 1))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step_count += 1
        return totals | {"grad_norm": grad_norm, "learning_rate": rate}

    def recompute_logps(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with log-probabilities under the current weights instead of the recorded ones."""
        own: dict[int, np.ndarray] = {}
        with torch.no_grad(), tree_attention_of(base_of(self.model), enabled=self.packed):
            for part in self.plan([(sample,) for sample in samples]) if samples else []:
                logps = sum(padded(part, batch, self.logps_of(batch)) for batch in part.batches)
                assert isinstance(logps, Tensor)
                values = logps.float().cpu().numpy()
                own |= {i: values[row, : len(samples[i].token_ids)].copy() for i, (row,) in part.members}
        found = {i: logps for of_rank in self.ranks.gather(own) for i, logps in of_rank.items()}
        return [replace(sample, logps=found[i]) for i, sample in enumerate(samples)]

    def recompute_reference(self, pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
        """The pairs with the current weights as reference, for data of an engine whose numbers differ slightly.

        Call it before the first step, whose loss is then ln 2.
        """
        sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
        flat = iter(self.recompute_logps([sample for side in sides for sample in side]))
        new = iter([tuple(next(flat) for _ in side) for side in sides])
        return [replace(pair, chosen=next(new), rejected=next(new)) for pair in pairs]

    def merged(self) -> Any:
        """The whole model with adapters merged into its weights; a copy on the CPU if there are adapters or shards."""
        return self.placed.merged()

    def state_dict(self) -> dict[str, Tensor]:
        """The weights under the base model's own names, adapters merged, as a policy publishes them."""
        return dict(self.merged().state_dict())

    def save(self, path: Path | str, *, adapters_only: bool = False) -> None:
        """Write a Hugging Face checkpoint and tokenizer, adapters merged or in peft's own layout.

        `path` must be new, an empty directory, or a checkpoint, which is replaced as a whole. The files are on the disk
        when the call returns. Raises StoreError if `path` holds anything else, or writing fails; it is then unchanged.
        """
        if adapters_only and not self.lora_rank:
            raise ValueError("adapters_only must go with lora_rank greater than 0; got 0")
        check_replaceable(Path(path))
        self.placed.save(Path(path), self.tokenizer, adapters_only=adapters_only)

    def plan(self, items: Sequence[Sequence[Sample]]) -> list[Part]:
        """This rank's parts of a step; all parts if there is one rank."""
        self.ranks.agree("the items of a step", lambda: fingerprint_of(items))
        model = base_of(self.model)
        check_fits(items, model.get_input_embeddings().weight.shape[0], context_of(model))
        return plan_step(
            items,
            max_tokens=self.max_tokens,
            packed=self.packed,
            device=self.device,
            rank=self.ranks.index,
            num_ranks=self.ranks.size,
        )

    def logps_of(self, batch: MicroBatch) -> Tensor:
        """`[M]` log-probability of each action token of a batch, see `action_logps`. Collective."""
        return self.placed.run(action_logps, batch, bf16=self.bf16)
