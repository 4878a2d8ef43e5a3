"""Seeds of all samples. Each is derived from the run's seed, the task and the stream it belongs to."""

from __future__ import annotations

from enum import IntEnum

from agentq._core import seed_of
from agentq.types import Task


class Stream(IntEnum):
    """The use of a seed. Streams keep samples of different uses independent; changing a value changes results.

    Rollouts have no stream: they use the attempt number in its place, which is smaller than every value here.
    """

    TREE = 1 << 20  # proposals and critic orders at the nodes of a search tree
    INSPECTION = 1 << 21  # the policy's own actions alongside a demonstration's
    BRANCH = 1 << 22  # rollouts that start from the middle of another
    SELECTION = 1 << 23  # draws of the selection rules gumbel and thompson


def derive_seed(*parts: int) -> int:
    """A 64-bit seed from the lower 32 bits of each part, as NumPy's SeedSequence: equal parts give equal seeds."""
    return seed_of([part & 0xFFFFFFFF for part in parts])


def task_seed(run_seed: int, task: Task, *parts: int) -> int:
    """A 64-bit seed for `task`, whose own seed may have 64 bits; each of `parts` has 32."""
    return derive_seed(run_seed, task.seed, task.seed >> 32, *parts)
