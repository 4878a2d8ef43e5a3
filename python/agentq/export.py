"""`export`: what training takes from a run, or all that it holds, in the formats of other libraries.

Prompts are chats, composed again from the recorded actions and pages, so that any model's template applies. They are
not cut to a context. Answers are the sampled texts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from agentq.agent.actions import history_text
from agentq.agent.prompts import Messages, policy_messages
from agentq.credit.pairs import paired_nodes
from agentq.credit.samples import success_steps, tree_success_nodes
from agentq.envs.contract import from_file
from agentq.errors import ConfigError, StoreError, require
from agentq.evaluation.outcomes import counted_episode
from agentq.status import StageDisplay
from agentq.store.claim import check_writable
from agentq.store.durable import check_page, make_directory, write_page
from agentq.store.records import TreeRecord
from agentq.store.run import TRAJECTORY, TREE, RunStore
from agentq.store.tables import node_rows
from agentq.types import History, Proposal, Trajectory
from agentq.viewer.data import of_episode

COLLECTED = "/collect"  # the end of the name of a stage that training reads
ALL_STAGES = ("parquet", "hf-traces")  # formats that read them unless one is named
Row = dict[str, Any]
T = TypeVar("T")
Compose = Callable[[History], Messages]


class Records:
    """A run whose trees and episodes are read. Shows how many of those in `stages` are, if there is a `status`."""

    def __init__(self, store: RunStore, stages: Sequence[str], status: StageDisplay | None) -> None:
        self.store, self.read = store, 0
        self.total = sum(store.count(stage, kind) for stage in stages for kind in (TREE, TRAJECTORY))
        self.show = status.stage("export", self.total, "items") if status is not None else None

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, which are counted when they are done."""
        for item in items:
            yield item
            self.read = min(self.read + 1, self.total)  # a run that goes on may have more meanwhile
            if self.show is not None:
                self.show(self.read, "")


def export(run: Path, form: str, out: Path, stage: str | None = None, *, status: StageDisplay | None = None) -> int:
    """Write a run's data to `out` in a format of `FORMATS`. Returns the number of rows.

    Args:
        run: a run directory.
        out: a file; for hf-traces a new or empty directory, which gets a file per episode.
        stage: the only stage to read; None: `ALL_STAGES` read all, the others those from which training reads.
        status: shows how many trees and episodes are read, and files written; None: nothing is shown.

    Raises:
        StoreError: if the run cannot be read, or `out` cannot be written.
        ConfigError: for an unknown stage, or if there are no rows.
        MissingExtra: for parquet without pyarrow.
    """
    _check_out(form, out)
    with RunStore.read(run) as store:
        known = [name for name in store.stages() if store.count(name, TREE) or store.count(name, TRAJECTORY)]
        if stage is not None and stage not in known:
            raise ConfigError(
                f"--stage must be a stage of the run ({', '.join(known) or 'it has none yet'}); got {stage}"
            )
        read = [stage] if stage else [name for name in known if form in ALL_STAGES or name.endswith(COLLECTED)]
        given = store.config.get("model", {}).get("prompt", "")
        compose: Compose = from_file(given, "model.prompt") if given else policy_messages
        records = Records(store, read, status)
        lines = [_line(row) for name in read for row in FORMATS[form](records, name, compose)]
    if not lines:
        other = f"stages of training; --stage names another: {', '.join(known)}" if known else "no stage"
        where = ", ".join(read) or other
        raise ConfigError(f"{run} must have {NEEDS[form]} to export as {form}; got none in {where}")
    if form == "hf-traces":
        files = _session_files(out, lines)
    else:
        files = {out: _parquet(lines) if form == "parquet" else b"".join(lines)}
    if form == "hf-traces":
        make_directory(out)
    show = status.stage("write", len(files), "files") if status is not None else None
    for number, (path, data) in enumerate(files.items(), start=1):
        write_page(path, data)
        if show is not None:
            show(number, "")
    return len(lines)


