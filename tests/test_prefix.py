"""The prefix cache against a dictionary of all prefixes, under random prompts and a tight limit."""

from __future__ import annotations

import numpy as np
import torch

from agentq.policies.prefix import BLOCK, PrefixCache

BLOCK_BYTES = 4 * 2 * 2 * BLOCK * 3


def _states(prompt: np.ndarray) -> torch.Tensor:
    """A token's state is the sum of the prompt up to it, so a block of another prefix would show."""
    return torch.tensor(np.cumsum(prompt), dtype=torch.float32)[:, None].expand(2, 2, 1, -1, 3)


def _known(cache: PrefixCache, prompt: np.ndarray) -> int:
    """How many tokens of the prompt the cache knows."""
    return sum(block.shape[3] for block in cache.find(prompt))


def test_find_gives_the_longest_known_prefix_and_its_own_states() -> None:
    rng, cache = np.random.default_rng(0), PrefixCache(1 << 30)
    known: set[bytes] = set()
    for _ in range(300):
        prompt = np.repeat(rng.integers(0, 2, 6), BLOCK)[: rng.integers(1, 6 * BLOCK)].astype(np.int32)
        found, states = cache.find(prompt), _states(prompt)
        lengths = [n for n in range(0, len(prompt), BLOCK) if n == 0 or prompt[:n].tobytes() in known]
        assert _known(cache, prompt) == max(lengths)
        if found:
            torch.testing.assert_close(torch.cat(found, dim=3), states[..., : max(lengths), :])
        cache.add(prompt, states)
        known |= {prompt[:n].tobytes() for n in range(BLOCK, len(prompt) + 1, BLOCK)}
    assert cache.num_bytes == BLOCK_BYTES * len(known)


def test_the_limit_holds_and_old_leaves_go_first() -> None:
    cache = PrefixCache(3 * BLOCK_BYTES)
    first, second = (np.full(2 * BLOCK + 1, i, dtype=np.int32) for i in (1, 2))
    cache.add(first, _states(first))
    cache.add(second, _states(second))
    assert cache.num_bytes == 3 * BLOCK_BYTES
    assert [_known(cache, prompt) for prompt in (first, second)] == [BLOCK, 2 * BLOCK]  # the first one's leaf went
    nothing = PrefixCache(0)
    nothing.add(first, _states(first))
    assert nothing.num_bytes == 0 and nothing.find(first) == []
