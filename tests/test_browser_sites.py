"""The built-in sites in Chromium: the same observations as in process, under experts, random walks and search."""

from __future__ import annotations

import random

import numpy as np
import pytest

from agentq import envs
from agentq.agent.actions import format_action
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.states import Return, StepLog
from agentq.envs.explore import random_action
from agentq.envs.promises import check_env
from agentq.errors import ConfigError
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import Command, EnvAction, History, Split, Task

pytestmark = pytest.mark.browser
SEEDS = 50


def expert_actions(task: Task) -> list[EnvAction]:
    """The expert's actions for `task` without the last STOP."""
    env, expert, actions = envs.make(task.env), envs.expert(task.env), []
    env.reset(task)
    while (action := expert(task, env).env_action).command is not Command.STOP:
        actions.append(action)
        env.step(action)
    return actions


@pytest.mark.parametrize("name", [*envs.names(), "booking/several"])
def test_expert_episodes_have_the_same_observations_in_process_and_in_chromium(browser: BrowserPool, name: str) -> None:
    here, there, expert = envs.make(name), envs.make(name, browser=browser), envs.expert(name)
    for task in envs.tasks(name, Split.VALIDATION, SEEDS // (3 if name == "booking/several" else 1)):
        assert there.reset(task) == here.reset(task)
        over = False
        while not over:
            action = expert(task, here).env_action
            assert expert(task, there).env_action == action  # the expert sees the same controls and values
            result = here.step(action)
            assert there.step(action) == result, (task.seed, action)
            over = result.terminated or result.truncated
        assert result.success
    assert isinstance(there, BrowserEnv)
    assert {log.rule for log in there.log if isinstance(log, StepLog)} == {"loaded", ""}  # "" is STOP's
    there.close()


@pytest.mark.parametrize("name", envs.names())
def test_clumsy_walks_have_the_same_observations_too(browser: BrowserPool, name: str) -> None:
    """Random actions, and commands that the page refuses: wrong roles, wrong ids, missing options, lost pages."""
    here, there = envs.make(name), envs.make(name, browser=browser)
    for seed in range(3):
        rng, task = random.Random(seed), envs.task(name, Split.TRAIN, seed)
        assert there.reset(task) == here.reset(task)
        for _ in range(12):
            action = random_action(here, task, rng)
            if rng.random() < 0.4:
                text = rng.choice(
                    ["Zed & <b>co</b>", "nothing", "/nowhere", "https://else.where/", "DOWN", "  two  words "]
                )
                action = EnvAction(rng.choice([c for c in Command if c is not Command.STOP]), rng.randrange(5), text)
            assert there.step(action) == here.step(action), (seed, action)
    there.close()


@pytest.mark.parametrize("name", envs.names())
def test_check_env_holds_in_chromium(browser: BrowserPool, name: str) -> None:
    task, made = envs.task(name, Split.TEST, 3), []

    def make() -> BrowserEnv:
        made.append(BrowserEnv(envs.make(name, browser=browser)._driver.host, browser))  # type: ignore[attr-defined]
        return made[-1]

    check_env(make, task, expert_actions(task)[-4:] if name == "shop" else expert_actions(task)[:4])
    backs = [log for env in made for log in env.log if isinstance(log, Return)]
    assert {(back.way, back.outcome, back.tried) for back in backs} <= {("token", "exact", ())}
    for env in made:
        env.close()


def tree(env: envs.SiteEnv, task: Task) -> TreeRecord:
    """A search of `task` with a policy that clicks about."""

    def propose(history: History, rng: np.random.Generator) -> tuple[str, float]:
        action = EnvAction(Command.CLICK, int(rng.integers(1, 6)))
        if rng.random() < 0.3:
            action = EnvAction(Command.TYPE, 1, "Blue")
        return format_action(EnvAction(Command.STOP) if len(history.actions) == 4 else action), -1.0

    found: list[TreeRecord] = []
    policy, settings = ScriptedPolicy(propose), SearchSettings(num_iterations=6, num_proposals=3)
    run_all([task], lambda t: TreeSearch(env, t, policy, settings).run(), in_flight=1, on_done=found.append)
    return found[0]


def test_tree_search_visits_the_same_tree(browser: BrowserPool) -> None:
    task = envs.task("booking", Split.TRAIN, 5)
    there = envs.make("booking", browser=browser)
    trees = [tree(env, task) for env in (envs.make("booking"), there)]
    assert trees[0].observation == trees[1].observation
    assert trees[0].visit_count.tolist() == trees[1].visit_count.tolist()
    assert isinstance(there, BrowserEnv)
    assert sum(isinstance(log, Return) for log in there.log) > 3
    there.close()


def test_names_of_environments_and_tasks() -> None:
    assert envs.tasks("chromium/booking", "test", 2) == envs.tasks("booking", "test", 2)
    assert envs.expert("chromium/shop") is envs.expert("shop")
    env = envs.make("chromium/shop")  # opens no browser before reset
    assert (env.name, env.max_steps) == ("chromium/shop", envs.make("shop").max_steps)
    with pytest.raises(ConfigError, match=r"task.env must be 'shop'; got 'booking'"):
        env.reset(envs.task("booking", "train", 0))
    with pytest.raises(ConfigError, match="no environment 'chromium/shopp'; did you mean 'chromium/shop'"):
        envs.make("chromium/shopp")
    env.close()
