"""Seeds: changing how one is derived would change every sample of every recorded run."""

from __future__ import annotations

import random

import numpy as np
import pytest

from agentq.seeds import Stream, derive_seed, task_seed
from agentq.types import Split, Task

TASK = Task("booking", (5 << 32) + 77, Split.TRAIN, "")


@pytest.mark.parametrize(
    ("stream", "seed"),
    [
        (Stream.TREE, 10401061302940637519),
        (Stream.INSPECTION, 11164301227172899447),
        (Stream.BRANCH, 13505976075321964169),
        (Stream.SELECTION, 14634130003479870678),
    ],
)
def test_task_seed_of_every_stream_stays_what_it_was(stream: Stream, seed: int):
    assert task_seed(3, TASK, stream, 2) == seed


def test_task_seed_takes_all_bits_of_the_tasks_seed():
    assert task_seed(3, TASK, 4, 9) == derive_seed(3, 77, 5, 4, 9) == 16264322813667425369


def test_derive_seed_is_numpys_seed_sequence():
    draw = random.Random(0)
    for n in range(1, 12):
        parts = [draw.getrandbits(draw.choice((1, 32, 33, 64))) for _ in range(n)]
        sequence = np.random.SeedSequence([part & 0xFFFFFFFF for part in parts])
        assert derive_seed(*parts) == sequence.generate_state(1, np.uint64)[0]
