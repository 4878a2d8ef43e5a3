"""The viewer in a real Chromium: runs that go on, screenshots, large trees."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import face  # of benchmarks/
import pytest

from agentq import envs
from agentq.envs.browser.pool import BrowserPool
from agentq.errors import ConfigError
from agentq.searching import partial
from agentq.store import RunStore
from agentq.types import Command, EnvAction
from agentq.viewer import ViewServer, serve, write_view
from tests.test_view import search_keeping
from tests.view_factory import CONFIG, a_chromium, large, make_run, opened, searched, wide

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with a_chromium() as browser:
        yield browser


def test_live_shows_what_the_run_adds(chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "EVERY_S", 0.0)
    with RunStore.open(tmp_path / "run", CONFIG) as store, ViewServer([tmp_path / "run"]) as server:
        tab = chromium.new_page()
        tab.goto(server.url)
        tab.wait_for_selector("html[data-ready]")
        assert tab.locator(".sum").inner_text() == "Nothing matches."
        store.add_tree("search", searched(0))
        tab.locator("a.mark.solved").click()
        tab.locator("h1", has_text="Count to 2").wait_for()
        assert tab.locator("#state").inner_text() == "live"
        tab.close()


def test_a_growing_tree_keeps_what_is_chosen_opened_and_typed(
    chromium: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "EVERY_S", 0.0)
    monkeypatch.setattr(partial, "EVERY_S", 0.0)
    monkeypatch.setattr(partial, "SHARE", 0)
    states: list[Any] = []
    nowhere = SimpleNamespace(
        partial=lambda stage, seed: None,
        set_partial=lambda stage, tree: states.append(tree),
        drop_partial=lambda stage, seed: None,
    )
    done = search_keeping(partial.PartialTrees(nowhere, "search"), 8)
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.add_tree("search", searched(3))
        store.add_tree("search", searched(4))
        store.set_partial("search", states[4])
        with ViewServer([tmp_path / "run"]) as server:
            tab = opened(chromium.new_page(), server.url)
            assert tab.locator(".sum").inner_text() == "3 tasks: 2 solved, 1 in progress"
            tab.locator("a.mark.growing").click()
            chosen, find = tab.locator("[role=treeitem][aria-selected=true]"), tab.get_by_label("find in the tree")
            chosen.wait_for()
            for key in ("End", "ArrowRight", "ArrowRight"):
                tab.keyboard.press(key)
            at, rows = chosen.inner_text().split("\n")[1], tab.locator("[role=treeitem]").count()
            assert chosen.get_attribute("aria-level") == "3"
            find.fill("CLICK")
            store.set_partial("search", states[-1])
            tab.locator(".playback output", has_text="of 8").wait_for()
            assert chosen.get_attribute("aria-level") == "3" and chosen.inner_text().split("\n")[1] == at
            assert tab.locator("[role=treeitem]").count() >= rows
            assert find.input_value() == "CLICK" and find.evaluate("e => e === document.activeElement")
            store.add_tree("search", done)
            store.drop_partial("search", 0)
            tab.locator(".badge.solved").first.wait_for()
            find.press("Escape")
            for key, seed in (("p", 4), ("p", 3), ("n", 4)):  # the list was read again since the tree was opened
                tab.keyboard.press(key)
                assert tab.evaluate("decodeURIComponent(location.hash)") == f"#at=0:search:{seed}"
            tab.close()


def test_what_was_damaged_after_it_was_listed_is_said_in_its_place(chromium: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with ViewServer([run]) as server:
        tab = opened(chromium.new_page(), server.url)
        with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as database:
            database.execute("UPDATE items SET record = x'00' WHERE key = '2/0'")
        tab.locator("a.mark").first.click()
        tab.get_by_text("run.sqlite is damaged (trajectory 2/0 of agent_q/eval: ").wait_for()
        tab.get_by_text("agentq view").click()
        tab.locator("a.mark").nth(1).click()
        tab.locator(".badge").first.wait_for()
        tab.close()


def test_five_thousand_nodes_are_drawn_smoothly(chromium: Any, tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.add_tree("search", large(5000))
    tab = chromium.new_page(viewport={"width": 1400, "height": 900})
    opened(tab, write_view([tmp_path / "run"]).as_uri(), "at=0:search:9")
    tab.keyboard.press("0")
    assert tab.evaluate(face.MOVE, 1.0)["fps"] > 20  # 60 on an idle machine: benchmarks/face.py
    tab.close()


RING = """() => {
  const canvas = document.querySelector("canvas"), style = getComputedStyle(document.documentElement);
  const hex = style.getPropertyValue("--focus");
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.trim().slice(i, i + 2), 16)), { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  for (let y = height - 1; y >= 0; y--)
    for (let i = 4 * y * width; i < 4 * (y + 1) * width; i += 4)
      if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 24) return height - y;
  return null;
}"""  # pixels from the ring around the chosen node down to the bottom; null if it is not drawn


def test_the_chosen_node_stays_in_sight_when_the_window_shrinks(chromium: Any, tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        store.add_tree("search", wide())
    tab = chromium.new_page(viewport={"width": 1400, "height": 900})
    page = write_view([tmp_path / "run"]).as_uri()
    opened(tab, page, "at=0:search:7&node=5")  # the least visited one that is shown, at the lower end
    tab.wait_for_selector(".details h2")
    tab.wait_for_timeout(300)
    assert tab.evaluate(RING) > 200
    tab.set_viewport_size({"width": 1400, "height": 420})
    tab.wait_for_timeout(300)
    assert 30 < tab.evaluate(RING) < 200  # above the legend
    tab.close()


def test_screenshots_are_kept_with_their_elements_and_the_acted_one_is_marked(
    chromium: Any, browser: BrowserPool, tmp_path: Path
) -> None:
    env = envs.make("booking", browser, screenshots=True)
    task = envs.task("booking", "test", 0)
    first = env.reset(task)
    assert first.picture is not None and first.picture.webp[8:12] == b"WEBP" and first.picture.boxes
    twin = env.fork()
    after = env.step(EnvAction(Command.TYPE, 1, "Cafe")).observation
    assert after.picture is not None and after.picture.webp != first.picture.webp
    assert env.restore(twin.snapshot()).picture == first.picture
    assert twin.step(EnvAction(Command.CLICK, 2)).observation.picture is not None
    env.close()
    twin.close()
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        tree = wide(0, 3)
        damaged = replace(after, text="", picture=replace(after.picture, webp=b"no picture"))
        tree.observation[:] = [first, after, after, damaged]
        store.add_tree("search", tree)
        stored = store.tree("search", 0)
        assert stored is not None and [page.picture for page in stored.observation[:3]] == [
            first.picture,
            after.picture,
            after.picture,
        ]
    tab = opened(chromium.new_page(), write_view([tmp_path / "run"]).as_uri(), "at=0:search:0&node=1")
    mark = tab.locator(".shot .box").bounding_box()
    image = tab.locator(".shot img").bounding_box()
    scale = image["width"] / first.picture.size[0]
    wanted = [v * scale for v in first.picture.boxes[1]]
    assert [mark["x"] - image["x"], mark["y"] - image["y"], mark["width"], mark["height"]] == pytest.approx(
        wanted, abs=2
    )
    tab.locator("[role=treeitem]").nth(3).click()
    tab.get_by_role("button", name="page after").click()
    tab.get_by_text("This screenshot is damaged.").wait_for()
    tab.close()
    with ViewServer([tmp_path / "run"]) as server:
        tab = chromium.new_page()
        tab.goto(f"{server.url}#at=0:search:0&node=1")
        tab.wait_for_selector(".shot .box")
        tab.close()


def test_only_a_browser_keeps_screenshots() -> None:
    with pytest.raises(ConfigError, match=r"run\.screenshots must be false for booking, whose pages no browser shows"):
        envs.make("booking", screenshots=True)
