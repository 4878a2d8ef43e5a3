"""agentq's part of benchmarks/browser.py: MiniWoB++ episodes, ways back, expert episodes, tree search.

    python benchmarks/browser_own.py SESSIONS BROWSERS

answers the driver's questions with SESSIONS sessions at once in BROWSERS Chromium processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from browser_workload import Episode, Move, page_seed, serve, turn

from agentq import envs
from agentq.agent.actions import format_action
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.hosts import SiteHost, site_host
from agentq.envs.browser.miniwob import PREFIX, MiniwobHost, instruction
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.calls import call
from agentq.policies.scripted import ScriptedPolicy
from agentq.searching.run import run_all
from agentq.searching.selection import SearchSettings
from agentq.searching.tree import TreeSearch
from agentq.store.records import TreeRecord
from agentq.types import Command, EnvAction, History, Split, Task

DEPTHS = (1, 3, 6)
HOME = EnvAction(Command.GOTO, text="/")


class Ours:
    """See browser_workload.Player. The page's instruction was looked up before."""

    def __init__(self, task: str, pool: BrowserPool) -> None:
        self.name, self.pool = PREFIX + task, pool
        self.env = BrowserEnv(MiniwobHost(self.name), pool)

    def reset(self, seed: int) -> str:
        said = instruction(self.name, page_seed(seed), self.pool)
        self.env.reset(Task(self.name, page_seed(seed), Split.TRAIN, said))
        return said

    def play(self, move: Move) -> float | None:
        what, role, which, text = move
        found = [(i, c.name) for i, c in enumerate(self.env.view.page.controls, 1) if c.role == role]
        element = found[which][0] if isinstance(which, int) else next(i for i, name in found if name == which)
        action = EnvAction(Command.CLICK, element) if what == "click" else EnvAction(Command.TYPE, element, text)
        result = self.env.step(action)
        if result.error_kind is not None:
            raise SystemExit(f"{move} must be carried out; got {result.error_message}")
        return result.reward if result.terminated else None

    def close(self) -> None:
        self.env.close()


class Hidden(SiteHost):
    """A built-in site treated as a foreign one: its memory is neither read nor copied."""

    def __init__(self, name: str, repeatable: bool) -> None:
        super().__init__(site_host(name).kit)
        self.repeatable = repeatable

    def memory(self, visitor: str) -> None:
        return None

    def dismiss(self, visitor: str) -> None:
        """Keep the visitor: another session may share its cookie."""


def expert_actions(task: Task) -> list[EnvAction]:
    """The expert's actions for `task`, the last of them STOP."""
    env, expert, actions, over = envs.make(task.env), envs.expert(task.env), [], False
    env.reset(task)
    while not over:
        actions.append(expert(task, env).env_action)
        result = env.step(actions[-1])
        over = result.terminated or result.truncated
    assert result.success
    return actions


def ways_back(name: str, hosts: dict[str, SiteHost], pool: BrowserPool, seed: int) -> list[dict[str, Any]]:
    """Go back to each state of DEPTHS on the expert's path, by each way, after a visit to the first page."""
    task, found = envs.task(name, Split.VALIDATION, seed), []
    actions = expert_actions(task)
    for wanted, host in hosts.items():
        env = BrowserEnv(host, pool)
        env.reset(task)
        for depth, action in enumerate(actions[:-1][: max(DEPTHS)], 1):
            env.step(action)
            if depth in DEPTHS:
                state = env.snapshot()
                env.step(HOME)
                env.restore(state)
                found.append((wanted, depth, env.log[-1]))
                if wanted == "token":
                    twin = env.fork()
                    twin.step(HOME)
                    found.append(("fork", depth, twin.log[0]))
                    twin.close()
        env.close()
    for wanted, depth, back in found:
        if back.outcome == "failed" or back.way != wanted.replace("fork", "token"):
            raise SystemExit(f"{name}, seed {seed}, depth {depth}: must be reached by {wanted}; got {back}")
    return [{"way": wanted, "depth": depth, "ms": back.ms} for wanted, depth, back in found]


