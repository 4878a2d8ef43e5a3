"""The results of `agentq.search`, `agentq.evaluate` and `agentq.train`."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from statistics import fmean

from agentq.credit.pairs import node_pairs
from agentq.evaluation.comparison import Comparison, compare
from agentq.evaluation.endings import is_cut
from agentq.evaluation.outcomes import best_episode
from agentq.evaluation.stats import RungResult, wilson
from agentq.notebook import evaluation_table, rung_table
from agentq.report.picture import svg_picture, text_picture
from agentq.store.records import TreeRecord
from agentq.types import PreferencePair, Trajectory


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """One searched tree. To wrap a stored tree, pass one of `RunStore.trees`: `SearchResult(tree)`."""

    tree: TreeRecord

    @property
    def success(self) -> bool:
        """Whether any episode of the tree solved the task."""
        return bool(self.tree.success.any())

    @property
    def trajectory(self) -> Trajectory:
        """The best episode: a success if there is one, else the highest return; the most visited path if none ended."""
        return best_episode(self.tree)

    def pairs(
        self,
        *,
        alpha: float = 0.75,
        threshold: float = 0.5,
        max_pairs_per_node: int = 4,
        min_visits: int = 1,
    ) -> list[PreferencePair]:
        """Preference pairs of the tree, see `agentq.node_pairs`. Raises ConfigError if its actions have no tokens.

        The defaults are those of `agentq.train`. Where no critic ranked a node's actions, alpha is 1.
        """
        return node_pairs(
            self.tree,
            alpha=alpha,
            threshold=threshold,
            max_pairs_per_node=max_pairs_per_node,
            min_visits=min_visits,
        )

    def show(self, max_rows: int = 40) -> str:
        """The tree as text: the actions tried, with visits and values."""
        return text_picture(self.tree, max_rows)

    def svg(self, max_rows: int = 40) -> str:
        """The same picture as an SVG document; a notebook displays it automatically."""
        return svg_picture(self.tree, max_rows)

    def __repr__(self) -> str:
        return self.show()

    def _repr_html_(self) -> str:
        return self.svg()


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """One episode per held-out task, in the order of the tasks."""

    episodes: tuple[Trajectory, ...]

    @property
    def n(self) -> int:
        """Number of tasks."""
        return len(self.episodes)

    @property
    def successes(self) -> int:
        """Number of tasks solved. A task that the world broke counts as not solved."""
        return sum(t.success for t in self.episodes)

    @property
    def broken(self) -> int:
        """Number of tasks that the world broke."""
        return sum(t.broken for t in self.episodes)

    @property
    def rate(self) -> float:
        """Success rate, in [0, 1]."""
        return self.successes / self.n

    @property
    def mean_return(self) -> float:
        """Mean return over the tasks: the score of a benchmark that rewards tasks in part."""
        return fmean(t.return_ for t in self.episodes)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the rate (Wilson)."""
        return wilson(self.successes, self.n)

    def compare(self, other: Evaluation) -> Comparison:
        """The gain of `other` over this evaluation on the same tasks, and the actions that each leaves out. Print it.

        Raises:
            ConfigError: if the two have no task in common.
        """
        return compare(self.episodes, other.episodes)

    def __repr__(self) -> str:
        low, high = self.interval
        more = f", {self.broken} broken by the world" if self.broken else ""
        if not isclose(self.mean_return, self.rate, abs_tol=1e-9):
            more += f", mean return {self.mean_return:.3f}"
        if cut := sum(is_cut(step.proposal) for t in self.episodes for step in t.steps):
            more += f", {cut} actions cut off at max_new_tokens"
        percent = f"{100 * self.rate:.1f} %, 95 % interval {100 * low:.1f} - {100 * high:.1f}"
        return f"{self.successes} of {self.n} tasks ({percent}{more})"

    def show(self) -> str:
        """The same text as `str`."""
        return str(self)

    def _repr_html_(self) -> str:
        return evaluation_table(str(self), self.episodes)


class Rungs(list[RungResult]):
    """The measured models of a run, the base first. A notebook shows them as a table, `print` as lines."""

    def show(self) -> str:
        """Success on held-out tasks, one line per model, with the gain over the base where it was measured."""
        width = max((len(rung.name) for rung in self), default=0)
        lines = []
        for rung in self:
            found = f"{rung.successes} of {rung.n} tasks, {100 * rung.rate:.1f} % ({percents(rung.low, rung.high)})"
            gain = rung.against_base
            more = (
                f"; {100 * gain['diff']:+.1f} points over the base ({percents(gain['low'], gain['high'])})"
                if gain
                else ""
            )
            lines.append(f"{rung.name:<{width}}  {found}{more}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.show()

    def _repr_html_(self) -> str:
        return rung_table(self)


def percents(low: float, high: float) -> str:
    """An interval in per cent, or in points if it is of a difference: `41.2 to 53.0`."""
    return f"{100 * low:.1f} to {100 * high:.1f}"
