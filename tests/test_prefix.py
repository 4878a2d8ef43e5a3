"""The prefix cache against a dictionary of all prefixes, under random prompts and a tight limit."""

from __future__ import annotations

import numpy as np
import torch

from agentq.policies.prefix import BLOCK, PrefixCache

BLOCK_BYTES = 4 * 2 * 2 * BLOCK * 3


def _states(prompt: np.ndarray, start: int) -> torch.Tensor:
    """A token's state is the sum of the prompt up to it, so a block of another prefix would show."""
    sums = torch.tensor(np.cumsum(prompt)[start:], dtype=torch.float32)
    return sums[:, None].expand(2, 2, 1, -1, 3)


def test_find_gives_the_longest_known_prefix_and_its_own_states() -> None:
    rng, cache = np.random.default_rng(0), PrefixCache(1 << 30)
    known: set[bytes] = set()
    for _ in range(300):
        prompt = np.repeat(rng.integers(0, 2, 6), BLOCK)[: rng.integers(1, 6 * BLOCK)].astype(np.int32)
        blocks = cache.find(prompt)
        start = BLOCK * len(blocks)
        lengths = [n for n in range(0, len(prompt), BLOCK) if n == 0 or prompt[:n].tobytes() in known]
        assert start == max(lengths)
        if blocks:
            torch.testing.assert_close(torch.cat(blocks, dim=3), _states(prompt, 0)[..., :start, :])
        cache.add(prompt, start, _states(prompt, start))
        known |= {prompt[:n].tobytes() for n in range(BLOCK, len(prompt) + 1, BLOCK)}
    assert cache.num_bytes == BLOCK_BYTES * len(known)


def test_the_limit_holds_and_old_leaves_go_first() -> None:
    cache = PrefixCache(3 * BLOCK_BYTES)
    first, second = (np.full(2 * BLOCK + 1, i, dtype=np.int32) for i in (1, 2))
    cache.add(first, 0, _states(first, 0))
    cache.add(second, 0, _states(second, 0))
    assert cache.num_bytes == 3 * BLOCK_BYTES
    assert [len(cache.find(prompt)) for prompt in (first, second)] == [1, 2]  # the first one's leaf went
    nothing = PrefixCache(0)
    nothing.add(first, 0, _states(first, 0))
    assert nothing.num_bytes == 0 and nothing.find(first) == []


def test_add_stops_where_a_found_block_has_gone() -> None:
    cache = PrefixCache(1 << 20)
    prompt = np.arange(3 * BLOCK, dtype=np.int32)
    cache.add(prompt, BLOCK, _states(prompt, BLOCK))  # as if its first block had been dropped since
    assert cache.find(prompt) == []
