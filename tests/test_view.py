"""The viewer's data and files, without a browser: what the page contains, and which requests its server answers."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import json
import re
import shutil
import socket
import sqlite3
import tempfile
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentq import status
from agentq.cli import main
from agentq.credit.pairs import WeighedPair, node_pairs, weighed_pairs
from agentq.errors import ConfigError, StoreError
from agentq.picture import Picture
from agentq.policies.engine_names import embedded_base
from agentq.searching import partial
from agentq.store import RunStore
from agentq.store.records import TreeRecord
from agentq.store.run import PARTIAL
from agentq.types import Observation
from agentq.viewer import ViewServer, write_view
from agentq.viewer import data as view_data
from agentq.viewer.data import _round, of_episode, of_tree, row, token_data, tree_data, weigh
from agentq.viewer.items import Items
from tests.records_factory import make_trajectory, make_tree
from tests.test_evaluation_outcomes import tree as grown
from tests.view_factory import CONFIG, HOSTILE, PAIRS, Count, damaged, looped, lost, make_run, searched


def blocks(page: str) -> dict[str, Any]:
    """The data in a page, by name."""
    found = re.findall(r'<script type="application/octet-stream" id="(\w+)">([^<]*)</script>', page)
    return {name: json.loads(zlib.decompress(base64.b64decode(data))) for name, data in found}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("view") / "run")


def test_the_ends_of_rollouts_explain_every_visit_and_return() -> None:
    for task in range(4):
        tree = searched(task, 12)
        count, total = np.zeros(len(tree)), np.zeros(len(tree))
        for end in tree.info["ends"]:
            for node in tree.path(end):
                count[node] += 1
                total[node] += sum(tree.reward[i] for i in tree.path(end))
        assert (count == tree.visit_count).all() and (total == tree.value_sum).all()
        assert len(tree.info["ends"]) == tree.info["iterations"]


def test_the_page_has_every_item_with_its_row_and_data(run: Path, tmp_path: Path) -> None:
    page = write_view([run], tmp_path / "page.html").read_text()
    data = blocks(page)
    items = {f"{item['stage']} {item['key']}": item for item in data["index"]["items"]}
    assert list(items) == [
        *("agent_q/round1/collect 0", "agent_q/round1/collect 1", "odd 7", "odd 8"),
        *("agent_q/eval 2/0", "agent_q/eval 3/0", "agent_q/eval 3/1"),
    ]
    first = items["agent_q/round1/collect 0"]
    assert (first["outcome"], first["rollouts"], first["task"]) == ("solved", 8, "Count to 2 and stop")
    assert first["pairs"] == len(searched_pairs()) and items["odd 7"]["pairs"] == 0
    assert items["agent_q/eval 2/0"]["stop"] == "network"
    assert set(data) == {"index", *(f"{kind}{item['id']}" for item in items.values() for kind in ("tree", "tokens"))}
    stages = ["agent_q/round1/collect", "odd", "agent_q/eval"]
    runs = [{"name": "run", "selection": "ucb1", "c_exp": 1.0, "alpha": 1.0, "stages": stages}]
    assert data["index"]["runs"] == runs


def test_a_run_without_a_critic_has_alpha_1(tmp_path: Path) -> None:
    for critic, alpha in (("none", 1.0), ("base", 0.5)):
        with RunStore.open(tmp_path / critic, {"search": {"alpha": 0.5}, "critic": {"model": critic}}):
            pass
        items = Items([tmp_path / critic])
        assert items.runs()[0]["alpha"] == alpha
        items.close()


def searched_pairs() -> list[Any]:
    return [pair for pair in weighed_pairs(searched(0), **PAIRS) if not pair.dropped]


def test_the_page_allows_its_own_script_and_style_and_no_request(run: Path, tmp_path: Path) -> None:
    page = write_view([run], tmp_path / "page.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    style = page[page.index("<style>") + len("<style>") : page.index("</style>")]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    assert policy[1].replace("&#x27;", "'") == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; img-src blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    assert "innerHTML" not in script and "insertAdjacentHTML" not in script and "document.write" not in script
    assert HOSTILE[:20] not in page.replace(script, "")


def test_a_runs_name_is_text(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "x<b>y")
    assert "<title>x&lt;b&gt;y - agentq view</title>" in write_view([tmp_path / "x<b>y"]).read_text()


def test_an_episode_is_a_tree_without_branches_and_tells_why_it_stopped() -> None:
    won = of_episode(make_trajectory(0))
    assert won.outcome == "solved" and won.tree.parent.tolist() == [-1, 0, 1, 2]
    assert won.tree.observation[1] == make_trajectory(0).steps[0].result.observation
    assert (of_episode(looped()).outcome, of_episode(looped()).stop) == ("failed", "loop")
    assert (of_episode(lost()).outcome, of_episode(lost()).stop) == ("broken", "network")
    assert of_episode(lost()).messages == ["", "", "no route"]
    stopped = of_episode(make_trajectory(0, success=False))
    assert (stopped.outcome, stopped.stop) == ("failed", "ended by the site")


def test_the_row_of_a_tree_is_of_the_episode_that_counts_and_pages_are_told_apart() -> None:
    """The judge approved the episode at 2, the one at 3 was chosen, and the checker refused it."""
    checked = {"success": False, "return": 0.0, "steps": 1, "broken": False, "end": 3}
    shot = Picture(b"RIFF", (9, 9), {})
    pages = [
        Observation("p", "/a"),
        Observation("p", "/b"),
        Observation("p", "/a"),
        Observation("p", "/a", picture=shot),
    ]
    found = of_tree(grown([-1, 0, 1, 0], ends=[2, 3], won=[2], info={"checked": checked}, observation=pages))
    shown, data = row(found, []), tree_data(found, None, [WeighedPair(1, 3, 0.5, "")])
    assert (shown["outcome"], shown["steps"], data["best"]) == ("failed", 1, 3)
    assert data["shows"] == [0, 1, 0, 2] and len(data["pages"]) == 3
    assert data["pairs"] == [[1, 3, 0.5, ""]]


def test_pairs_are_those_of_training_and_the_rest_says_why() -> None:
    tree = make_tree(3, num_nodes=7, width=3)
    tree.visit_count[:] = [9, 3, 3, 3, 0, 1, 1]
    tree.value_sum[:] = [4.5, 3, 1.5, 0, 0, 1, 0.9]
    tree.error_kind[:] = [None] * 6 + ["network"]
    settings = {"alpha": 1.0, "threshold": 0.5, "max_pairs_per_node": 1, "min_visits": 1}
    found = [tuple(pair) for pair in weighed_pairs(tree, **settings)]
    assert found == [
        (1, 3, 1.0, ""),  # Q 1 over Q 0
        (1, 2, 0.5, "1 larger gaps at this node"),
        (2, 3, 0.5, "1 larger gaps at this node"),
        (5, 6, pytest.approx(0.1), "broken by the world"),
    ]
    assert [pair.gap for pair in node_pairs(tree, **settings)] == [1.0]
    reasons = {(a, b): why for a, b, _, why in weighed_pairs(tree, **(settings | {"min_visits": 4}))}
    assert reasons[1, 3] == "fewer than 4 visits"
    reasons = {(a, b): why for a, b, _, why in weighed_pairs(tree, **(settings | {"threshold": 0.7}))}
    assert reasons[1, 2] == "gap below 0.7"


def test_data_has_no_numbers_that_json_does_not_know() -> None:
    tree = make_tree(0)
    for proposal in tree.proposal[1:]:
        assert proposal is not None
        proposal.logps[:] = np.nan
    data = json.loads(json.dumps(tree_data(of_tree(tree), PAIRS, weigh(of_tree(tree), PAIRS)), allow_nan=False))
    assert data["logp"] == [None] * 12 and data["prior"] == [None] * 12
    assert row(of_tree(tree), weigh(of_tree(tree), None))["pairs"] == 0


def test_numbers_are_rounded_as_python_rounds() -> None:
    rng = np.random.default_rng(0)
    ties = [n / 20_000 for n in range(-3001, 3001, 2)] + [n / 200 for n in range(-3001, 3001, 2)]
    near = [float(np.nextafter(value, to)) for value in ties for to in (-9.0, 9.0)]
    large = [1e8 + 0.5, 123_456_789.123_45, 2.0**53, 1e300, -1e308, 5e-324, -0.0, -1e-9]
    values = [*ties, *near, *large, *rng.normal(0, 5, 2000).tolist(), *rng.normal(0, 5, 99).astype("f4").tolist()]
    for digits in (2, 4):
        found = _round(values, digits)
        assert json.dumps(found) == json.dumps([round(value, digits) for value in values])
    assert _round([1.0, float("nan"), float("inf"), -float("inf")]) == [1.0, None, None, None] and _round([]) == []


def test_each_action_has_its_own_tokens() -> None:
    tree = make_tree(3)
    for node, p in enumerate(tree.proposal):
        if p is not None:
            tree.proposal[node] = replace(p, token_ids=p.token_ids[: node % 4], logps=p.logps[: node % 4])
    told = [p for p in tree.proposal if p is not None]
    data = token_data(of_tree(tree), lambda token: f"<{token}>")
    assert data["ids"] == [p.token_ids.tolist() for p in told] and len({len(ids) for ids in data["ids"]}) > 1
    assert data["logps"] == [[round(value, 2) for value in p.logps.tolist()] for p in told]
    assert list(data["words"]) == sorted({token for ids in data["ids"] for token in ids})
    none = token_data(of_episode(make_trajectory(0, 0)), str)
    assert none["ids"] == none["logps"] == [] and none["words"] == {}


def test_an_only_child_has_prior_1_unless_its_logp_is_unknown() -> None:
    tree = of_episode(make_trajectory(0)).tree
    n = len(tree) - 1
    assert n > 0 and tree_data(of_tree(tree), None, [])["prior"] == [None] + [1.0] * n
    for p in tree.proposal[1:]:
        assert p is not None
        p.logps[:] = np.nan
    assert tree_data(of_tree(tree), None, [])["prior"] == [None] * (n + 1)


def test_a_trees_pairs_are_weighed_once(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def counted(tree: TreeRecord, **settings: Any) -> Any:
        seen.append(tree.task.seed)
        return weighed_pairs(tree, **settings)

    monkeypatch.setattr(view_data, "weighed_pairs", counted)
    write_view([run], tmp_path / "view.html")
    assert seen == [0, 1]


def test_tokens_are_shown_as_text_where_the_base_is_here(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunStore.open(path, CONFIG) as store:
        store.set_note("base", {"name": str(embedded_base())})
        store.add_tree("search", make_tree(0, num_nodes=3))
    tokens = blocks(write_view([path]).read_text())["tokens0"]
    assert tokens["node"] == [1, 2] and len(tokens["words"]) == len({i for ids in tokens["ids"] for i in ids})
    assert any(word.strip() for word in tokens["words"].values())


def test_write_view_says_what_is_wrong(run: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"must be a run directory; it has no config\.json"):
        write_view([tmp_path])
    with pytest.raises(StoreError, match="choose another by agentq view RUN --out FILE"):
        write_view([run], tmp_path)


def test_damaged_items_are_left_out_of_the_page_and_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged(tmp_path / "run")
    assert main(["view", str(run)]) == 0
    said = capsys.readouterr()
    shown = blocks((run / "view.html").read_text())["index"]
    assert [item["key"] for item in shown["items"]] == ["0", "7", "8", "3/0", "3/1"]
    line = (
        f"3 damaged parts are left out; the first: the note of agent_q/round1/collect: {run / 'run.sqlite'} is damaged "
        "(Expecting property name enclosed in double quotes: line 1 column 2 (char 1)): "
        f"agentq check {run} says what can be saved"
    )
    assert said.err == f"{line}\n" and said.out == f"view: {run / 'view.html'}\n" and shown["lost"] == line
    with ViewServer([run]) as server:
        live = index(server)
    assert [item["key"] for item in live["items"]] == ["0", "7", "8", "3/0", "3/1"] and live["lost"] == line


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(self: RunStore, *_: Any) -> Any:
        raise AssertionError("it was read")

    def full(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(RunStore, "_records", read)
    for command in ("view", "report"):
        for out, why in ((tmp_path, "Is a directory"), (tmp_path / "no" / "x.html", "No such file or directory")):
            assert main([command, str(run), "--out", str(out)]) == 2
            remedy = f"choose another by agentq {command} RUN --out FILE"
            assert capsys.readouterr().err == f"agentq: {out} must be a file that can be written; got {why}: {remedy}\n"
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "TemporaryFile", full)  # root may write everywhere
            assert main([command, str(run), "--out", str(tmp_path / "x.html")]) == 2
        assert "x.html must be a file that can be written; got Permission denied: " in capsys.readouterr().err


def test_the_command_writes_the_page_and_says_where(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"view": str(run / "view.html")}
    assert main(["view", str(run), "--live", "--out", "x.html"]) == 2
    assert capsys.readouterr().err == "agentq: --live writes no file; leave out --out\n"


def test_a_view_that_takes_long_shows_how_far_it_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["view", str(run), "--out", str(tmp_path / "view.html"), "--json"]
    assert main(words) == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr(status, "SILENT_S", 0.0)
    assert main(words) == 0
    said = capsys.readouterr()
    n = len(blocks((tmp_path / "view.html").read_text())["index"]["items"])
    assert said.err.startswith(f"view: {n}/{n} items, ") and said.err.count("\n") == 1
    assert json.loads(said.out) == {"view": str(tmp_path / "view.html")}


def get(server: ViewServer, path: str, host: str = "") -> tuple[int, bytes]:
    """The status and body of a request to the server."""
    at = re.match(r"http://([^/]+)(/.*)", server.url)
    assert at is not None
    connection = http.client.HTTPConnection(at[1], timeout=20)
    connection.request("GET", at[2] + path if not path.startswith("/") else path, headers={"Host": host or at[1]})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def index(server: ViewServer) -> dict[str, Any]:
    return json.loads(zlib.decompress(get(server, "data/index")[1]))


def test_the_server_answers_who_knows_its_address_and_name(run: Path) -> None:
    with ViewServer([run]) as server:
        status, page = get(server, "")
        assert status == 200 and b"connect-src &#x27;self&#x27;" in page
        assert get(server, "/")[0] == get(server, "/data/index")[0] == 404
        assert get(server, "data/index", host="evil.test")[0] == 404
        assert (
            get(server, "data/../../etc/passwd")[0]
            == get(server, "data/tree99")[0]
            == get(server, "data/tree-1")[0]
            == 404
        )
        assert len(index(server)["items"]) == 7
        tree = json.loads(zlib.decompress(get(server, "data/tree0")[1]))
        assert tree["N"] == searched(0).visit_count.tolist()
        with pytest.raises(ConfigError, match="--port must be free"):
            ViewServer([run], int(server.url.split(":")[2].split("/")[0]))
    with pytest.raises(ConfigError, match=r"--port must be in \[0, 65535\]; got 70000"):
        ViewServer([run], 70000)


def test_the_server_says_what_is_damaged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.add_tree("search", searched(0))
    with ViewServer([tmp_path / "run"]) as server:
        assert len(index(server)["items"]) == 1
        with closing(sqlite3.connect(tmp_path / "run" / "run.sqlite", isolation_level=None)) as database:
            database.execute("DELETE FROM blobs WHERE length(data) = (SELECT max(length(data)) FROM blobs)")
        status, said = get(server, "data/tree0")
        assert status == 500 and re.fullmatch(
            r".*/run.sqlite is damaged \(tree 0 of search: blob [0-9a-f]{32} is missing\): "
            r"agentq check .*/run says what can be saved",
            said.decode(),
        )
        at = server.url.removeprefix("http://").partition("/")[0].split(":")
        with socket.create_connection((at[0], int(at[1])), timeout=20) as connection:
            connection.sendall(b"GET /\xe9 HTTP/1.0\r\n\r\n")
            assert b" 404 " in connection.recv(100)
    assert capfd.readouterr().err == ""


def test_a_search_that_ends_while_the_page_is_made_is_shown_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "EVERY_S", 0.0)
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        tree = search_keeping(partial.PartialTrees(store, "search"), 3)
        items = Items([tmp_path / "run"])
        (place,) = items.places()
        growing = items.read(place)
        assert growing is not None and (growing.outcome, growing.stop) == ("growing", "")
        store.add_tree("search", tree)
        store.drop_partial("search", 0)
        done = items.read(place)
        assert done is not None and done.outcome == of_tree(tree).outcome
        items.close()


def test_the_server_shows_a_tree_that_grows_and_then_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentq.viewer import serve

    monkeypatch.setattr(serve, "EVERY_S", 0.0)
    monkeypatch.setattr(partial, "EVERY_S", 0.0)
    monkeypatch.setattr(partial, "SHARE", 0)
    with RunStore.open(tmp_path / "run", CONFIG) as store, ViewServer([tmp_path / "run"]) as server:
        assert index(server)["items"] == []
        kept = partial.PartialTrees(store, "search")
        seen: list[tuple[str, int, int]] = []

        class Watched:
            def partial(self, stage: str, seed: int) -> Any:
                return store.partial(stage, seed)

            def set_partial(self, stage: str, tree: Any) -> None:
                store.set_partial(stage, tree)
                (item,) = index(server)["items"]
                seen.append((item["kind"], item["rollouts"], item["change"]))

            def drop_partial(self, stage: str, seed: int) -> None:
                store.drop_partial(stage, seed)

        kept.store = Watched()
        tree = search_keeping(kept, 4)
        assert [(kind, n) for kind, n, _ in seen] == [(PARTIAL, n) for n in (1, 2, 3, 4)]
        assert len({change for *_, change in seen}) == 4
        store.add_tree("search", tree)
        (item,) = index(server)["items"]
        assert (item["id"], item["kind"], item["rollouts"]) == (0, "tree", 4)


def test_the_server_weighs_pairs_when_training_takes_them_and_then_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentq.viewer import serve

    weighed: list[int] = []

    def counted(tree: TreeRecord, **settings: Any) -> Any:
        weighed.append(tree.task.seed)
        return weighed_pairs(tree, **settings)

    monkeypatch.setattr(view_data, "weighed_pairs", counted)
    monkeypatch.setattr(serve, "EVERY_S", 0.0)
    with RunStore.open(tmp_path / "run", CONFIG) as store, ViewServer([tmp_path / "run"]) as server:
        for seed in (0, 1):
            store.add_tree("search", searched(seed))
        assert [item["pairs"] for item in index(server)["items"]] == [0, 0] and not weighed
        assert json.loads(zlib.decompress(get(server, "data/tree0")[1]))["pairs"] == []
        store.set_note("search", {"pairs": PAIRS})
        first = index(server)
        assert [item["pairs"] for item in first["items"]] == [5, 3] and weighed == [0, 1]
        store.set_note("other", {})
        assert index(server)["items"] == first["items"] and weighed == [0, 1]
        answers = [get(server, f"data/tree{number}")[1] for number in (0, 1, 0, 1)]
        assert answers[:2] == answers[2:] and weighed == [0, 1, 0, 1]
        assert len(json.loads(zlib.decompress(answers[0]))["pairs"]) >= 1
        monkeypatch.setattr(serve, "KEPT_BYTES", len(answers[0]))
        assert get(server, "data/tokens0")[0] == 200  # which leaves no room for a tree
        assert get(server, "data/tree0")[1] == answers[0] and weighed == [0, 1, 0, 1, 0]


def test_a_growing_tree_of_another_version_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "EVERY_S", 0.0)
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        search_keeping(partial.PartialTrees(store, "search"), 3)
        assert len(blocks(write_view([tmp_path / "run"]).read_text())["index"]["items"]) == 1
        kept = store.partial("search", 0)
        assert kept is not None
        del kept.state["ends"]
        store.set_partial("search", kept)
        assert blocks(write_view([tmp_path / "run"]).read_text())["index"]["items"] == []


def search_keeping(kept: partial.PartialTrees, rollouts: int) -> Any:
    from agentq import envs
    from agentq.policies.function_policy import FunctionPolicy
    from agentq.searching.run import wait_for
    from agentq.searching.selection import SearchSettings
    from agentq.searching.tree import TreeSearch
    from agentq.types import Split

    policy = FunctionPolicy(lambda history, k: ["STOP", "CLICK [1]", "SCROLL DOWN"][:k])
    settings = SearchSettings(num_iterations=rollouts, num_proposals=3)
    search = TreeSearch(envs.make(Count), envs.task(Count, Split.TRAIN, 0), policy, settings, partials=kept)
    return wait_for(search.run())
