"""Which episode counts without a checker: rules on hand-made trees, and what search and episodes cost alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from agentq.errors import EnvError
from agentq.evaluation.endings import NOT_CHOSEN, end_of_tree
from agentq.evaluation.outcomes import best_episode, counted_episode, of_tree
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.choices import by_majority, by_score, by_value
from agentq.searching.collect import attempts, choices, trees
from agentq.searching.episodes import Score
from agentq.searching.faults import Resets
from agentq.searching.selection import SearchSettings
from agentq.store.records import TERMINAL, TreeRecord
from agentq.types import EnvAction, History, Observation, StepResult, Task
from tests.records_factory import click, make_proposal, make_task
from tests.test_search import CODE, TASK, Lock, Passing, _click


def hand_made(
    parent: Sequence[int], pages: Sequence[str], visits: Sequence[int], values: Sequence[float], critic: Sequence[float]
) -> TreeRecord:
    """A tree whose nodes without children are the ends of episodes."""
    n, ends = len(parent), [i for i in range(len(parent)) if i not in parent]
    depth = [0] * n
    for i in range(1, n):
        depth[i] = depth[parent[i]] + 1
    return TreeRecord(
        task=make_task(),
        parent=np.array(parent),
        depth=np.array(depth),
        visit_count=np.array(visits),
        value_sum=np.array(values) * np.array(visits),
        critic_value=np.array(critic),
        flags=np.isin(np.arange(n), ends) * TERMINAL,
        proposal=[None, *(make_proposal(i, env_action=click(i)) for i in range(1, n))],
        observation=[Observation(page) for page in pages],
        reward=np.zeros(n),
        success=np.zeros(n, bool),
        error_kind=[None] * n,
        info={"ends": ends, "answers": ends, "scores": [0.0] * len(ends)},
    )


def tree(visits: Sequence[int], values: Sequence[float], critic: Sequence[float]) -> TreeRecord:
    #       0
    #     1   2
    #    3 4 5 6
    return hand_made([-1, 0, 0, 1, 1, 2, 2], "0123456", visits, values, critic)


@pytest.mark.parametrize(
    ("visits", "values", "critic", "end"),
    [
        ([6, 4, 2, 2, 2, 1, 1], [0.4, 0.2, 0.8, 0.4, 0.0, 0.6, 1.0], [0.5, 1, 0, 1, 0, 1, 0], 6),  # by Q all the way
        ([6, 4, 2, 2, 2, 1, 1], [0.0] * 7, [0.5, 0.2, 0.8, 1, 0, 0.3, 0.4], 6),  # equal Q: the critic's values
        ([6, 4, 2, 1, 3, 1, 1], [0.0] * 7, [0.5] * 7, 4),  # nothing known: where the search went
        ([4, 2, 2, 1, 1, 1, 1], [0.0] * 7, [0.5] * 7, 3),  # and in the order of the children
        ([2, 2, 0, 0, 2, 0, 0], [0.0, 0.0, 0.9, 0.9, 0.0, 0.9, 0.9], [0.5, 0, 1, 1, 0, 1, 1], 4),  # tried ones alone
        ([0] * 7, [0.0] * 7, [0.5] * 7, 0),
    ],
)
def test_the_best_path_by_value(
    visits: Sequence[int], values: Sequence[float], critic: Sequence[float], end: int
) -> None:
    assert by_value(tree(visits, values, critic)) == end


def chains(pages: str, answers: Sequence[int], scores: Sequence[float] = ()) -> TreeRecord:
    """Episodes of one step that end on these pages; `answers`: those that gave one."""
    n = len(pages)
    found = hand_made([-1, *[0] * n], ["start", *pages], [n, *[1] * n], [0.0] * (n + 1), [0.5] * (n + 1))
    found.info |= {"answers": [i + 1 for i in answers], "scores": list(scores)}
    return found


@pytest.mark.parametrize(
    ("pages", "answers", "end"),
    [
        ("abcb", (0, 1, 2, 3), 2),  # two of four, and the first of the two
        ("abcab", (0, 1, 2, 3, 4), 1),  # a tie: the page that was reached first
        ("aabcb", (0, 2, 4), 3),  # out of steps is no vote
        ("abb", (), 1),  # no answer: the policy's own episode
        ("", (), 0),
    ],
)
def test_the_majority_of_last_pages(pages: str, answers: Sequence[int], end: int) -> None:
    assert by_majority(chains(pages, answers)) == end


def test_the_best_of_n_by_the_judge_and_then_by_likelihood() -> None:
    found = chains("abcd", (1, 2, 3), (0.5, 1.0, 1.0))
    for third, fourth, end in ((-3.0, -1.0, 4), (-1.0, -3.0, 3), (-1.0, np.nan, 3), (np.nan, -1.0, 4)):
        for i, logp in enumerate((-0.1, -0.1, third, fourth), start=1):
            proposal = found.proposal[i]
            assert proposal is not None
            found.proposal[i] = replace(proposal, logps=np.full(len(proposal.logps), logp, np.float32))
        assert by_score(found) == end  # of the two with score 1 the likelier; episode 1 gave no answer
    found.info |= {"answers": [], "scores": []}
    assert by_score(found) == 1


def settings(max_calls: int = 0, episodes: int = 60) -> SearchSettings:
    return SearchSettings(episodes, 2, seed=1, max_calls=max_calls)


def episodes_of(
    s: SearchSettings, choice: Callable[[TreeRecord], int], score: Score | None = None, env: type[Lock] = Lock
) -> TreeRecord:
    (item,) = attempts([TASK])
    found = asyncio.run(choices(env, ScriptedPolicy(_click), s, choice, score)(item, Resets()))  # type: ignore[arg-type]
    assert isinstance(found, TreeRecord)
    return found


@pytest.mark.parametrize("s", [settings(episodes=4), settings(max_calls=12)])
def test_episodes_tell_what_share_of_them_is_done(s: SearchSettings) -> None:
    told: list[float] = []
    (item,) = attempts([TASK])
    resets = Resets(grew=lambda seed, rollouts, share: told.append(share))
    asyncio.run(choices(Lock, ScriptedPolicy(_click), s, by_majority)(item, resets))  # type: ignore[arg-type]
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_episodes_stop_where_the_calls_end_and_the_checker_sees_the_chosen_one_alone() -> None:
    found = episodes_of(settings(max_calls=20), by_majority)
    # three clicks an episode: the seventh would need the 21st call, and is left out, but for the cost of its two
    assert (found.info["iterations"], len(found.info["ends"]), found.info["calls"]) == (6, 6, 20)
    assert of_tree(found).steps == 3 and of_tree(found).success == bool(found.success[by_majority(found)])
    assert found.children(0).tolist() == [1, 4, 7, 10, 13, 16] and found.depth.max() == 3


def test_the_judge_scores_answers_and_chooses_what_the_checker_then_measures() -> None:
    seen: list[str] = []

    async def score(end: History) -> float:
        seen.append(end.observation.text)
        return float(end.observation.text == f"heading {' '.join(map(str, CODE))}")

    found = episodes_of(settings(episodes=150), by_score, score)
    assert len(seen) == 150 == found.info["iterations"] and 1.0 in found.info["scores"]
    assert of_tree(found)[:3] == (True, 1.0, 3) and end_of_tree(found).stop == "" and found.info["succeeded"]
    wrong = episodes_of(settings(episodes=150), lambda t: next(end for end in t.info["ends"] if not t.success[end]))
    assert not of_tree(wrong).success and end_of_tree(wrong).stop == NOT_CHOSEN


def test_the_chosen_episode_is_the_one_that_counts_whatever_the_others_did() -> None:
    def wrong(t: TreeRecord) -> int:
        return next(end for end in t.info["ends"] if not t.success[end])

    found = episodes_of(settings(episodes=150), wrong)
    end, chosen = wrong(found), counted_episode(found)
    assert found.success.any() and best_episode(found).success and found.info["checked"]["end"] == end
    assert [step.proposal for step in chosen.steps] == [found.proposal[node] for node in found.path(end)[1:]]
    assert (chosen.success, chosen.return_, chosen.steps[-1].result.success) == (False, 0.0, False)
    del found.info["checked"]["end"]  # as earlier versions recorded it
    assert counted_episode(found) == best_episode(found)
    assert counted_episode(episodes_of(settings(max_calls=2), by_majority)).steps == ()  # no episode was whole


def test_a_success_on_the_way_is_no_success_of_an_episode() -> None:
    found = episodes_of(settings(episodes=4), by_majority, env=Passing)
    assert len(found.info["ends"]) == 4 and not found.success.any()


class Slow(Lock):
    """A lock on which an episode that begins with 0 runs out of steps."""

    def step(self, env_action: EnvAction | None) -> StepResult:
        result = super().step(env_action)
        return replace(result, terminated=False, truncated=True) if self.clicked[0] == 0 < result.terminated else result


def test_an_episode_out_of_steps_is_no_answer() -> None:
    async def score(end: History) -> float:
        assert not end.observation.text.startswith("heading 0")
        return 0.5

    found = episodes_of(settings(episodes=30), by_score, score, Slow)
    answers = [end for end in found.info["ends"] if _first(found, end) != 0]
    assert found.info["answers"] == answers and found.info["scores"] == [0.5] * len(answers)
    assert 0 < len(answers) < len(found.info["ends"]) == 30


def _first(tree: TreeRecord, end: int) -> int | None:
    proposal = tree.proposal[tree.path(end)[1]]
    assert proposal is not None and proposal.action.env_action is not None
    return proposal.action.env_action.element


class Closing(Lock):
    """A lock that cannot be reached any more after so many episodes."""

    episodes = 2

    def reset(self, task: Task) -> Observation:
        if self.resets == self.episodes:
            raise EnvError("it is closed")
        return super().reset(task)


def test_episodes_before_the_world_broke_are_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    found = episodes_of(settings(), by_majority, env=Closing)
    assert (found.info["iterations"], found.info["faults"]) == (2, {"reset_failed": 1})
    assert of_tree(found)[2] == 3 and not of_tree(found).broken
    monkeypatch.setattr(Closing, "episodes", 0)
    assert of_tree(episodes_of(settings(), by_majority, env=Closing)).broken


class NoVerdict:
    """A judge that approves of nothing."""

    async def settle(self, history: History, result: StepResult) -> StepResult:
        return replace(result, reward=0.0, success=False)


@pytest.mark.parametrize("most", [0, 50, 100, 119])
def test_a_search_samples_at_most_so_many_actions(most: int) -> None:
    (item,) = attempts([TASK])
    limited = SearchSettings(8, 20, seed=1, max_calls=most)  # a node is worth 20 calls, a first rollout 60
    work = trees(Lock, ScriptedPolicy(_click), None, limited, judge=NoVerdict())
    found = asyncio.run(work(item, Resets()))  # type: ignore[arg-type]
    assert isinstance(found, TreeRecord)
    calls = found.info["calls"]
    assert calls == 20 * len([node for node in range(len(found)) if len(found.children(node))])
    assert most - 20 < calls <= most if most else found.info["iterations"] == 8
    assert of_tree(found).steps == (0 if most == 50 else 3)
