"""What the checker says about the path that a search chose without it."""

from __future__ import annotations

from agentq.envs.calls import call
from agentq.envs.protocol import Env
from agentq.searching.choices import by_value
from agentq.searching.faults import Broken, Resets, take
from agentq.store.records import TreeRecord


async def checked(tree: TreeRecord, env: Env, resets: Resets) -> TreeRecord:
    """The tree of a search told by a judge, with the checker's verdict on its best path by value in its `info`.

    The path is taken again in `env`, whose steps count as the search's. `end` is its last node.
    """
    end = by_value(tree)
    path = [tree.proposal[node] for node in tree.path(end)[1:]]
    found = {"success": False, "return": 0.0, "steps": len(path), "broken": tree.fault is not None, "end": end}
    tree.info |= {"checked": found, "succeeded": False}
    if not path:
        return tree
    try:
        page = await resets.first_page(env, tree.task)
    except Broken:
        found["broken"] = True
        return tree
    for proposal in path:
        assert proposal is not None
        result = await call(env, take, env, proposal.action.env_action, page)
        page, found["broken"] = result.observation, result.broken
        found["return"] += result.reward
        tree.info["env_steps"] += 1
    tree.info["succeeded"] = found["success"] = bool(result.success) and not result.broken
    return tree
