"""Two measurements of the same tasks: the paired difference, and what failures leave out that successes do.

Pure functions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from agentq.evaluation.stats import PairedResult, paired_difference
from agentq.types import Command, Step, Trajectory

SHOWN = 5  # of what an agent leaves out
LEAST, SHARE = 2, 0.1  # tasks in which it must, and their share: else it is chance, or the name of something in a few
_SAYS = re.compile(r"^ *(?:- )?(?:text|heading|alert|status) ")  # lines that are no element
_ENDS = re.compile(r"[|\]]")  # what ends the element before in a row
_LONG = 60  # letters of an action that is a text


class LeftOut(NamedTuple):
    """Something that an agent leaves out, and the other does in the same task.

    `what`: a command with its element, such as `SELECT combobox Party`; with `, the same text` if the agent does that
    with other texts only. `lost`: in how many of the tasks that only the other solves; `solved`: of those that both do.
    """

    what: str
    lost: int
    solved: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two agents on the tasks that both tried and the world broke for neither.

    Attributes:
        n: number of the tasks. `both`, `only_first`, `only_second`: how many of them are solved by whom.
        difference: success of the second minus that of the first, paired by task.
        by_env: tasks that only the second solves minus those that only the first does, of each environment where they
            are not as many, the largest gain first; empty for a single environment.
        first_leaves_out: what the first leaves out where only the second succeeds, and less often where both do.
        second_leaves_out: the same for the second where only the first succeeds.
    """

    n: int
    both: int
    only_first: int
    only_second: int
    difference: PairedResult
    by_env: dict[str, int]
    first_leaves_out: tuple[LeftOut, ...]
    second_leaves_out: tuple[LeftOut, ...]

    def __str__(self) -> str:
        diff, low, high = (100 * share for share in (self.difference.diff, self.difference.low, self.difference.high))
        lines = [
            f"second - first: {diff:+.1f} points ({low:+.1f} to {high:+.1f}), p {self.difference.p_value:.2g}; "
            f"of {self.n} tasks both solve {self.both}"
        ]
        if self.by_env:
            rows = [f"{n:+d} {env}" for env, n in self.by_env.items()]
            shown = rows if len(rows) <= 2 * SHOWN else [*rows[:SHOWN], "..", *rows[-SHOWN:]]
            lines.append(f"tasks won and lost by environment: {', '.join(shown)}")
        for one, other, lost, found in (
            ("first", "second", self.only_second, self.first_leaves_out),
            ("second", "first", self.only_first, self.second_leaves_out),
        ):
            heading = f"{lost} {'task' if lost == 1 else 'tasks'} only the {other} solves"
            lines += ["", heading + f"; there the {one} leaves out" * bool(found)]
            lines += [f"  {each.lost:>4} of {lost}  {each.what}  ({each.solved} of {self.both})" for each in found]
        if self.first_leaves_out or self.second_leaves_out:
            lines += ["", "In brackets: in how many of the tasks that both solve."]
        return "\n".join(lines)


def compare(first: Iterable[Trajectory], second: Iterable[Trajectory]) -> Comparison:
    """Compare two agents by their episodes, at most one per task. Tasks that one of them did not try are left out.

    What one leaves out is what it did not do, which need not be why it failed. The more often it is left out where it
    fails, and the more seldom where both succeed, the likelier it is the reason.

    Raises:
        ValueError: if no task is left, or an agent has several episodes of a task.
    """
    mine, theirs = _by_task(first), _by_task(second)
    tasks = [task for task in mine if task in theirs and not mine[task].broken and not theirs[task].broken]
    if not tasks:
        raise ValueError(f"both must have episodes of the same tasks; got {len(mine)} and {len(theirs)}, none shared")
    pairs = [(mine[task], theirs[task]) for task in tasks]
    difference = paired_difference([b.success for _, b in pairs], [a.success for a, _ in pairs])
    both = [(a, b) for a, b in pairs if a.success and b.success]
    only_first = [(a, b) for a, b in pairs if a.success and not b.success]
    only_second = [(a, b) for a, b in pairs if b.success and not a.success]
    return Comparison(
        len(pairs),
        len(both),
        len(only_first),
        len(only_second),
        difference,
        _by_env(only_first, only_second) if len({env for env, _ in tasks}) > 1 else {},
        _left_out([(b, a) for a, b in only_second], [(b, a) for a, b in both]),
        _left_out(only_first, both),
    )


def _by_task(episodes: Iterable[Trajectory]) -> dict[tuple[str, int], Trajectory]:
    found: dict[tuple[str, int], Trajectory] = {}
    for t in episodes:
        if (task := (t.task.env, t.task.seed)) in found:
            raise ValueError(f"an agent must have one episode per task; got several of {t.task.env}, {t.task.seed}")
        found[task] = t
    return found


def _by_env(lost: list[tuple[Trajectory, Trajectory]], won: list[tuple[Trajectory, Trajectory]]) -> dict[str, int]:
    found = Counter(a.task.env for a, _ in won)
    found.subtract(a.task.env for a, _ in lost)
    return {env: n for env, n in sorted(found.items(), key=lambda each: (-each[1], each[0])) if n}


def _left_out(
    lost: list[tuple[Trajectory, Trajectory]], solved: list[tuple[Trajectory, Trajectory]]
) -> tuple[LeftOut, ...]:
    """What the second of two episodes leaves out: commoner in `lost` than in `solved`, the largest excess first.

    Ties: what comes first in the episodes.
    """
    missed, of_all = Counter[str](), Counter(what for pair in solved for what in _missing(*pair))
    at: dict[str, int] = {}
    for pair in lost:
        for place, what in enumerate(_missing(*pair)):
            missed[what] += 1
            at[what] = min(place, at.get(what, place))
    excess = {what: n / len(lost) - of_all[what] / max(1, len(solved)) for what, n in missed.items()}
    common = [what for what, n in missed.items() if n >= max(LEAST, SHARE * len(lost)) and excess[what] > 0]
    ranked = sorted(common, key=lambda what: (-excess[what], at[what]))
    return tuple(LeftOut(what, missed[what], of_all[what]) for what in ranked[:SHOWN])


def _missing(done: Trajectory, other: Trajectory) -> dict[str, None]:
    """What is done in one episode and not in the other, in the order in which it is done."""
    theirs = defaultdict[str, set[str]](set)
    for step in other.steps:
        what, text = deed(step)
        theirs[what].add(text)
    found: dict[str, None] = {}
    for step in done.steps:
        what, text = deed(step)
        if what and what not in theirs:
            found[what] = None
        elif what and text not in theirs[what]:
            found[f"{what}, the same text"] = None
    return found


def deed(step: Step) -> tuple[str, str]:
    """A step's command with the element's role and name as the page shows them, and its text; empty if unreadable.

    An action that is a text, such as a line of a game, is the first of the two.
    """
    action = step.proposal.action.env_action
    if action is None:
        return "", ""
    if not isinstance(action.command, Command):
        return " ".join(str(action).split())[:_LONG], ""
    name = _name(step.observation.text, action.element) if action.element is not None else ""
    return f"{action.command} {name}".strip(), action.text or ""


def _name(page: str, element: int) -> str:
    """The role and name of an element: what stands before its number in its line, or in its cell of a row."""
    for line in page.split("\n"):
        before, found, _ = line.partition(f"[{element}]")
        if found and not _SAYS.match(line):
            return _ENDS.split(before)[-1].strip(" -,")
    return ""
