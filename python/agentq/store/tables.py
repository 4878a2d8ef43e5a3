"""What a run holds as rows of plain values with fixed columns: nodes of trees, steps of episodes, preference pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from agentq.credit.pairs import paired_nodes
from agentq.errors import ConfigError, require
from agentq.store.records import TreeRecord
from agentq.types import Observation, Proposal, Task, Trajectory

if TYPE_CHECKING:
    from agentq.store.run import RunStore

Row = dict[str, Any]
WHAT = {
    "stage": "string",
    "key": "string",
    "env": "string",
    "split": "string",
    "seed": "int64",
    "instruction": "string",
}
ACTION = {"action": "string", "text": "string", "token_ids": "list<int32>", "logps": "list<float>"}
PAGE = {"url": "string", "page": "string"}
ENDED = {"reward": "double", "success": "bool", "error_kind": "string"}
VALUES = {"visit_count": "int64", "value_sum": "double", "mean_value": "double", "critic_value": "double"}
COLUMNS: dict[str, dict[str, str]] = {  # of each table, with Arrow's types, so that an empty one has them, too
    "nodes": {**WHAT, "node": "int64", "parent": "int64", "depth": "int64", **VALUES, **ENDED, "restored": "string"}
    | ACTION
    | PAGE,
    "steps": {**WHAT, "attempt": "int64", "step": "int64", **PAGE, **ACTION, **ENDED, "terminated": "bool"},
    "pairs": {**WHAT, "parent": "int64", "chosen": "int64", "rejected": "int64", "gap": "double"}
    | {"chosen_text": "string", "rejected_text": "string"}
    | PAGE,
}


def nodes(store: RunStore, stage: str) -> Iterator[Row]:
    """A row per node of each tree."""
    for tree in store.trees(stage):
        yield from node_rows(tree, stage, str(tree.task.seed))


def node_rows(tree: TreeRecord, stage: str, key: str) -> Iterator[Row]:
    """A row per node of one tree. `action`, `text` and tokens are those of the action that leads to the node."""
    mean = tree.mean_value
    for node in range(len(tree)):
        yield {
            **_what(tree.task, stage, key),
            "node": node,
            **{name: getattr(tree, name)[node].item() for name in ("parent", "depth", "visit_count", "value_sum")},
            "mean_value": float(mean[node]),
            **{name: getattr(tree, name)[node].item() for name in ("critic_value", "reward", "success")},
            "error_kind": tree.error_kind[node],
            "restored": tree.restored[node],
            **_action(tree.proposal[node]),
            **_page(tree.observation[node]),
        }


def steps(store: RunStore, stage: str) -> Iterator[Row]:
    """A row per step of each episode: the page, the action on it, and what came of it."""
    for key in sorted(store.keys(stage)):
        if episode := store.trajectory(stage, key):
            yield from _step_rows(episode, stage, key)


def _step_rows(episode: Trajectory, stage: str, key: str) -> Iterator[Row]:
    for number, step in enumerate(episode.steps):
        r = step.result
        yield {
            **_what(episode.task, stage, key),
            "attempt": int(key.partition("/")[2] or 0),
            "step": number,
            **_page(step.observation),
            **_action(step.proposal),
            "reward": float(r.reward),
            "success": r.success,
            "error_kind": r.error_kind,
            "terminated": r.terminated,
        }


def pairs(store: RunStore, stage: str) -> Iterator[Row]:
    """A row per preference pair that training takes from a stage; none of a stage without such settings."""
    settings: dict[str, Any] = (store.note(stage) or {}).get("pairs") or {}
    for tree in store.trees(stage) if settings else ():
        for better, worse, gap in paired_nodes(tree, **settings):
            parent, chosen, rejected = int(tree.parent[better]), tree.proposal[better], tree.proposal[worse]
            assert chosen is not None and rejected is not None
            texts = {"chosen_text": chosen.action.text, "rejected_text": rejected.action.text}
            where = {"parent": parent, "chosen": int(better), "rejected": int(worse), "gap": float(gap)}
            yield {**_what(tree.task, stage, str(tree.task.seed)), **where, **texts, **_page(tree.observation[parent])}


TABLES: dict[str, Callable[[RunStore, str], Iterator[Row]]] = {"nodes": nodes, "steps": steps, "pairs": pairs}


def rows(store: RunStore, table: str, stage: str | None) -> list[Row]:
    """The rows of a table, of one stage or of all. Raises ConfigError for an unknown table or stage."""
    if table not in TABLES:
        raise ConfigError(f"a table must be one of {', '.join(TABLES)}; got {table}")
    known = store.stages()
    if stage is not None and stage not in known:
        raise ConfigError(f"a stage must be one of the run ({', '.join(known)}); got {stage}")
    return [row for name in ([stage] if stage else known) for row in TABLES[table](store, name)]


def to_arrow(store: RunStore, table: str, stage: str | None) -> Any:
    """See `RunStore.to_arrow`."""
    arrow = require("pyarrow", extra="parquet", for_="RunStore.to_arrow")
    kinds = {"list<int32>": arrow.list_(arrow.int32()), "list<float>": arrow.list_(arrow.float32())}
    found = rows(store, table, stage)
    schema = [
        (name, kinds[kind] if kind in kinds else arrow.type_for_alias(kind)) for name, kind in COLUMNS[table].items()
    ]
    return arrow.Table.from_pylist(found, schema=arrow.schema(schema))


def to_pandas(store: RunStore, table: str, stage: str | None) -> Any:
    """See `RunStore.to_pandas`."""
    pandas = require("pandas", extra="pandas", for_="RunStore.to_pandas")
    numbers = {name: kind for name, kind in COLUMNS[table].items() if kind in ("int64", "double", "bool")}
    return pandas.DataFrame.from_records(rows(store, table, stage), columns=list(COLUMNS[table])).astype(numbers)


def _what(task: Task, stage: str, key: str) -> Row:
    known = {"env": task.env, "split": str(task.split), "seed": task.seed, "instruction": task.instruction}
    return {"stage": stage, "key": key, **known}


def _action(proposal: Proposal | None) -> Row:
    if proposal is None:
        return dict.fromkeys(ACTION)
    action, text = proposal.action.env_action, proposal.action.text
    tokens = {"token_ids": proposal.token_ids.tolist(), "logps": proposal.logps.tolist()}
    return {"action": None if action is None else str(action), "text": text, **tokens}


def _page(page: Observation | None) -> Row:
    """A page. What is no text (half of a surrogate pair) becomes a question mark."""
    text = None if page is None else page.text.encode(errors="replace").decode()
    return {"url": None if page is None else page.url, "page": text}
