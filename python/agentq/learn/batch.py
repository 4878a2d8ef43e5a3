"""Samples to tensors: what of one optimiser step is forwarded together, and which rows predict which tokens.

Token ids are used as recorded; nothing is tokenised again. Equal samples are forwarded once, and samples that share a
prompt share one row, in which every action sees the prompt and itself only:

    row        [ prompt p_1 .. p_P | action 1: a_1 .. a_{T-1} | action 2: b_1 .. b_{T-1} | padding ]
    position     0 .. P-1            P ..                       P ..
    predicts     p_P: a_1 and b_1    a_1: a_2 ..                b_1: b_2 ..

An action's last token predicts nothing that is trained on, so it is not fed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentq.types import Sample


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What one forward pass takes. `B` rows of `T` positions, `M` action tokens."""

    input_ids: Tensor  # [B, T] int64, right-padded with 0
    position_ids: Tensor  # [B, T] int64
    attention_mask: Tensor | None  # [B, 1, T, T] bool, 1 where query sees key; None: plain causal attention will do
    predictors: Tensor  # [M] int64: position b * T + t whose output predicts the token
    targets: Tensor  # [M] int64: the token
    samples: Tensor  # [M] int64: its sample, a row of the part's [S, T] tensors
    columns: Tensor  # [M] int64: its place in the action
    num_tokens: int  # fed tokens, without padding


@dataclass(frozen=True, slots=True)
class Part:
    """Items of a step whose loss is computed at once: no sample or prompt is shared with another part."""

    items: tuple[int, ...]  # which items of the step
    samples: tuple[tuple[int, ...], ...]  # for each of them its samples, rows of action_mask
    action_mask: Tensor  # [S, T] bool, 1 where a sample has an action token
    batches: tuple[MicroBatch, ...]  # several only where the part exceeds the token budget


@dataclass(frozen=True, slots=True)
class _Row:
    samples: tuple[int, ...]
    length: int


def plan_step(
    items: Sequence[Sequence[Sample]],
    *,
    max_tokens: int = 2048,
    share_prompts: bool = True,
    device: torch.device | str = "cpu",
) -> list[Part]:
    """Cut one optimiser step into parts of at most `max_tokens` padded tokens, rows of similar length together.

    Args:
        items: `[I]` what the loss takes together: one sample for SFT, a pair's samples (chosen, then rejected) for DPO.
        max_tokens: of one forward pass; a single row may exceed it.
        share_prompts: one row for all actions of a prompt; False gives each distinct sample a row.

    Raises:
        ValueError: if a sample has no prompt or no action token, or max_tokens is less than 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1; got {max_tokens}")
    unique, of_item = _unique(items)
    rows = _rows(unique, max_tokens, share_prompts)
    parts: list[tuple[list[int], list[_Row]]] = []
    widest = 0
    for members, group in sorted(_components(of_item, rows), key=lambda c: max(row.length for row in c[1])):
        widest = max(row.length for row in group)
        if parts and (len(parts[-1][1]) + len(group)) * widest <= max_tokens:
            parts[-1][0].extend(members)
            parts[-1][1].extend(group)
        else:
            parts.append((members, group))
    return [_part(members, group, unique, of_item, max_tokens, device) for members, group in parts]


def _unique(items: Sequence[Sequence[Sample]]) -> tuple[list[Sample], list[tuple[int, ...]]]:
    """The distinct (prompt, action) of a step, and each item's samples as indices into them."""
    index: dict[tuple[bytes, bytes], int] = {}
    unique: list[Sample] = []
    of_item = []
    for item in items:
        ids = []
        for sample in item:
            if len(sample.prompt_ids) == 0 or len(sample.token_ids) == 0:
                raise ValueError(
                    "a sample must have at least one prompt and one action token; "
                    f"got {len(sample.prompt_ids)} and {len(sample.token_ids)}"
                )
            key = (_key(sample.prompt_ids), _key(sample.token_ids))
            if key not in index:
                index[key] = len(unique)
                unique.append(sample)
            ids.append(index[key])
        of_item.append(tuple(ids))
    return unique, of_item


def _key(ids: np.ndarray) -> bytes:
    return np.asarray(ids, dtype=np.int64).tobytes()