def experts(name: str, sessions: int, pool: BrowserPool | None, tasks: Sequence[Task]) -> dict[str, float]:
    """Expert episodes whose actions were computed beforehand."""
    actions = {task.seed: expert_actions(task) for task in tasks}

    def play(tasks: Sequence[Task]) -> int:
        env, won = envs.make(name, pool), 0
        for task in tasks:
            env.reset(task)
            won += [env.step(action) for action in actions[task.seed]][-1].success
        env.close()
        return won

    with ThreadPoolExecutor(sessions) as threads:
        start = time.perf_counter()
        won = sum(threads.map(play, [tasks[i::sessions] for i in range(sessions)]))
        seconds = time.perf_counter() - start
    if won < len(tasks):
        raise SystemExit(f"{name}: the expert must succeed in all {len(tasks)} episodes; got {won}")
    steps = sum(map(len, actions.values()))
    return {"episodes_per_s": len(tasks) / seconds, "steps_per_s": steps / seconds}


def clicks_about(history: History, rng: np.random.Generator) -> tuple[str, float]:
    """Clicks and types at random, and stops after four actions."""
    if len(history.actions) == 4:
        return format_action(EnvAction(Command.STOP)), -1.0
    typed = rng.random() < 0.3
    element = 1 if typed else int(rng.integers(1, 6))
    return format_action(EnvAction(Command.TYPE, 1, "Blue") if typed else EnvAction(Command.CLICK, element)), -1.0


def searches(name: str, in_flight: int, pool: BrowserPool | None, tasks: Sequence[Task]) -> dict[str, Any]:
    """One tree per task; `trees` holds the content of each, to be compared."""
    policy, found = ScriptedPolicy(clicks_about), list[TreeRecord]()
    settings = SearchSettings(num_iterations=8, num_proposals=3)

    async def work(task: Task) -> TreeRecord:
        env = envs.make(name, pool)
        try:
            return await TreeSearch(env, task, policy, settings).run()
        finally:
            await call(env, env.close)

    start = time.perf_counter()
    run_all(tasks, work, in_flight=in_flight, on_done=found.append)
    seconds = time.perf_counter() - start
    trees = {tree.task.seed: [tree.visit_count.tolist(), [o and o.text for o in tree.observation]] for tree in found}
    simulations = sum(tree.info["iterations"] for tree in found)
    steps = sum(tree.info["env_steps"] for tree in found)
    return {"simulations_per_s": simulations / seconds, "steps_per_s": steps / seconds, "trees": trees}


def main() -> None:
    sessions, browsers = map(int, sys.argv[1:])
    pool = BrowserPool(browsers)
    held: list[Ours] = []
    sites: dict[str, dict[str, SiteHost]] = {}
    for name in envs.names():
        sites[name] = {"token": site_host(name), "storage": Hidden(name, False), "replay": Hidden(name, True)}

    def episodes(tasks: Sequence[str], seeds: Sequence[int]) -> list[Episode]:
        for task in tasks:
            for seed in seeds:
                instruction(PREFIX + task, page_seed(seed), pool)
        with ThreadPoolExecutor(sessions) as threads:
            turns = [threads.submit(turn, lambda task: Ours(task, pool), tasks, seeds) for _ in range(sessions)]
            return [episode for each in turns for episode in each.result()]

    def answer(asked: dict[str, Any]) -> Any:
        while held:
            held.pop().close()
        match asked:
            case {"hold": task}:
                held.extend(Ours(task, pool) for _ in range(sessions))
                return [player.reset(0) for player in held]
            case {"tasks": tasks, "seeds": seeds}:
                return episodes(tasks, seeds)
            case {"back": name, "seed": seed}:
                return ways_back(name, sites[name], pool, seed)
            case {"experts": name, "n": n, "chromium": chromium}:
                return experts(name, sessions, pool if chromium else None, envs.tasks(name, Split.VALIDATION, n))
            case {"searches": name, "n": n, "chromium": chromium}:
                return searches(name, sessions, pool if chromium else None, envs.tasks(name, Split.TRAIN, n))
        raise SystemExit(f"a question must be one of these; got {asked}")

    serve(answer)
    pool.close()


if __name__ == "__main__":
    main()
