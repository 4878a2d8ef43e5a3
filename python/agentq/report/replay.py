"""`agentq replay`: the actions on the way to a node, done again in their environment, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentq import envs
from agentq.errors import ConfigError
from agentq.store.records import TreeRecord
from agentq.store.run import TREE, RunStore
from agentq.store.stages import in_order
from agentq.types import EnvAction, Observation, Task


@dataclass(frozen=True, slots=True)
class Replayed:
    """One action done again. `same`: whether the page is the recorded one; None if the run has no page there."""

    step: int
    action: str
    same: bool | None
    page: Observation
    reward: float
    success: bool
    error_kind: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """The recorded way to a node: the task, its actions, and the pages before the first and after each of them."""

    env: str
    task: Task
    actions: list[EnvAction | None]
    pages: list[Observation | None]


def route(run: Path, stage: str | None, task: str | None, node: int | None) -> Route:
    """The way to a node of a tree, or to a step of an episode.

    Args:
        stage: None: the first stage with trees, or else with episodes.
        task: the seed of a tree's task, or an episode's key such as 17/0; None: the first of the stage.
        node: None: the end of the best episode.

    Raises:
        ConfigError: if the run has no such stage, task or node.
        StoreError: if `run` is no run directory, or is damaged.
    """
    with RunStore.read(run) as store:
        kinds = [(name, kind) for kind in ("tree", "trajectory") for name in store.stages() if store.count(name, kind)]
        named = [each for each in kinds if stage in (None, each[0])]
        if not named:
            known = ", ".join(dict.fromkeys(name for name, _ in kinds)) or "none"
            raise ConfigError(
                f"--stage must be a stage of {run} with trees or episodes ({known}); got {stage or 'none'}"
            )
        name, kind = named[0]
        keys = sorted(store.keys(name, kind), key=in_order)
        key = keys[0] if task is None else task
        if key not in keys:
            raise ConfigError(f"--task must be one of {name} ({', '.join(keys[:5])}, ...); got {key}")
        env = store.config.get("run", {}).get("env", "")
        return _of_tree(store, env, name, int(key), node) if kind == TREE else _of_episode(store, env, name, key, node)


def replay(way: Route) -> Iterator[Replayed]:
    """Do the actions again in a new session, and compare each page with the recorded one."""
    session = envs.make(way.env)
    try:
        page = session.reset(way.task)
        yield Replayed(0, "reset", _same(page, way.pages[0]), page, 0.0, False, None)
        for step, (action, before) in enumerate(zip(way.actions, way.pages[1:], strict=True), start=1):
            r = session.step(action)
            said = "unreadable" if action is None else str(action)
            yield Replayed(step, said, _same(r.observation, before), r.observation, r.reward, r.success, r.error_kind)
            if r.terminated or r.truncated:
                return
    finally:
        session.close()


def _of_tree(store: RunStore, env: str, stage: str, seed: int, node: int | None) -> Route:
    from agentq.evaluation.outcomes import counted_end

    tree = store.tree(stage, seed, nodes=())
    assert tree is not None
    if node is not None and not 0 <= node < len(tree):
        raise ConfigError(f"--node must be a node of the tree, 0 to {len(tree) - 1}; got {node}")
    path = tree.path(counted_end(tree) if node is None else node)
    found = store.tree(stage, seed, nodes=path)
    assert found is not None
    return Route(
        env or found.task.env,
        found.task,
        [_action(found, at) for at in path[1:]],
        [found.observation[at] for at in path],
    )


def _of_episode(store: RunStore, env: str, stage: str, key: str, node: int | None) -> Route:
    episode = store.trajectory(stage, key)
    assert episode is not None
    if node is not None and not 0 <= node <= len(episode.steps):
        raise ConfigError(f"--node must be a step of the episode, 0 to {len(episode.steps)}; got {node}")
    steps = episode.steps[:node]
    pages = [step.observation for step in steps[:1]] + [step.result.observation for step in steps]
    actions = [step.proposal.action.env_action for step in steps]
    return Route(env or episode.task.env, episode.task, actions, [*pages] or [None])


def _action(tree: TreeRecord, node: int) -> EnvAction | None:
    proposal = tree.proposal[node]
    return proposal.action.env_action if proposal is not None else None


def _same(page: Observation, recorded: Observation | None) -> bool | None:
    return None if recorded is None else (page.text, page.url) == (recorded.text, recorded.url)
