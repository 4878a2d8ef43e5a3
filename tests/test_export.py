"""Exports: the rows are what training takes, and other libraries read them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentq import status
from agentq.agent.actions import history_text
from agentq.agent.prompts import policy_messages
from agentq.cli import main, records
from agentq.credit.pairs import node_pairs, weighed_pairs
from agentq.credit.samples import success_samples, tree_success_samples
from agentq.export import FORMATS, export
from agentq.store import RunStore
from agentq.store.run import TRAJECTORY, TREE
from agentq.types import History
from tests.records_factory import make_trajectory
from tests.test_evaluation_outcomes import tree as grown
from tests.view_factory import CONFIG, PAIRS, make_run, searched


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("export") / "run")


def rows(run: Path, form: str, out: Path, stage: str | None = None) -> list[dict[str, Any]]:
    n = export(run, form, out, stage)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(found) == n
    return found


def test_preferences_are_the_pairs_of_training_as_chats(run: Path, tmp_path: Path) -> None:
    trees = [searched(0), searched(1)]
    found = rows(run, "trl-preference", tmp_path / "pairs.jsonl")
    assert len(found) == sum(len(with_tokens(tree)) for tree in trees) > 0
    pair = next(pair for pair in weighed_pairs(trees[0], **PAIRS) if not pair.dropped)
    path = trees[0].path(pair.chosen)
    page, actions = trees[0].observation[path[-2]], {i: p.action for i, p in enumerate(trees[0].proposal) if p}
    assert page is not None and len(path) > 2
    past = tuple(history_text(actions[node]) for node in path[1:-1])
    history = History(trees[0].task.instruction, page, past)
    chosen, rejected = ([{"role": "assistant", "content": actions[node].text}] for node in (pair.chosen, pair.rejected))
    prompt = policy_messages(history)
    assert found[0] == {"prompt": prompt, "chosen": chosen, "rejected": rejected, "gap": pair.gap}


def with_tokens(tree: Any) -> list[Any]:
    """The tree's pairs; a function's answers have no tokens, which only training needs."""
    from dataclasses import replace

    import numpy as np

    one = {"token_ids": np.zeros(1, np.int32), "logps": np.zeros(1, np.float32)}
    tree.proposal[:] = [p and replace(p, **one) for p in tree.proposal]
    return node_pairs(tree, **PAIRS)


def test_completions_are_the_actions_on_the_way_to_success(run: Path, tmp_path: Path) -> None:
    trees = [searched(0), searched(1)]
    for tree in trees:
        with_tokens(tree)
    found = rows(run, "trl-prompt-completion", tmp_path / "a.jsonl")
    assert len(found) == sum(len(tree_success_samples(tree)) for tree in trees)
    episodes = rows(run, "trl-prompt-completion", tmp_path / "b.jsonl", "agent_q/eval")
    assert len(episodes) == len(success_samples([make_trajectory(3)]))  # without the unreadable step
    last = episodes[-1]["prompt"][-1]["content"]
    assert "CLICK [0]" in last and "page 2" in last  # the history, and the page where the action was taken
    odd = rows(run, "trl-prompt-completion", tmp_path / "d.jsonl", "odd")
    assert "lone ?" in odd[-1]["prompt"][-1]["content"]  # half of a surrogate pair is no text
    chats = rows(run, "sharegpt", tmp_path / "c.jsonl")
    assert [each["from"] for each in chats[0]["conversations"]] == ["system", "human", "gpt"]
    assert chats[0]["conversations"][2]["value"] == found[0]["completion"][0]["content"]


def test_a_prompt_has_what_the_policy_saw_and_held_out_tasks_are_left_out(tmp_path: Path) -> None:
    """A conversation of two steps in a search, and an episode; measured tasks are for no training."""
    talk, t = grown([-1, 0, 1], ends=[2], won=[2]), make_trajectory(6)
    talk.task = replace(talk.task, keeps_pages=True)
    with RunStore.open(tmp_path / "run", {}) as store:
        store.add_tree("q/collect", talk)
        store.add_trajectory("r/collect", "6/0", t)
        store.add_trajectory("eval", "8/0", make_trajectory(8))
    found = rows(tmp_path / "run", "trl-prompt-completion", tmp_path / "x")
    said = [row["completion"][0]["content"] for row in found]
    assert said[:2] == [p.action.text for p in talk.proposal if p]
    assert said[2:] == [step.proposal.action.text for step in t.steps if step.proposal.action.env_action]
    first, second = (json.dumps(row["prompt"]) for row in found[:2])
    assert [f"page {i}" in first for i in range(3)] == [True, False, False]
    assert [f"page {i}" in second for i in range(3)] == [True, True, False]  # a conversation keeps its pages


def test_prompts_are_those_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def compose(history):\n    return [{'role': 'user', 'content': history.observation.text}]\n")
    with RunStore.open(tmp_path / "run", {"model": {"prompt": f"{file}:compose"}}) as store:
        store.add_trajectory("r/collect", "6/0", make_trajectory(6))
    found = rows(tmp_path / "run", "trl-prompt-completion", tmp_path / "x")
    assert [row["prompt"] for row in found] == [[{"role": "user", "content": f"page {i}"}] for i in (0, 2)]


def test_a_sessions_success_and_return_are_those_that_count_and_its_calls_are_told_apart(tmp_path: Path) -> None:
    checked = {"success": True, "return": 0.75, "steps": 2, "broken": False, "end": 2}
    with RunStore.open(tmp_path / "run", {}) as store:
        store.add_tree("eval", grown([-1, 0, 1], ends=[2], info={"checked": checked}))  # the judge had refused it
        store.add_trajectory("eval", "4/0", make_trajectory(4, success=False, return_=0.5))
    assert export(tmp_path / "run", "hf-traces", tmp_path / "out") == 2
    for name, success, total in (("eval-3", True, 0.75), ("eval-4-0", False, 0.5)):
        header, *lines = map(json.loads, (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines())
        assert (header["success"], header["return"]) == (success, total)
        calls = [call["id"] for line in lines for call in line["message"].get("toolCalls", ())]
        answered = [line["message"]["toolCallId"] for line in lines if line["message"]["role"] == "tool"]
        assert len(set(calls)) == len(calls) == 2 and answered == calls


def test_the_command_line_knows_the_formats_and_says_what_is_missing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuple(FORMATS) == records.FORMATS
    out = str(tmp_path / "x.jsonl")
    assert main(["export", str(run), "--format", "sharegpt", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["export"] == out
    with RunStore.open(tmp_path / "empty", CONFIG) as store:
        store.set_note("base", {"name": "x"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for words, said in {
        (
            "--format",
            "trl",
        ): "--format must be trl-preference or trl-prompt-completion or sharegpt or hf-traces or parquet; got 'trl'",
        ("--format", "sharegpt", "--stage", "eval"): "--stage must be a stage of the run (agent_q/round1/collect, odd, "
        "agent_q/eval); got eval",
        (
            "--format",
            "trl-preference",
            "--stage",
            "odd",
        ): f"{run} must have preference pairs of search trees to export as trl-preference; got none in odd",
        ("--format", "parquet"): "agentq export --format parquet needs pyarrow: pip install 'agentq-search[parquet]'",
    }.items():
        assert main(["export", str(run), "--out", out, *words]) == 2
        assert capsys.readouterr().err == f"agentq: {said}\n"
    monkeypatch.setattr(RunStore, "trees", lambda *_: pytest.fail("it must not read a run first"))
    for wrong, reason in ((tmp_path, "Is a directory"), (tmp_path / "none" / "x", "No such file or directory")):
        assert main(["export", str(run), "--out", str(wrong), "--format", "sharegpt"]) == 2
        said = f"agentq: {wrong} must be a file that can be written; got {reason}\n"
        assert capsys.readouterr().err == said
    (tmp_path / "file").touch()
    assert main(["export", str(run), "--out", str(tmp_path / "file" / "x"), "--format", "hf-traces"]) == 2
    said = f"agentq: --out must be a directory that can be written to; got {tmp_path / 'file' / 'x'}: Not a directory\n"
    assert capsys.readouterr().err == said


def test_an_upload_without_its_library_is_refused_before_the_export(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    words = ["export", str(run), "--format", "sharegpt", "--out", str(tmp_path / "x"), "--push", "a/b"]
    assert main(words) == 2
    assert "agentq export --push needs huggingface" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_an_export_without_a_stage_of_training_names_the_stages_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.set_note("base", {"name": "x"})
        store.add_trajectory("eval", "5/0", make_trajectory(5))
    words = ["export", str(tmp_path / "run"), "--format", "sharegpt", "--out", str(tmp_path / "x")]
    assert main(words) == 2
    assert capsys.readouterr().err.endswith("got none in stages of training; --stage names another: eval\n")
    assert main([*words, "--stage", "base"]) == 2
    assert capsys.readouterr().err == "agentq: --stage must be a stage of the run (eval); got base\n"
    assert main([*words, "--stage", "eval"]) == 0


def test_parquet_has_every_node_and_page(run: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    n = export(run, "parquet", tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert len(table) == n == len(searched(0)) + len(searched(1)) + 13 + 3 + 3 + 4 + 4
    assert {row["stage"] for row in table} == {"agent_q/round1/collect", "odd", "agent_q/eval"}
    row = table[1]
    assert (row["parent"], row["action"]) == (0, "STOP") and row["visit_count"] == int(searched(0).visit_count[1])


def test_sessions_are_what_the_hubs_viewer_of_traces_reads(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "sessions"
    n = export(run, "hf-traces", out, "agent_q/eval")
    files = sorted(out.iterdir())
    assert [file.name for file in files] == [f"agent_q-eval-{key}.jsonl" for key in ("2-0", "3-0", "3-1")] and n == 3
    header, *lines = [json.loads(line) for line in (out / "agent_q-eval-3-0.jsonl").read_text().splitlines()]
    episode = make_trajectory(3)
    assert header["type"] == "session" and header["harness"] == "agentq" and header["id"] == "agent_q/eval/3/0"
    assert header["name"] == episode.task.instruction and header["success"] is True
    assert all(set(line) == {"type", "message"} and line["type"] == "message" for line in lines)
    messages = [line["message"] for line in lines]
    assert [m["role"] for m in messages[:2]] == ["system", "user"]
    assert len(messages) == 2 + 2 * len(episode.steps)
    for number, step in enumerate(episode.steps):
        said, page = messages[2 + 2 * number : 4 + 2 * number]
        action = step.proposal.action.env_action
        if action is None:  # no tool was called
            assert said == {"role": "assistant", "content": step.proposal.action.text} and page["role"] == "user"
            continue
        (call,) = said["toolCalls"]
        given = json.loads(call["function"]["arguments"])
        assert call["function"]["name"] == action.command and given.get("element") == action.element
        assert page == {"role": "tool", "toolCallId": call["id"], "content": step.result.observation.text}
        assert said["reasoningContent"].endswith(step.proposal.action.thought)


def test_sessions_of_trees_are_their_best_paths_in_a_new_directory(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(run), "--format", "hf-traces", "--out", str(tmp_path / "all")]
    assert main(words) == 0
    names = {file.name for file in (tmp_path / "all").iterdir()}
    assert "agent_q-round1-collect-0.jsonl" in names and "agent_q-eval-2-0.jsonl" in names
    solved = [json.loads(line) for line in (tmp_path / "all/agent_q-round1-collect-0.jsonl").read_text().splitlines()]
    assert solved[0]["success"] and "STOP" in json.dumps(solved[-2])
    capsys.readouterr()
    assert main(words) == 2  # files of an earlier export would be among the new ones
    assert "must be a new or empty directory for hf-traces" in capsys.readouterr().err


def test_the_session_of_a_tree_is_the_episode_that_was_chosen(tmp_path: Path) -> None:
    tree = searched(0)
    end = next(end for end in tree.info["ends"] if not tree.success[end])
    tree.info["checked"] = {"success": False, "return": 0.0, "steps": int(tree.depth[end]), "broken": False, "end": end}
    with RunStore.open(tmp_path / "voted", CONFIG) as store:
        store.add_tree("eval", tree)
    assert export(tmp_path / "voted", "hf-traces", tmp_path / "out") == 1 and tree.success.any()
    (file,) = (tmp_path / "out").iterdir()
    header, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert (header["success"], header["return"]) == (False, 0.0)
    pages = [line["message"]["content"] for line in lines if line["message"]["role"] == "tool"]
    assert pages == [page.text for page in (tree.observation[node] for node in tree.path(end)[1:]) if page]


def test_an_export_that_takes_long_shows_how_far_it_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["export", str(run), "--format", "hf-traces", "--out"]
    assert main([*words, str(tmp_path / "short")]) == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(status, "SILENT_S", 0.0)
    assert main([*words, str(tmp_path / "long")]) == 0
    first, second = capsys.readouterr().err.splitlines()
    with RunStore.read(run) as store:
        n = sum(store.count(stage, kind) for stage in store.stages() for kind in (TREE, TRAJECTORY))
    assert first.startswith(f"export: {n}/{n} items, ")
    files = len(list((tmp_path / "long").iterdir()))
    assert files > 1 and second.startswith(f"write: {files}/{files} files, ")
