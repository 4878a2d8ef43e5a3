"""What a terminal shows of a run: a line per stage, and above them how far the whole run is. Plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

EVERY_S = 15.0  # between two plain lines of a stage
SILENT_S = 2.0  # for which `Late` shows nothing


class Planned(NamedTuple):
    """A stage of a run: its items, and the seconds it took if it is done."""

    name: str
    items: int
    seconds: float | None = None

    @property
    def kind(self) -> str:
        """`collect`, `learn`, `eval`: stages of a kind take equally long per item, as far as one knows."""
        return self.name.rpartition("/")[2]


class Show(Protocol):
    """Shows how far a stage is: its finished units, a short note, and the parts of unfinished units, if known.

    With nothing of these it says that the work begins now, after models were loaded.
    """

    def __call__(self, done: int, note: str, grown: float = 0.0, /) -> None: ...


class StageDisplay(Protocol):
    """Shows the progress of stages to the user."""

    def stage(self, name: str, total: int, unit: str) -> Show:
        """Start showing a stage, of which the returned function then shows how far it is."""
        ...

    def plan(self, stages: Sequence[Planned], in_flight: int) -> None:
        """The stages of the run in their order, as far as they are known, and how many items are in flight at once."""
        ...

    def say(self, text: str) -> None:
        """Show text between stages."""
        ...


class Pace:
    """How long a stage still takes. The work done so far includes half of each item in flight, or what is known.

    Without that, a stage whose first 32 items end together would seem 32 times as long until they do. The work left
    includes five sixths of each: half is left of items that all take as long, and most of the longest, which end last.
    """

    def __init__(self, total: int, in_flight: int, begun: float) -> None:
        self.total, self.in_flight, self.begun = total, in_flight, begun
        self.before: int | None = None  # items that were done when the stage went on

    def left(self, done: int, now: float, grown: float = 0.0) -> float:
        """Seconds, from the number of items that are done, and the parts of others that are known to be."""
        if self.before is None:
            self.before = done if grown else max(0, done - 1)
        rest = self.total - done
        if not rest:
            return 0.0
        if grown:
            return (now - self.begun) * max(0.0, rest - grown) / (done - self.before + grown)
        in_flight = min(self.in_flight, rest)
        worked = max(done - self.before + in_flight / 2, 0.5)
        return (now - self.begun) * (rest - in_flight / 6) / worked


class Ahead:
    """What is known of the stages to come. A stage takes per item what the last of its kind took."""

    def __init__(self, planned: Sequence[Planned]) -> None:
        self.planned = {stage.name: stage for stage in planned}

    def ended(self, name: str, items: int, seconds: float) -> None:
        """A stage is done."""
        self.planned[name] = Planned(name, items, seconds)

    def left(self, but: str = "") -> tuple[float, int]:
        """Seconds of the stages that are not done, but for one, and how many of them are of an unknown kind."""
        each = {s.kind: s.seconds / max(1, s.items) for s in self.planned.values() if s.seconds}
        todo = [s for s in self.planned.values() if s.seconds is None and s.name != but]
        known = [each[s.kind] * s.items for s in todo if s.kind in each and s.items]
        return sum(known), len(todo) - len(known)

    @property
    def done(self) -> int:
        """Number of stages that are done."""
        return sum(s.seconds is not None for s in self.planned.values())


class RichStatus:
    """One bar per stage on a terminal; elsewhere (logs, CI) a plain line every `every_s` seconds."""

    def __init__(self, console: Console | None = None, *, every_s: float = EVERY_S) -> None:
        self.console = console or Console(stderr=True)
        self.every_s = every_s
        self.ahead, self.in_flight = Ahead(()), 0
        self.progress = Progress(
            TextColumn("{task.description:<28}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[of]:>7}"),
            TextColumn("{task.fields[unit]:<9}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.whole: TaskID | None = None

    def __enter__(self) -> RichStatus:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.progress.stop()

    def begin(self, what: str) -> None:
        """Show at once what is begun, before models are loaded. A log needs no such line."""
        if self.console.is_terminal:
            self.say(what)
            self.whole = self.progress.add_task("loading", total=None, of="", unit="stages", left="", note="")

    def plan(self, stages: Sequence[Planned], in_flight: int) -> None:
        """See `StageDisplay`."""
        self.ahead, self.in_flight = Ahead(stages), in_flight
        self._show_whole("", 0.0)

    def stage(self, name: str, total: int, unit: str) -> Show:
        """See `StageDisplay`."""
        last = time.monotonic()
        pace = Pace(total, 0 if unit == "steps" else self.in_flight, last)
        bar = self.progress.add_task(name, total=total, of=f"0/{total:,}", unit=unit, left="", note="")
        self.ahead.planned[name] = Planned(name, total)

        def show(done: int, note: str, grown: float = 0.0, /) -> None:
            nonlocal last
            now = time.monotonic()
            if not (done or note or grown):
                pace.begun = last = now
                return
            left = pace.left(done, now, grown)
            told = f"{duration(left)} left" if done < total else ""
            self.progress.update(bar, completed=done + grown, of=f"{done:,}/{total:,}", note=note, left=told)
            if done == total:
                self.ahead.ended(name, total, max(now - pace.begun, 1e-9))
            self._show_whole(name, left)
            if not self.console.is_terminal and (done == total or now - last >= self.every_s):
                last = now
                rate = (done + grown - (pace.before or 0)) / max(now - pace.begun, 1e-9)
                speed = f"{rate:.2f}/s" if rate < 100 else f"{rate:,.0f}/s"
                said = f"{name}: {done:,}/{total:,} {unit}, {speed}, {duration(left)} left{note and f'; {note}'}"
                self.console.print(said + self._whole(name, left), highlight=False, markup=False, soft_wrap=True)

        return show

    def say(self, text: str) -> None:
        """See `StageDisplay`."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show_whole(self, name: str, left: float) -> None:
        if self.whole is None or not self.ahead.planned:
            return
        seconds, unknown = self.ahead.left(name)
        more = f" and {unknown} stage{'s' if unknown > 1 else ''} more" if unknown else ""
        self.progress.update(
            self.whole,
            description="all stages",
            total=len(self.ahead.planned),
            completed=self.ahead.done,
            of=f"{self.ahead.done}/{len(self.ahead.planned)}",
            left=f"about {duration(left + seconds)}{more} left" if self.ahead.done < len(self.ahead.planned) else "",
        )

    def _whole(self, name: str, left: float) -> str:
        """The same for the end of a plain line; empty for a command of one stage."""
        if len(self.ahead.planned) < 2:
            return ""
        seconds, unknown = self.ahead.left(name)
        more = f" and {unknown} stage{'s' if unknown > 1 else ''} more" if unknown else ""
        return f"; {self.ahead.done} of {len(self.ahead.planned)} stages, about {duration(left + seconds)}{more} left"


class Late:
    """`RichStatus` for commands that seldom take long: it shows a stage that is not done after `SILENT_S`."""

    def __init__(self, status: RichStatus) -> None:
        self.status = status

    def stage(self, name: str, total: int, unit: str) -> Show:
        """See `StageDisplay`."""
        begun, shown = time.monotonic(), list[Show]()

        def show(done: int, note: str, grown: float = 0.0, /) -> None:
            if not shown and done < total and time.monotonic() - begun >= SILENT_S:
                shown.append(self.status.stage(name, total, unit))
            for each in shown:
                each(done, note, grown)

        return show

    def plan(self, stages: Sequence[Planned], in_flight: int) -> None:
        """See `StageDisplay`."""
        self.status.plan(stages, in_flight)

    def say(self, text: str) -> None:
        """See `StageDisplay`."""
        self.status.say(text)


def own_memory() -> int:
    """Bytes of main memory that this process holds now; the most it has held on macOS; 0 on Windows."""
    if sys.platform == "win32":
        return 0
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def duration(seconds: float) -> str:
    """`3 h 05 min`, `4 min 10 s`, `25 s`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
