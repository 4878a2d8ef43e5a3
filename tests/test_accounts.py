"""What a stage's engines did, and what went wrong on the way: in its note, the status line, the report, the price."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from agentq.cli import main
from agentq.config import Search, Settings
from agentq.eval_settings import Eval
from agentq.evaluation.stats import RungResult
from agentq.model_settings import CriticSettings
from agentq.policies import patience
from agentq.policies.engine_names import embedded_base
from agentq.policies.openai_engine import OpenAIEngine
from agentq.policies.usage import Price, Tally, Usage
from agentq.progress import by_count, ladder_table, main_console
from agentq.recipes.accounts import Cost, cost_of, first_prompt
from agentq.recipes.pipeline import Pipeline, search_settings
from agentq.recipes.resources import Resources, searches
from agentq.report import write_report
from agentq.searching import collect
from agentq.status import Show
from agentq.store.run import TREE, RunStore
from agentq.types import Split
from tests.openai_factory import FakeOpenAI, fake_openai
from tests.recipes_factory import Quiet
from tests.records_factory import make_proposal, make_trajectory, make_tree

QUESTIONS = [""] * 5  # that an engine has for its server when it is made, and meet no fault
KINDS = {
    "429": "HTTP 429",
    "503": "HTTP 503",
    "500": "HTTP 500",
    "stall": "no answer in time",
    "truncated": "connection broken off",
    "malformed": "malformed JSON",
    "null choices": "answer of another form",
    "no choices": "too few choices",
    "counts": "wrong token counts",
    "broken off": "answer broken off",
}
QUICK = ("malformed",)  # the others are of make test-rest
MAIN = "from agentq.cli import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.001)


@pytest.fixture(scope="module")
def tokenizer() -> object:
    return AutoTokenizer.from_pretrained(embedded_base())


@pytest.fixture
def server(tokenizer: object) -> Iterator[FakeOpenAI]:
    with fake_openai(tokenizer=tokenizer, root=embedded_base()) as fake:
        yield fake


@pytest.fixture(scope="module")
def clean(tokenizer: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, Any], str]:
    """A search without faults."""
    with fake_openai(tokenizer=tokenizer, root=embedded_base()) as fake:
        return searched(fake, tmp_path_factory.mktemp("clean") / "run")


class Shown(Quiet):
    """`StageDisplay` that keeps the last note."""

    note = ""

    def stage(self, name: str, total: int, unit: str) -> Show:
        def show(done: int, note: str, grown: float = 0.0, /) -> None:
            self.note = note

        return show


def searched(server: FakeOpenAI, out: Path, status: Any = None) -> tuple[list[Any], dict[str, Any], str]:
    """Trees of two tasks that a pipeline keeps, the stage's note, and the report's row of it."""
    engine = OpenAIEngine(server.url, timeout_s=1.0, patience_s=30.0)
    with RunStore.open(out, {}) as store:
        p = Pipeline(store, Settings(), engine.name, status or Quiet())
        p.engines[engine.name] = engine
        settings = search_settings(Search(num_proposals=3), 2, 0)
        job = partial(searches, policy=engine.name, critic=CriticSettings(), settings=settings, stage="search")
        p.collect("search", collect.attempts(p.tasks(Split.TRAIN, 2)), job, kind=TREE)
        p.close()
        trees = sorted(store.trees("search"), key=lambda tree: tree.task.seed)
        note = store.note("search") or {}
    columns = [
        (tree.parent.tolist(), tree.visit_count.tolist(), [p and p.action.text for p in tree.proposal])
        for tree in trees
    ]
    return columns, note, write_report(out).read_text()


def test_a_search_without_faults_reports_none(clean: tuple[list[Any], dict[str, Any], str]) -> None:
    trees, note, page = clean
    assert len(trees) == 2 and note["engine"]["faults"] == {} and note["engine"]["pause_s"] == 0
    assert "failed attempts" not in page


@pytest.mark.parametrize(
    "fault", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.rest) for kind in KINDS]
)
def test_a_search_loses_nothing_to_a_fault_and_the_report_says_which(
    server: FakeOpenAI, clean: tuple[list[Any], dict[str, Any], str], tmp_path: Path, fault: str
) -> None:
    times = 2 if fault == "stall" else 5
    server.faults.extend([*QUESTIONS, *[fault] * times])
    found, note, page = searched(server, tmp_path / "faulty")
    assert found == clean[0] and not server.faults
    assert note["engine"]["faults"] == {KINDS[fault]: times} and note["engine"]["pause_s"] > 0
    assert f"{times} failed attempts ({times} {KINDS[fault]}), 0." in page


def test_a_search_survives_a_killed_server_and_the_report_says_so(
    server: FakeOpenAI,
    clean: tuple[list[Any], dict[str, Any], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill = server.kill

    def kill_and_start_later() -> None:
        monkeypatch.setattr(server, "kill", kill)
        kill()
        Thread(target=lambda: (server.stalled.wait(0.3), server.start())).start()

    monkeypatch.setattr(server, "kill", kill_and_start_later)
    server.faults.extend([*QUESTIONS, "", "", "die"])
    found, note, page = searched(server, tmp_path / "killed")
    faults = note["engine"]["faults"]
    assert found == clean[0] and faults.keys() <= {"connection broken off", "no connection"}
    assert faults["connection broken off"] >= 1 and faults["no connection"] >= 1
    assert f"{faults['no connection']} no connection" in page


def test_the_status_line_tells_tokens_cached_share_and_failures(server: FakeOpenAI, tmp_path: Path) -> None:
    status = Shown()
    server.faults.extend([*QUESTIONS, "429", "429"])
    _, note, _ = searched(server, tmp_path / "run", status)
    used = Usage.from_note(note)
    assert used.total.cached_tokens == 2 * used.total.requests and used.seconds > 0
    shown = Usage({"all": used.total}, faults=used.faults)
    assert f" %), {shown}, engines busy " in status.note and str(shown).endswith("% cached, 2 failed attempts")
    assert {"policy", "critic"} == used.roles.keys()


def test_usage_is_the_same_behind_its_note_and_adds_up() -> None:
    one = Usage({"policy": Tally(1, 2000, 500, 9, 0.5)}, 1.5)
    one.faults["HTTP 429"] += 2
    assert Usage.from_note(json.loads(json.dumps(one.to_note()))) == one
    assert str(one) == "2.0 k tokens, 25 % cached, 2 failed attempts" and str(Usage()) == ""
    assert (
        str(Usage({"policy": Tally(1, 2000, 500, 9, shortened=3)})) == "2.0 k tokens, 25 % cached, 3 prompts shortened"
    )
    two = one + Usage({"policy": Tally(1, 1, 1, 1, 1.0), "critic": Tally(1)}, pause_s=3.0)
    assert two.roles == {"policy": Tally(2, 2001, 501, 10, 1.5), "critic": Tally(1)}
    assert (two.faults["HTTP 429"], two.seconds, two.pause_s) == (2, 1.5, 3.0)
    assert two.since(one) == Usage({"policy": Tally(1, 1, 1, 1, 1.0), "critic": Tally(1)}, pause_s=3.0)
    twice = two + two
    assert twice.faults["HTTP 429"] == 4 and twice.pause_s == 6.0 and twice.since(two) == two


def test_the_first_prompt_is_that_of_the_lowest_task_whatever_was_sampled(tmp_path: Path) -> None:
    expected = hashlib.sha256(np.arange(40, dtype="<i4").tobytes()).hexdigest()[:16]
    with RunStore.open(tmp_path / "run", {}) as store:
        for seed, prompt in ((10, 1), (9, 0)):
            proposal = replace(make_proposal(seed), prompt_ids=np.arange(prompt, prompt + 40, dtype=np.int32))
            tree, episode = make_tree(seed), make_trajectory(seed)
            tree.proposal[1] = proposal
            store.add_tree("trees", tree)
            steps = replace(episode.steps[0], proposal=proposal), *episode.steps[1:]
            store.add_trajectory("episodes", str(seed), replace(episode, steps=steps))
        mute = make_tree(1, num_nodes=2)
        mute.proposal[1] = replace(mute.proposal[1], prompt_ids=np.empty(0, np.int32))
        store.add_tree("text alone", mute)
        found = [first_prompt(store, stage) for stage in ("trees", "episodes", "text alone", "nothing")]
    assert found == [expected, expected, "", ""]


def test_a_stage_counts_what_was_asked_for_it(server: FakeOpenAI, tmp_path: Path) -> None:
    engine = OpenAIEngine(server.url)
    with RunStore.open(tmp_path / "run", {}) as store:
        p = Pipeline(store, Settings(), engine.name, Quiet())
        p.engines[engine.name] = engine
        for stage, num_tasks in (("one", 1), ("two", 2)):
            p.evaluate(stage, stage, engine.name, p.tasks(Split.TRAIN, num_tasks), Eval(temperature=1.0))
        p.close()
        used = [Usage.from_note(store.note(stage) or {}).total.requests for stage in ("one", "two")]
    assert min(used) > 0 and sum(used) == engine.usage.total.requests


def test_tokens_are_counted_and_priced(server: FakeOpenAI, tmp_path: Path) -> None:
    """Per million tokens: 3 for those computed, 1 for cached ones, 10 for generated ones."""
    searched(server, tmp_path / "run")
    with RunStore.read(tmp_path / "run") as store:
        cost, note = cost_of(store, "search", Price(3.0, 1.0, 10.0)), store.note("search") or {}
        trees = list(store.trees("search"))
    tallies = note["usage"].values()
    read, cached, wrote = (sum(t[f"{kind}_tokens"] for t in tallies) for kind in ("prompt", "cached", "generated"))
    assert cost.prompt_tokens == read and cost.generated_tokens == wrote and cached > 0
    assert note["usage"]["policy"]["prompt_tokens"] == sum(t.info["prompt_tokens"] for t in trees)
    assert cost.money == pytest.approx((3 * (read - cached) + cached + 10 * wrote) / 1e6)


def test_a_stage_costs_all_that_was_tried_and_what_the_engine_counted(tmp_path: Path) -> None:
    """The episode has 3 steps, 3 * 40 tokens read and 1 + 2 + 3 sampled; its first attempt and an action that was
    sampled again cost more. Paid, at 3, 1 and 10: 3 * 600 new, 500 cached and 10 * 60 generated tokens."""
    info = {
        "retried": {"env_steps": 5, "prompt_tokens": 7, "generated_tokens": 2},
        "repeats": {"steps": 1, "prompt_tokens": 11, "generated_tokens": 3},
    }
    tokens = {"env_steps": 7, "prompt_tokens": 9, "generated_tokens": 4}
    counted = Usage({"critic": Tally(1, 100, 0, 10), "policy": Tally(2, 1000, 500, 50)})
    t, price = replace(make_trajectory(3), info=info), Price(3.0, 1.0, 10.0)
    mute = [replace(step, proposal=replace(step.proposal, prompt_ids=np.empty(0, np.int32))) for step in t.steps]
    with RunStore.open(tmp_path / "run", {}) as store:
        for stage in ("engine", "no engine"):
            store.add_trajectory(stage, "3/0", t)
        store.add_trajectory("text", "3/0", replace(t, steps=tuple(mute), info={}))
        store.add_tree("trees", replace(make_tree(3), info=tokens))
        for stage in ("engine", "text"):
            store.set_note(stage, counted.to_note() | {"seconds": 1.5})
        engine, alone, text, trees = (cost_of(store, name, price) for name in ("engine", "no engine", "text", "trees"))
    assert engine == Cost(8, 100 + 138, 10 + 11, 1.5, pytest.approx(2900e-6))
    assert alone == Cost(8, 138, 11, 0.0, pytest.approx((3 * 138 + 10 * 11) * 1e-6))
    assert text == Cost(3, 1100, 60, 1.5, pytest.approx(2900e-6))  # records of texts alone have no tokens
    assert trees == Cost(7, 9, 4, 0.0, pytest.approx((3 * 9 + 10 * 4) * 1e-6))


def test_a_text_only_server_counts_tokens_and_the_table_tells_their_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_openai() as fake:
        words = ["--out", str(tmp_path / "run"), "--eval.num_tasks=3"]
        assert main(["eval", fake.url, *words, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rungs"]
        with RunStore.read(tmp_path / "run") as store:
            used = Usage.from_note(store.note("eval") or {}).total
        assert row["prompt_tokens"] == used.prompt_tokens == 2 * used.requests > 0  # the chat's two messages
        assert row["generated_tokens"] == used.generated_tokens == 7 * used.requests and row["money"] == 0
        assert main(["eval", fake.url, *words, "--price.generated=1e6"]) == 0  # the same run, priced
    assert f"{7 * used.requests} " in capsys.readouterr().out.replace("│", " ")
    assert "cost" in (tmp_path / "run" / "report.html").read_text()


def test_actions_that_are_sampled_again_count(
    server: FakeOpenAI, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", str(tmp_path / "run"), "--eval.num_tasks=6", "--eval.repeat_temperature=0.7", "--json"]
    assert main(["eval", server.url, *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rungs"]
    with RunStore.read(tmp_path / "run") as store:
        used = (store.note("eval") or {})["usage"]["policy"]
        again = sum(t.info.get("repeats", {}).get("steps", 0) for t in store.trajectories("eval"))
    assert again == sum(body["temperature"] == 0.7 for body in server.asked) > 0
    assert (row["prompt_tokens"], row["generated_tokens"]) == (used["prompt_tokens"], used["generated_tokens"])


def test_the_table_has_a_cost_where_there_is_one() -> None:
    cost = {"env_steps": 1, "prompt_tokens": 7, "generated_tokens": 3, "seconds": 2.0}
    row = RungResult.from_outcomes("base", [True], [1.0], [4], **cost)  # type: ignore[arg-type]
    paid = RungResult.from_outcomes("base", [True], [1.0], [4], **cost, money=0.25)  # type: ignore[arg-type]
    assert "cost" not in [column.header for column in ladder_table([row]).columns]
    assert list(ladder_table([row, paid]).columns[-1].cells) == ["0", "0.25"]
    assert RungResult.from_dict({k: v for k, v in row.to_dict().items() if k != "money"}) == row


def test_the_table_says_what_the_world_broke(capsys: pytest.CaptureFixture[str]) -> None:
    cost = {"env_steps": 1, "prompt_tokens": 7, "generated_tokens": 3, "seconds": 2.0}
    won, broken = [True, False, False], [False, False, True]
    row = RungResult.from_outcomes("base", won, [1.0, 0.0, 0.0], [4, 4, 0], [], broken, **cost)  # type: ignore[arg-type]
    main_console().print(ladder_table([row]))
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "base: 1 of 3 tasks broken by the world, counted as not solved; without them 50.0 % (9.5 - 90.5) of 2" in said
    )
    whole = RungResult.from_outcomes("base", won, [1.0, 0.0, 0.0], [4, 4, 4], **cost)  # type: ignore[arg-type]
    assert ladder_table([whole]).caption is None


def test_counts_are_told_commonest_first_and_then_by_name() -> None:
    assert by_count({"b": 2, "c": 7, "a": 2}) == "7 c, 2 a, 2 b"


def test_the_table_names_an_oracle() -> None:
    cost = {"env_steps": 1, "prompt_tokens": 7, "generated_tokens": 3, "seconds": 2.0}
    row = RungResult.from_outcomes("rft_mcts", [True], [1.0], [4], **cost)  # type: ignore[arg-type]
    said = ladder_table([replace(row, oracle=20)]).caption
    assert said == "rft_mcts: oracle, pass@20: the site's checker told the search when it had succeeded"


def test_a_server_is_measured_without_torch(tmp_path: Path) -> None:
    code = f"import sys; sys.modules.update(torch=None, transformers=None); {MAIN}"
    with fake_openai() as fake:
        words = ["eval", fake.url, "--out", str(tmp_path / "run"), "--eval.num_tasks=2", "--json"]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rungs"][0]["n"] == 2
        # its critic is the server's model
        searching = [*words[:3], str(tmp_path / "other"), *words[4:], "--search", "--eval.num_iterations=2"]
        done = subprocess.run([sys.executable, "-c", code, *searching], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        searching = [*words[:3], str(tmp_path / "third"), *words[4:], "--search", "--base=embedded"]
        done = subprocess.run([sys.executable, "-c", code, *searching], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "agentq eval needs torch: pip install 'agentq-search[train]'" in done.stderr


@pytest.mark.rest
def test_a_vllm_server_without_transformers_here_gives_text(tokenizer: object, tmp_path: Path) -> None:
    code = f"import sys; sys.modules['transformers'] = None; {MAIN}"
    with fake_openai(tokenizer=tokenizer, root=embedded_base()) as fake:
        words = ["eval", fake.url, "--out", str(tmp_path / "run"), "--eval.num_tasks=1", "--json"]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


KILLED = """
import os, signal, sys
from agentq.cli import main
from agentq.recipes import stage_line
was = stage_line.StageLine.on_item
def on_item(self, done, *more):
    was(self, done, *more)
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)
stage_line.NOTE_EVERY_S = 0.0
stage_line.StageLine.on_item = on_item
sys.exit(main())
"""


@pytest.mark.rest
def test_what_a_killed_process_paid_for_is_in_the_stages_note(tmp_path: Path) -> None:
    """With a server that gives text alone, whose token counts are in no record."""
    with fake_openai() as fake:
        words = ["eval", fake.url, "--out", str(tmp_path / "run"), "--eval.num_tasks=3", "--json"]
        words += ["--search.num_trees_in_flight=1", "--price.prompt=1000000"]
        done = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
        with RunStore.read(tmp_path / "run") as store:
            (stage,) = (name for name in store.stages() if name.endswith("eval"))
            note = store.note(stage) or {}
            spent = Usage.from_note(note).roles["policy"]
        assert spent.prompt_tokens > 0 and spent.requests > 1 and note["seconds"] > 0
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {MAIN}", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rungs"]
    assert row["prompt_tokens"] > spent.prompt_tokens and row["seconds"] > note["seconds"]
    assert row["money"] == pytest.approx(row["prompt_tokens"])


class AtWork(SimpleNamespace):
    """An engine that has computed for some time."""

    __hash__ = object.__hash__


def test_the_busy_share_is_of_engines_that_compute(tmp_path: Path) -> None:
    settings = Settings.model_validate({"run": {"out": str(tmp_path)}})
    idle, busy = (AtWork(usage=Usage(seconds=s)) for s in (3.0, 5.0))
    resources = Resources(settings, "", {"base": idle, "policy": busy})
    then = resources.computed()
    assert resources.num_computing(then, None) == 1  # nothing yet
    busy.usage.seconds += 1
    assert resources.num_computing(then, None) == 1
    idle.usage.seconds += 1
    assert resources.num_computing(then, None) == 2
    assert Resources(settings, "", {}).num_computing({}, SimpleNamespace(num_workers=3)) == 3
