"""Two measurements of the same tasks: their paired difference, and the actions that failures leave out.

Pure functions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from agentq.errors import ConfigError
from agentq.evaluation.seeds import SeedDifference, seed_difference
from agentq.evaluation.stats import PairedResult, paired_difference
from agentq.types import Command, Step, Trajectory

SHOWN = 5  # of what an agent leaves out
ALIKE = 0.8  # tasks that two things share, of those that have one of them, for the second not to be shown
CLOSE = 0.5  # excess, as a share of the other's, for what is done before it to be told in its place
NAMED = 0.5  # of the tasks in which a role's element is left out, those of one name for names to be told
LEAST, SHARE = 2, 0.1  # tasks in which it must, and their share: else it is chance, or the name of something in a few
_SAYS = re.compile(r"^ *(?:- )?(?:text|heading|alert|status) ")  # lines that are no element
_ENDS = re.compile(r"[|\]]")  # what ends the element before in a row
_LONG = 60  # letters of an element's name, and of an action that is a text

Pair = tuple[Trajectory, Trajectory]  # of one task: the first agent's, the second's


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An action that one agent leaves out and the other takes in the same task.

    `what`: a command with its element, such as `SELECT combobox Party`; with `, the same text` if the agent does that
    with other texts only; `CLICK link, the same one` stands for links of any name. `lost`: number of tasks that only
    the other solves in which it is left out; `solved`: the same among tasks that both solve.
    """

    what: str
    lost: int
    solved: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two agents on the tasks that both tried and the world broke for neither.

    Attributes:
        n: number of tasks; with several seeds, a task counts once per seed.
        both, only_first, only_second: how many of them both agents solve, only the first, and only the second.
        difference: success of the second minus that of the first, paired by task; with several seeds also over seeds.
        by_env: per environment, tasks that only the second solves minus tasks that only the first solves, where this is
            not 0, the largest gain first; empty for a single environment.
        first_leaves_out: what the first leaves out where only the second succeeds, and less often where both succeed.
        second_leaves_out: the same for the second where only the first succeeds.
    """

    n: int
    both: int
    only_first: int
    only_second: int
    difference: PairedResult | SeedDifference
    by_env: dict[str, int]
    first_leaves_out: tuple[LeftOut, ...]
    second_leaves_out: tuple[LeftOut, ...]

    def __str__(self) -> str:
        lines = [f"second - first: {_points(self.difference)}; of {self.n} tasks both solve {self.both}"]
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
        ConfigError: if no task is left, or an agent has several episodes of a task.
    """
    pairs = _shared(first, second)
    return _of_pairs(pairs, paired_difference([b.success for _, b in pairs], [a.success for a, _ in pairs]))


def compare_seeds(first: Sequence[Iterable[Trajectory]], second: Sequence[Iterable[Trajectory]]) -> Comparison:
    """Compare two methods by their models of several training seeds, in the same order of seeds, as `compare` does.

    The difference is that of `agentq.evaluation.seeds.seed_difference`, which has an interval over seeds: what another
    training would give.

    Raises:
        ConfigError: if the numbers of models differ, or as `compare` does.
    """
    if len(first) != len(second):
        raise ConfigError(f"both methods must have a model of each seed; got {len(first)} and {len(second)}")
    seeds = [_shared(a, b) for a, b in zip(first, second, strict=True)]
    difference = seed_difference(
        [[b.success for _, b in pairs] for pairs in seeds],
        [[a.success for a, _ in pairs] for pairs in seeds],
        [[(a.task.env, a.task.seed) for a, _ in pairs] for pairs in seeds],
    )
    return _of_pairs([pair for pairs in seeds for pair in pairs], difference)


def _shared(first: Iterable[Trajectory], second: Iterable[Trajectory]) -> list[Pair]:
    """Both episodes of each task that both tried and the world broke for neither."""
    mine, theirs = _by_task(first), _by_task(second)
    tasks = [task for task in mine if task in theirs and not mine[task].broken and not theirs[task].broken]
    if not tasks:
        raise ConfigError(f"both must have episodes of the same tasks; got {len(mine)} and {len(theirs)}, none shared")
    return [(mine[task], theirs[task]) for task in tasks]


def _of_pairs(pairs: Sequence[Pair], difference: PairedResult | SeedDifference) -> Comparison:
    both = [(a, b) for a, b in pairs if a.success and b.success]
    only_first = [(a, b) for a, b in pairs if a.success and not b.success]
    only_second = [(a, b) for a, b in pairs if b.success and not a.success]
    return Comparison(
        len(pairs),
        len(both),
        len(only_first),
        len(only_second),
        difference,
        _by_env(only_first, only_second) if len({a.task.env for a, _ in pairs}) > 1 else {},
        _left_out([(b, a) for a, b in only_second], [(b, a) for a, b in both]),
        _left_out(only_first, both),
    )