def _rows(unique: list[Sample], max_tokens: int, share_prompts: bool) -> list[_Row]:
    by_prompt: dict[object, list[int]] = {}
    for i, sample in enumerate(unique):
        by_prompt.setdefault(_key(sample.prompt_ids) if share_prompts else i, []).append(i)
    rows = []
    for members in by_prompt.values():
        prompt = len(unique[members[0]].prompt_ids)
        taken: list[int] = []
        length = prompt
        for i in members:
            tokens = len(unique[i].token_ids) - 1
            if taken and length + tokens > max_tokens:
                rows.append(_Row(tuple(taken), length))
                taken, length = [], prompt
            taken.append(i)
            length += tokens
        rows.append(_Row(tuple(taken), length))
    return rows


def _components(of_item: list[tuple[int, ...]], rows: list[_Row]) -> list[tuple[list[int], list[_Row]]]:
    """Items that share rows, directly or through other items, with those rows: (items, rows) each."""
    root = list(range(len(rows)))

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    row_of = {sample: r for r, row in enumerate(rows) for sample in row.samples}
    for samples in of_item:
        for sample in samples[1:]:
            root[find(row_of[sample])] = find(row_of[samples[0]])
    components: dict[int, tuple[list[int], list[_Row]]] = {}
    for r, row in enumerate(rows):
        components.setdefault(find(r), ([], []))[1].append(row)
    for i, samples in enumerate(of_item):
        components[find(row_of[samples[0]])][0].append(i)
    return list(components.values())


def _part(
    members: list[int],
    rows: list[_Row],
    unique: list[Sample],
    of_item: list[tuple[int, ...]],
    max_tokens: int,
    device: torch.device | str,
) -> Part:
    place = {sample: i for i, sample in enumerate(s for row in rows for s in row.samples)}
    lengths = np.array([len(unique[sample].token_ids) for sample in place])
    mask = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None]).to(device)
    cut: list[list[_Row]] = [[]]
    for row in sorted(rows, key=lambda row: row.length):
        if cut[-1] and (len(cut[-1]) + 1) * row.length > max_tokens:
            cut.append([])
        cut[-1].append(row)
    return Part(
        items=tuple(members),
        samples=tuple(tuple(place[s] for s in of_item[i]) for i in members),
        action_mask=mask,
        batches=tuple(_micro_batch(some, unique, place, device) for some in cut),
    )


def _micro_batch(
    rows: list[_Row], unique: list[Sample], place: dict[int, int], device: torch.device | str
) -> MicroBatch:
    width = max(row.length for row in rows)
    input_ids = np.zeros((len(rows), width), dtype=np.int64)
    position_ids = np.tile(np.arange(width), (len(rows), 1))
    segments = np.full((len(rows), width), -1, dtype=np.int64)  # 0 prompt, 1.. actions, -1 padding
    index: list[np.ndarray] = []  # [4, T] an action: predictors, targets, samples, columns
    for b, row in enumerate(rows):
        prompt = unique[row.samples[0]].prompt_ids
        end = len(prompt)
        input_ids[b, :end] = prompt
        segments[b, :end] = 0
        for segment, i in enumerate(row.samples, start=1):
            tokens = unique[i].token_ids.astype(np.int64)
            fed = slice(end, end + len(tokens) - 1)
            input_ids[b, fed] = tokens[:-1]
            position_ids[b, fed] = np.arange(len(prompt), len(prompt) + len(tokens) - 1)
            segments[b, fed] = segment
            predictors = b * width + np.concatenate([[len(prompt) - 1], np.arange(fed.start, fed.stop)])
            index.append(np.stack([predictors, tokens, np.full(len(tokens), place[i]), np.arange(len(tokens))]))
            end = fed.stop
    predictors, targets, samples, columns = torch.from_numpy(np.concatenate(index, axis=1)).to(device)
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids).to(device),
        position_ids=torch.from_numpy(position_ids).to(device),
        attention_mask=_visibility(torch.from_numpy(segments).to(device)) if (segments > 1).any() else None,
        predictors=predictors,
        targets=targets,
        samples=samples,
        columns=columns,
        num_tokens=sum(row.length for row in rows),
    )


def _visibility(segments: Tensor) -> Tensor:
    """`[B, 1, T, T]` bool from `[B, T]` segments: a query sees earlier keys of the prompt and of its own segment."""
    query, key = segments[:, :, None], segments[:, None, :]
    width = segments.shape[1]
    earlier = torch.ones(width, width, dtype=torch.bool, device=segments.device).tril()
    return (((key == 0) | (key == query)) & earlier)[:, None]