def _check_out(form: str, out: Path) -> None:
    """Check what would fail once the whole run has been read. Raises ConfigError, StoreError or MissingExtra."""
    if form == "hf-traces":
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"--out must be a new or empty directory for hf-traces; got {out}")
        check_writable(out)
        return
    if form == "parquet":
        require("pyarrow", extra="parquet", for_="agentq export --format parquet")
    check_page(out)


def client_of_hub() -> Any:
    """The library by which `push` uploads. Raises MissingExtra without it."""
    return require("huggingface_hub", extra="hub", for_="agentq export --push")


def push(out: Path, repository: str) -> str:
    """Upload an export, a file or a directory, to a dataset on the Hugging Face hub. Returns its address.

    A new dataset is private.

    Raises:
        ConfigError: if the hub refuses.
        MissingExtra: without huggingface_hub.
    """
    hub = client_of_hub()
    try:
        api = hub.HfApi()
        api.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        if out.is_dir():
            api.upload_folder(folder_path=out, path_in_repo=out.name, repo_id=repository, repo_type="dataset")
        else:
            api.upload_file(path_or_fileobj=out, path_in_repo=out.name, repo_id=repository, repo_type="dataset")
    except Exception as error:  # of the hub's own and its client's many kinds
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(
            f"--push must name a dataset, USER/NAME, that you may write; got {repository}: {said}"
        ) from error
    return f"{api.endpoint}/datasets/{repository}"


def preferences(records: Records, stage: str, compose: Compose) -> Iterator[Row]:
    """The pairs that Agent Q trains on: `prompt`, `chosen` and `rejected` as chats, and their `gap`."""
    settings = (records.store.note(stage) or {}).get("pairs")
    if settings is None:
        return
    for tree in records.each(records.store.trees(stage)):
        for better, worse, gap in paired_nodes(tree, **settings):
            prompt = compose(_history(tree, int(tree.parent[better])))
            chosen, rejected = _answer(tree, better), _answer(tree, worse)
            yield {"prompt": prompt, "chosen": chosen, "rejected": rejected, "gap": gap}


def completions(records: Records, stage: str, compose: Compose) -> Iterator[Row]:
    """The actions on the way to each success, as in rejection sampling: `prompt` and `completion` as chats."""
    for tree in records.each(records.store.trees(stage)):
        for node in tree_success_nodes(tree):
            yield {"prompt": compose(_history(tree, int(tree.parent[node]))), "completion": _answer(tree, node)}
    for episode in records.each(records.store.trajectories(stage)):
        tree = of_episode(episode).tree
        for step in success_steps(episode):
            yield {"prompt": compose(_history(tree, step)), "completion": _answer(tree, step + 1)}


def conversations(records: Records, stage: str, compose: Compose) -> Iterator[Row]:
    """The same as ShareGPT's conversations."""
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    for row in completions(records, stage, compose):
        chat = [*row["prompt"], *row["completion"]]
        yield {"conversations": [{"from": names[each["role"]], "value": each["content"]} for each in chat]}


def nodes(records: Records, stage: str, _: Compose) -> Iterator[Row]:
    """A row per node of each tree, and per page of each episode."""
    for tree in records.each(records.store.trees(stage)):
        yield from ({"kind": TREE, **row} for row in node_rows(tree, stage, str(tree.task.seed)))
    for key in records.each(sorted(records.store.keys(stage))):
        episode = records.store.trajectory(stage, key)
        if episode is not None:
            yield from ({"kind": TRAJECTORY, **row} for row in node_rows(of_episode(episode).tree, stage, key))


def sessions(records: Records, stage: str, compose: Compose) -> Iterator[Row]:
    """Each episode, and the one that counts of each tree, in the Session Trace Simple Format of the hub's viewer.

    `lines` are those of the session's file: a header, the prompt, then each action as a call of a tool and the page
    that it led to as the tool's answer. An action that could not be read is plain text, answered by the user.

    Source: https://huggingface.co/docs/hub/session-traces-format.
    """
    counted = ((str(tree.task.seed), counted_episode(tree)) for tree in records.each(records.store.trees(stage)))
    keys = records.each(sorted(records.store.keys(stage)))
    told = ((key, t) for key in keys if (t := records.store.trajectory(stage, key)))
    for key, episode in chain(counted, told):
        if episode.steps:
            yield {"lines": _session(episode, f"{stage}/{key}", compose)}


