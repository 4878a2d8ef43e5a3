"""Self-correction: which steps are wrong, and which episodes succeed in spite of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentq import envs
from agentq.agent.commands import parse_env_action
from agentq.envs.web_env import WebEnv
from agentq.errors import EnvError
from agentq.evaluation.correction import circles, distance, self_correction, wrong_steps
from agentq.types import EnvAction, Split, Step, Trajectory
from tests.records_factory import make_proposal

TASK = envs.task("booking", Split.TEST, 2)
EXPERT = envs.expert("booking")


def site() -> WebEnv:
    env = envs.make("booking")
    assert isinstance(env, WebEnv)
    return env


def episode(slips: dict[int, str], then: bool = True, most: int = 25) -> Trajectory:
    """The expert's episode, with `slips` before its steps; it ends after the last slip unless `then`."""
    env, steps, over, success = site(), list[Step](), False, False
    page = env.reset(TASK)
    while not over and len(steps) < most:
        slip = slips.get(len(steps))
        action = parse_env_action(slip) if slip else EXPERT(TASK, env).env_action
        assert isinstance(action, EnvAction)
        result = env.step(action)
        steps.append(Step(page, make_proposal(1, env_action=action), result))
        page, over, success = result.observation, result.terminated or result.truncated, result.success
        if slip and not then and len(steps) > max(slips):
            break
    return Trajectory(TASK, tuple(steps), float(success), success)


def test_the_experts_episode_has_no_wrong_step() -> None:
    done = episode({})
    assert done.success and wrong_steps(site(), EXPERT, done) == {}
    env = site()
    env.reset(TASK)
    assert distance(env, EXPERT, TASK) == len(done.steps)
    assert env.step(done.steps[0].proposal.action.env_action) == done.steps[0].result  # the state stays as it is


def test_a_detour_is_wrong_and_corrected() -> None:
    left = len(episode({}).steps)
    done = episode({2: "GOTO [/]", 4: "CLICK [99]", 8: "SCROLL DOWN"})
    assert done.success
    wrong = wrong_steps(site(), EXPERT, done)
    assert list(wrong)[:2] == [2, 4] and all(after is not None and after <= left for after in wrong.values())
    found = self_correction(site(), EXPERT, [done, episode({})])
    assert (found.episodes, found.strayed, found.corrected, found.lost) == (2, {TASK.seed: True}, 1, 0)
    assert found.steps == len(wrong)
    assert found.first == {TASK.seed: "GOTO"} and found.circled == 0


def test_to_choose_what_is_chosen_is_not_wrong() -> None:
    plain = episode({})
    selected = next(i for i, s in enumerate(plain.steps) if str(s.proposal.action.env_action).startswith("SELECT"))
    again = episode({selected + 1: str(plain.steps[selected].proposal.action.env_action)})
    assert again.success and len(again.steps) == len(plain.steps) + 1
    assert wrong_steps(site(), EXPERT, again) == {}


def test_to_stop_early_is_beyond_repair_and_the_limit_of_steps_is_not_a_wrong_step() -> None:
    stopped = episode({3: "STOP"})
    assert not stopped.success and wrong_steps(site(), EXPERT, stopped) == {3: None}
    found = self_correction(site(), EXPERT, [stopped])
    assert (found.strayed, found.corrected, found.lost, found.steps) == ({TASK.seed: False}, 0, 1, 1)
    assert found.first == {TASK.seed: "STOP"} and found.circled == 0
    idle = episode(dict.fromkeys(range(2, 25), "SCROLL DOWN"))
    assert self_correction(site(), EXPERT, [idle, episode({})]).circled == 1
    assert idle.steps[-1].result.truncated and set(wrong_steps(site(), EXPERT, idle)) <= {2}


def test_an_episode_that_ends_differently_is_refused() -> None:
    with pytest.raises(EnvError, match=r"must end as it was recorded; got success True"):
        wrong_steps(site(), EXPERT, replace(episode({}), success=False))


def test_broken_episodes_do_not_count() -> None:
    broken = Trajectory(TASK, (), 0.0, False, {"error_kind": "reset_failed", "error_message": "x"})
    assert self_correction(site(), EXPERT, [broken]).episodes == 0


def test_an_episode_in_circles_takes_an_action_again_on_the_same_page() -> None:
    again = episode({2: "SCROLL DOWN", 3: "SCROLL DOWN"})
    assert again.success and circles(again) and not circles(episode({}))
    assert not circles(episode({2: "SCROLL DOWN", 8: "SCROLL DOWN"}))  # on two pages
    assert self_correction(site(), EXPERT, [again]).circled == 0  # it succeeds
