"""What is said of a stage that collects: on the display, what is done, what grows and what the engines have used.

The stage's note tells what they have used and the wall time, over all interruptions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from agentq.envs.replies import one_line
from agentq.evaluation.stats import wilson
from agentq.policies.usage import Price, Usage
from agentq.recipes.resources import Resources
from agentq.searching.workers import Workers
from agentq.status import Show, own_memory
from agentq.store.run import RunStore

NOTE_EVERY_S = 10.0  # least number of seconds between two notes; a killed process loses what it used since the last
EVERY_S = 1.0  # least number of seconds between two lines of unfinished searches
SHOWN = 120  # characters of the world's message


class StageLine:
    """Counts the items that end now, and shows a line for each, and for rollouts of searches that have not ended."""

    def __init__(
        self, store: RunStore, stage: str, show: Show, resources: Resources, workers: Workers | None, price: Price
    ) -> None:
        self.store, self.stage, self.show = store, stage, show
        self.resources, self.workers, self.price = resources, workers, price
        note = store.note(stage) or {}
        self.earlier, self.seconds = Usage.from_note(note), float(note.get("seconds", 0.0))
        self.before, self.then, self.begun = self._usage(), resources.computed(), time.monotonic()
        self.done = self.wins = self.broken = self.seen = 0
        self.message = ""
        self.growing: Mapping[int, tuple[float, int]] = {}
        self.shown = self.noted = self.begun

    @property
    def used(self) -> Usage:
        """What the engines used since the stage began."""
        return self._usage().since(self.before)

    def on_item(self, done: int, _: int, success: bool | None, message: str = "") -> None:
        """See `searching.collect.OnItem`."""
        self.message = one_line(message)[:SHOWN] or self.message
        self.done, self.seen = done, self.seen + 1
        self.wins, self.broken = self.wins + bool(success), self.broken + (success is None)
        self._show()

    def on_growth(self, growing: Mapping[int, tuple[float, int]]) -> None:
        """See `searching.collect.OnGrowth`."""
        if not growing:
            if not self.seen and not self.growing:
                self.show(0, "")
            return
        self.growing = growing
        if time.monotonic() - self.shown >= EVERY_S:
            self._show()

    def note(self) -> None:
        """Write the usage and the time of the stage to its note."""
        self.noted = time.monotonic()
        seconds = {"seconds": self.seconds + self.noted - self.begun}
        note = self.store.note(self.stage) or {}
        self.store.set_note(self.stage, {**note, **seconds, **(self.earlier + self.used).to_note()})

    def _show(self) -> None:
        self.shown = time.monotonic()
        if self.shown - self.noted >= NOTE_EVERY_S:
            self.note()
        self.show(self.done, ", ".join(filter(None, self._told())), sum(share for share, _ in self.growing.values()))

    def _told(self) -> Iterator[str]:
        """Successes of the items done now with a 95 % interval, rollouts, faults, tokens, time, money, memory."""
        if self.seen:
            low, high = wilson(self.wins, self.seen)
            last = "the last " if self.seen < self.done else ""  # an earlier process did the others
            yield f"{self.wins} of {last}{self.seen} succeeded ({100 * low:.0f} - {100 * high:.0f} %)"
        rollouts = sum(n for _, n in self.growing.values())
        yield f"{rollouts} rollout{'s' * (rollouts > 1)} of unfinished trees" if rollouts else ""
        yield f"{self.broken} broken by the world, the last: {self.message}" if self.broken else ""
        used, seconds = self.used, time.monotonic() - self.begun
        yield str(used)
        seconds *= self.resources.num_computing(self.then, self.workers)
        yield f"engines busy {min(1.0, used.seconds / max(seconds, 1e-9)):.0%}" if used.seconds else ""
        money = self.price.of(used.total)
        yield f"cost {money:.4g}" if money else ""
        yield f"{own_memory() / 1e6:.0f} MB" if own_memory() else ""
        yield str(self.workers or "")

    def _usage(self) -> Usage:
        return self.resources.usage + (self.workers.usage if self.workers is not None else Usage())