FORMATS: dict[str, Callable[[Records, str, Compose], Iterator[Row]]] = {
    "trl-preference": preferences,
    "trl-prompt-completion": completions,
    "sharegpt": conversations,
    "hf-traces": sessions,
    "parquet": nodes,
}
NEEDS = {
    "trl-preference": "preference pairs of search trees",
    "trl-prompt-completion": "successes",
    "sharegpt": "successes",
    "hf-traces": "trees or episodes",
    "parquet": "trees or episodes",
}


def _history(tree: TreeRecord, node: int) -> History:
    """What the policy saw at a node."""
    path = tree.path(node)
    pages = [page for page in (tree.observation[at] for at in path) if page is not None]
    if len(pages) < len(path):
        raise StoreError(f"node {node} of task {tree.task.seed} must have a page; it has none")
    history = History.of(tree.task, pages[0])
    for proposal, page in zip((tree.proposal[at] for at in path[1:]), pages[1:], strict=True):
        history = history.then(history_text(proposal.action) if proposal is not None else "", page)
    return history


def _answer(tree: TreeRecord, node: int) -> Messages:
    proposal = tree.proposal[node]
    return [{"role": "assistant", "content": proposal.action.text if proposal is not None else ""}]


def _session(t: Trajectory, name: str, compose: Compose) -> list[Row]:
    """The lines of one session."""
    told = {"env": t.task.env, "split": str(t.task.split), "seed": t.task.seed}
    told |= {"success": t.success, "return": t.return_}
    header = {"type": "session", "harness": "agentq", "id": name, "name": t.task.instruction, **told}
    messages = compose(History.of(t.task, replace(t.steps[0].observation, picture=None)))
    for number, step in enumerate(t.steps):
        call = f"call_{number}"
        answer = _tool_call(step.proposal, call)
        page = {"content": step.result.observation.text}
        back = {"role": "tool", "toolCallId": call} if "toolCalls" in answer else {"role": "user"}
        messages += [answer, back | page]
    return [header, *({"type": "message", "message": message} for message in messages)]


def _tool_call(proposal: Proposal, call: str) -> Row:
    """An action as a message of the assistant."""
    action = proposal.action
    if action.env_action is None:
        return {"role": "assistant", "content": action.text}
    given = {"element": action.env_action.element, "text": action.env_action.text}
    words = json.dumps({name: value for name, value in given.items() if value is not None}, ensure_ascii=False)
    tool = {"id": call, "function": {"name": str(action.env_action.command), "arguments": words}}
    thought = "\n".join(filter(None, (action.plan, action.thought)))
    return {"role": "assistant", "content": action.explanation, "reasoningContent": thought, "toolCalls": [tool]}


def _session_files(out: Path, lines: list[bytes]) -> dict[Path, bytes]:
    """The files of sessions, by path in the new or empty directory `out`."""
    found = {}
    for session in map(json.loads, lines):
        name = session["lines"][0]["id"].replace("/", "-")
        found[out / f"{name}.jsonl"] = b"".join(map(_line, session["lines"]))
    return found


def _line(row: Row) -> bytes:
    """A row as JSON. What a page has that is no text (half of a surrogate pair) becomes a question mark."""
    return json.dumps(row, ensure_ascii=False).encode(errors="replace") + b"\n"


def _parquet(lines: list[bytes]) -> bytes:
    arrow = require("pyarrow", extra="parquet", for_="agentq export --format parquet")
    parquet = require("pyarrow.parquet", extra="parquet", for_="agentq export --format parquet")
    data = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist([json.loads(line) for line in lines]), data, compression="zstd")
    return data.getvalue()