def _points(difference: PairedResult | SeedDifference) -> str:
    def points(*shares: float) -> str:
        return " to ".join(f"{100 * share:+.1f}" for share in shares)

    d = difference
    if isinstance(d, PairedResult):
        return f"{points(d.diff)} points ({points(d.low, d.high)}), p {d.p_value:.2g}"
    over = f"{points(d.low, d.high)} over {len(d.by_seed)} seeds; {points(d.low_tasks, d.high_tasks)} over tasks"
    return f"{points(d.mean)} points ({over}), by seed {', '.join(map(points, d.by_seed))}"


def _by_task(episodes: Iterable[Trajectory]) -> dict[tuple[str, int], Trajectory]:
    found: dict[tuple[str, int], Trajectory] = {}
    for t in episodes:
        if (task := (t.task.env, t.task.seed)) in found:
            raise ConfigError(f"an agent must have one episode per task; got several of {t.task.env}, {t.task.seed}")
        found[task] = t
    return found


def _by_env(lost: list[Pair], won: list[Pair]) -> dict[str, int]:
    found = Counter(a.task.env for a, _ in won)
    found.subtract(a.task.env for a, _ in lost)
    return {env: n for env, n in sorted(found.items(), key=lambda each: (-each[1], each[0])) if n}


def _left_out(lost: list[Pair], solved: list[Pair]) -> tuple[LeftOut, ...]:
    """What the second of two episodes leaves out: commoner in `lost` than in `solved`, the largest excess first.

    Of what is left out in nearly the same tasks, only what is done first is told.
    """
    missed, of_all = defaultdict[str, set[int]](set), Counter[str]()
    places, names = defaultdict[str, list[int]](list), defaultdict[str, set[str]](set)
    for i, pair in enumerate(lost):
        for place, (what, role) in enumerate(_missing(*pair)):
            for each in dict.fromkeys((what, role)):
                missed[each].add(i)
                places[each].append(place)
            names[role].add(what)
    for pair in solved:
        of_all.update({each for two in _missing(*pair) for each in two})
    for role, named in names.items():
        alone = max(len(missed[what]) for what in named) >= NAMED * len(missed[role])
        for what in {role} - named if alone else named - {role}:
            missed.pop(what, None)
    first = {what: median(found) for what, found in places.items()}
    excess = {what: len(tasks) / len(lost) - of_all[what] / max(1, len(solved)) for what, tasks in missed.items()}
    kept: list[str] = []
    for what in sorted(missed, key=lambda what: (-excess[what], first[what], what)):
        if len(missed[what]) < max(LEAST, SHARE * len(lost)) or excess[what] <= 0:
            continue
        alike = [i for i, shown in enumerate(kept) if _alike(missed[what], missed[shown])]
        if not alike:
            kept.append(what)
        elif first[what] < first[kept[alike[0]]] and excess[what] >= CLOSE * excess[kept[alike[0]]]:
            kept[alike[0]] = what
    return tuple(LeftOut(what, len(missed[what]), of_all[what]) for what in kept[:SHOWN])


def _alike(some: set[int], others: set[int]) -> bool:
    return len(some & others) >= ALIKE * len(some | others)


def _missing(done: Trajectory, other: Trajectory) -> Iterator[tuple[str, str]]:
    """What is done in one episode and not in the other, in order, each with what stands for any name of its role."""
    theirs = defaultdict[str, set[str]](set)
    for step in other.steps:
        theirs[(it := deed(step)).what].add(it.text)
    for step in done.steps:
        it = deed(step)
        if it.what and it.what not in theirs:
            yield it.what, it.of_role or it.what
        elif it.what and it.text not in theirs[it.what]:
            yield (other_text := f"{it.what}, the same text"), other_text


class Deed(NamedTuple):
    """What a step does. An unreadable action does nothing, and all its texts are empty.

    `what`: the command with the element's role and name, as the page shows them; an action that is a text, such as a
    line of a game, is this text. `text`: what is written or chosen. `of_role`: `what` for any name, if it has one.
    """

    what: str
    text: str
    of_role: str


def deed(step: Step) -> Deed:
    """What a step does."""
    action = step.proposal.action.env_action
    if action is None:
        return Deed("", "", "")
    if not isinstance(action.command, Command):
        return Deed(" ".join(str(action).split())[:_LONG], "", "")
    element = _name(step.observation.text, action.element) if action.element is not None else ""
    role, _, name = element.partition(" ")
    what = f"{action.command} {element}".strip()
    return Deed(what, action.text or "", f"{action.command} {role}, the same one" if name else "")


def _name(page: str, element: int) -> str:
    """The role and name of an element: what stands before its number in its line, or in its cell of a row."""
    for line in page.split("\n"):
        before, found, _ = line.partition(f"[{element}]")
        if found and not _SAYS.match(line):
            return _ENDS.split(before)[-1].strip(" -,")[:_LONG]
    return ""
