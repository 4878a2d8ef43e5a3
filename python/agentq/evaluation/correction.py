"""Self-correction: whether an agent that took a wrong step still solves the task. On sites that have an expert.

A step is wrong if the page changed and the expert needs at least as many steps as before: it led away, or met an error.
A step that changes nothing, such as choosing what is chosen, is not. Ours: the papers show self-correction by example.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentq.agent.actions import history_text
from agentq.envs.web_env import Expert, WebEnv
from agentq.errors import EnvError
from agentq.evaluation.comparison import deed
from agentq.types import Task, Trajectory

FAR = 500  # steps after which the expert is lost


@dataclass(frozen=True, slots=True)
class Correction:
    """Of episodes that are not broken.

    Attributes:
        episodes: their number.
        strayed: success by task seed of those with at least one wrong step.
        lost: number of those with a step after which the expert could not succeed either.
        steps: number of wrong steps.
        first: what the first wrong step did, by task seed, of those with at least one.
        circled: number of failed episodes that took an action twice on the same page.
    """

    episodes: int
    strayed: dict[int, bool]
    lost: int
    steps: int
    first: dict[int, str]
    circled: int

    @property
    def corrected(self) -> int:
        """Number of episodes with a wrong step that succeeded."""
        return sum(self.strayed.values())


def self_correction(env: WebEnv, expert: Expert, episodes: Iterable[Trajectory]) -> Correction:
    """Do each episode again in `env`, with the expert's way to the end from each of its states.

    Raises:
        EnvError: if an episode ends differently, or goes on where it ended.
    """
    number = lost = steps = circled = 0
    strayed: dict[int, bool] = {}
    first: dict[int, str] = {}
    for episode in episodes:
        if episode.broken:
            continue
        number += 1
        wrong = wrong_steps(env, expert, episode)
        steps += len(wrong)
        lost += None in wrong.values()
        circled += not episode.success and circles(episode)
        if wrong:
            strayed[episode.task.seed] = episode.success
            first[episode.task.seed] = deed(episode.steps[min(wrong)]).what or "unreadable"
    return Correction(number, strayed, lost, steps, first, circled)


def circles(episode: Trajectory) -> bool:
    """Whether an episode takes an action twice on the same page."""
    taken = [(step.observation.fingerprint, history_text(step.proposal.action)) for step in episode.steps]
    return len(set(taken)) < len(taken)


def wrong_steps(env: WebEnv, expert: Expert, episode: Trajectory) -> dict[int, int | None]:
    """The wrong steps by their index: how many steps the expert needs after each, None if it cannot succeed.

    The first step after which it cannot is the last one here.

    Raises:
        EnvError: if the episode ends differently, or goes on where it ended.
    """
    page = env.reset(episode.task)
    before, success, found = distance(env, expert, episode.task), False, dict[int, int | None]()
    for i, step in enumerate(episode.steps):
        result = env.step(step.proposal.action.env_action)
        success = result.success
        if before is not None and not success and not result.truncated:
            after = None if result.terminated else distance(env, expert, episode.task)
            if after is None or (after >= before and result.observation != page):
                found[i] = after
            before = after
        page = result.observation
    if success != episode.success:
        raise EnvError(f"{episode.task} must end as it was recorded; got success {success}")
    return found


def distance(env: WebEnv, expert: Expert, task: Task) -> int | None:
    """Steps that the expert needs from the state of `env`, which stays as it is; None: it does not succeed."""
    other = env.fork()
    other.max_steps = FAR
    for steps in range(1, FAR):
        result = other.step(expert(task, other).env_action)
        if result.terminated or result.truncated:
            return steps if result.success else None
    return None
