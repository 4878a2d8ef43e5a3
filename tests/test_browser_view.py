"""The viewer in a real Chromium: what it shows, its keys and addresses, and what a hostile page's text can do there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq._core import ucb1_score
from agentq.store import RunStore
from agentq.store.records import TreeRecord
from agentq.viewer import write_view
from tests.view_factory import CONFIG, HOSTILE, PAIRS, a_chromium, damaged, large, make_run, opened, ranked, searched

pytestmark = pytest.mark.browser
COLLECT, RANKED = "at=0:agent_q/round1/collect:0", "at=1:agent_q/round1/collect:0"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with a_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("view")
    other = folder / "other"
    with RunStore.open(other, CONFIG) as store:
        store.add_tree("agent_q/round1/collect", ranked(0))
        store.set_note("agent_q/round1/collect", {"pairs": PAIRS})
        store.add_tree("large", large(600))
    return write_view([make_run(folder / "run"), other], folder / "page.html").as_uri()


@pytest.fixture
def tab(chromium: Any, page_file: str) -> Iterator[Any]:
    """A tab; no test may make a request, break the policy or raise an error in it."""
    tab, faults = chromium.new_page(viewport={"width": 1400, "height": 900}), list[str]()
    tab.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("request", lambda request: faults.append(request.url) if request.url != page_file else None)
    yield tab
    tab.close()
    assert faults == []


def address(tab: Any) -> str:
    return str(tab.evaluate("decodeURIComponent(location.hash.slice(1))"))


def table(tab: Any) -> list[list[str]]:
    """The actions proposed beside the chosen one, with their figures."""
    return [row.locator("td").all_inner_texts() for row in tab.locator(".details tbody").first.locator("tr").all()]


def test_damaged_parts_are_said_above_the_tasks(chromium: Any, tmp_path: Path) -> None:
    tab = opened(chromium.new_page(), write_view([damaged(tmp_path / "run")]).as_uri())
    assert tab.get_by_text("3 damaged parts are left out; the first: the note of agent_q/round1/collect").is_visible()
    assert tab.locator("a.mark").count() == 5
    tab.close()


def test_tasks_are_rows_stages_are_columns_and_filters_narrow_them(tab: Any, page_file: str) -> None:
    opened(tab, page_file)
    assert (
        tab.locator(".sum").inner_text()
        == "7 tasks in 9 trees and episodes: 7 solved, 1 not solved, 1 broken by the world"
    )
    heads = [" ".join(text.split()) for text in tab.locator("thead th").all_inner_texts()]
    assert heads[1].endswith("2 of 2") and "agent_q/eval" in heads[3]
    tab.get_by_label("outcomes").select_option("broken")
    assert tab.locator("a.mark").count() == 1 and address(tab) == "outcome=broken"
    assert tab.locator("a.mark").get_attribute("title") == "broken by the world, network, 2 steps, 1 network"
    tab.get_by_role("button", name="clear").click()
    tab.get_by_label("find a task").fill("count to 2")
    assert tab.locator("tbody th[scope=row]").count() == 1 and tab.locator("a.mark").count() == 2
    opened(tab, f"{page_file}?again".removesuffix("?again"), "stage=odd&error=timeout")
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    assert tab.get_by_label("stages").input_value() == "odd"


def test_the_keyboard_alone_goes_from_the_list_to_a_node_and_back(tab: Any, page_file: str) -> None:
    opened(tab, page_file, "stage=agent_q/round1/collect")
    for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
        tab.keyboard.press(key)
    focused = "document.activeElement.getAttribute('role') + document.activeElement.className"
    assert "mark" in tab.evaluate(focused)
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[role=treeitem]:focus")
    tab.keyboard.press("ArrowRight")  # opens the first page already open: goes to its first child
    chosen = tab.locator("[role=treeitem][aria-selected=true]")
    assert chosen.get_attribute("aria-level") == "2"
    tab.keyboard.press("b")
    assert "✓ solved" in chosen.inner_text() and "node=" in address(tab)
    tab.keyboard.press("v")
    assert tab.locator(".choices [aria-pressed=true]").inner_text() == "page after"
    tab.keyboard.press("n")
    tab.locator("h1", has_text="Count to 3").wait_for()
    tab.keyboard.press("?")
    assert tab.locator("dialog").is_visible()
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#tasks:not([hidden])")
    assert address(tab) == "stage=agent_q/round1/collect" and "mark" in tab.evaluate("document.activeElement.className")


def test_every_element_of_the_tree_view_has_a_name_and_a_place(tab: Any, page_file: str) -> None:
    opened(tab, page_file, COLLECT)
    items = tab.locator("[role=tree] > [role=treeitem]")
    for item in items.all():
        for name in ("aria-level", "aria-posinset", "aria-setsize", "aria-label"):
            assert item.get_attribute(name)
    assert tab.locator("[role=treeitem][tabindex='0']").count() == 1
    nameless = """[...document.querySelectorAll("button, select, input")].filter(each =>
        !each.innerText.trim() && !each.getAttribute("aria-label") && !each.labels?.length).length"""
    assert tab.evaluate(nameless) == 0 and tab.locator("canvas[aria-hidden=true]").count() == 1


@pytest.mark.parametrize(("at", "tree", "alpha"), [(COLLECT, searched(0), 1.0), (RANKED, ranked(0), 0.75)])
def test_siblings_have_the_figures_of_the_search(
    tab: Any, page_file: str, at: str, tree: TreeRecord, alpha: float
) -> None:
    opened(tab, page_file, f"{at}&node=2")
    siblings = tree.children(int(tree.parent[2])).tolist()
    total = int(tree.visit_count[siblings].sum())
    for cells, node in zip(table(tab), siblings, strict=True):
        n, w = int(tree.visit_count[node]), float(tree.value_sum[node])
        critic, q = float(tree.critic_value[node]), w / n
        u = ucb1_score(0.0, total, n, 1.0)
        wanted = [n, w, q, critic, alpha * q + (1 - alpha) * critic, u]
        assert list(map(float, cells[1:])) == pytest.approx(wanted, abs=0.0051)


def test_figures_are_rounded_as_the_command_line_rounds_them(tab: Any, page_file: str) -> None:
    opened(tab, page_file)
    values = [sign * (k / 8 + more) for sign in (1, -1) for k in range(40) for more in (0, 0.0001, 1 / 3, 0.015, 0.025)]
    wanted = [f"{value:.2f}".replace("-0.00", "0.00") for value in values]
    assert tab.evaluate("values => values.map(value => figure(value))", values) == wanted


def test_playback_counts_the_rollouts_one_by_one(tab: Any, page_file: str) -> None:
    tree = searched(0)
    opened(tab, page_file, f"{COLLECT}&t=3")
    seen = []
    for t in (3, 4, 5):
        assert tab.locator(".playback output").inner_text() == f"rollout {t} of 8"
        root = tab.locator("[role=treeitem]").first.get_attribute("aria-label")
        total = sum(float(sum(tree.reward[i] for i in tree.path(end))) for end in tree.info["ends"][:t])
        assert root == f"first page, {t} visits, mean return {total / t:.2f}"
        tab.keyboard.press("]")
        seen.append(address(tab))
    assert "t=4" in seen[0] and f"node={tree.info['ends'][3]}" in seen[0]
    tab.keyboard.press(" ")
    tab.locator(".playback output", has_text="rollout 8 of 8").wait_for(timeout=20000)


def test_the_page_before_marks_the_element_and_the_difference_is_by_lines(tab: Any, page_file: str) -> None:
    tree = searched(0)
    click = next(i for i in range(1, len(tree)) if str(tree.proposal[i].action.env_action) == "CLICK [1]")
    opened(tab, page_file, f"{COLLECT}&node={click}")
    assert tab.locator(".lines .here").inner_text() == "button Up [1]"
    tab.get_by_role("button", name="difference").click()
    assert tab.locator(".lines .gone").inner_text() == "- count 0"
    assert tab.locator(".lines .new").inner_text() == "+ count 1" and "page=difference" in address(tab)


def test_pairs_say_what_training_took_and_why_not(tab: Any, page_file: str) -> None:
    opened(tab, page_file, "at=0:agent_q/round1/collect:1")
    tab.keyboard.press("ArrowRight")
    facts = tab.locator(".facts").inner_text()
    assert "pairs kept" in facts and "dropped" in facts
    texts = tab.locator(".details tr td:last-child").all_inner_texts()
    assert {text.split(":")[0] for text in texts if text.startswith(("kept", "dropped"))}


def test_wide_nodes_show_their_most_visited_children_until_asked(tab: Any, page_file: str) -> None:
    opened(tab, page_file, "at=0:odd:7")
    items = tab.locator("[role=treeitem]")
    assert items.count() == 9 and tab.locator(".rest").inner_text() == "+4 more"
    assert "CLICK [12]" in items.last.inner_text() and "CLICK [1]" not in items.all_inner_texts()[1].split("\n")
    tab.locator(".rest").click()
    assert items.count() == 13
    tab.get_by_title("children shown at each node, the most visited ones").select_option("best 3")
    assert items.count() == 4


def test_find_marks_nodes_and_enter_goes_to_them(tab: Any, page_file: str) -> None:
    opened(tab, page_file, COLLECT)
    tab.keyboard.press("/")
    tab.keyboard.type("scroll")
    assert tab.locator(".find output").inner_text().endswith("matches")
    tab.keyboard.press("Enter")
    assert tab.locator(".action h2").inner_text() == "SCROLL DOWN"


def test_two_runs_trees_of_one_task_stand_side_by_side(tab: Any, page_file: str) -> None:
    opened(tab, page_file, COLLECT)
    tab.get_by_label("compare with").select_option(index=1)
    tab.locator(".pane + .pane strong").wait_for()
    assert tab.locator(".pane strong").all_inner_texts() == ["run", "other"]
    assert "with=1:agent_q/round1/collect:0" in address(tab)
    tab.locator(".pane").nth(1).locator(".details table button").first.click()
    assert "node2=" in address(tab)
    tab.get_by_role("button", name="close").click()
    tab.locator(".pane").nth(1).wait_for(state="detached")


def test_an_episode_shows_its_steps_their_errors_and_tokens(tab: Any, page_file: str) -> None:
    opened(tab, page_file, "at=0:agent_q/eval:3/1&node=2")
    assert "not solved" in tab.locator(".facts").inner_text() and "loop" in tab.locator(".facts").inner_text()
    assert "no answer after 5 s" in tab.locator(".action").inner_text()
    assert "unreadable: a command must follow COMMANDS" in tab.locator(".action h2").inner_text()
    tab.get_by_text("2 tokens").click()
    tab.wait_for_selector(".token")
    assert tab.locator(".token").count() == 2 and "nats" in tab.locator(".token").first.get_attribute("title")


@pytest.mark.parametrize("width", [900, 1400])
def test_an_episodes_steps_and_details_fill_the_window(tab: Any, page_file: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    opened(tab, page_file, "at=0:agent_q/eval:3/0")
    steps, details = (tab.locator(part).bounding_box() for part in (".outline", ".details"))
    assert steps["y"] == details["y"] and steps["x"] + steps["width"] == pytest.approx(details["x"], abs=2)
    assert details["x"] + details["width"] == pytest.approx(width, abs=2)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (700, 450), (844, 390)])
def test_a_small_window_shows_all_parts_and_stays_where_it_is(
    tab: Any, page_file: str, width: int, height: int
) -> None:
    tab.set_viewport_size({"width": width, "height": height})
    opened(tab, page_file, COLLECT)
    for part in (".outline", ".canvas", ".details"):
        room = tab.locator(part).bounding_box()
        assert room["width"] == width and room["height"] > 90
    tab.locator("[role=treeitem]").nth(2).click()  # its page has the marked element
    assert tab.locator(".lines .here").count() == 1 and tab.evaluate("scrollY") == 0


def test_a_choice_of_the_page_keeps_the_focus_and_the_place(tab: Any, page_file: str) -> None:
    tab.set_viewport_size({"width": 1400, "height": 420})
    opened(tab, page_file, f"{COLLECT}&node=2")
    after = tab.get_by_role("button", name="page after")
    after.focus()
    top = tab.locator(".details").evaluate("e => e.scrollTop = 60")
    tab.keyboard.press("Enter")
    assert after.get_attribute("aria-pressed") == "true" and after.evaluate("e => e === document.activeElement")
    assert tab.locator(".details").evaluate("e => e.scrollTop") == top == 60
    tab.locator(".details tbody button").first.press("Enter")
    focused = tab.evaluate("document.activeElement.innerText")
    assert focused == tab.locator(".details tr.chosen button").inner_text() == "STOP"


def test_what_is_written_beside_a_node_ends_before_it(tab: Any, page_file: str) -> None:
    opened(tab, page_file, COLLECT)
    cut = """text => {
      const width = (letter) => (letter > "\\x7f" ? 12 : 7);
      const context = { measureText: (text) => ({ width: [...text].reduce((sum, letter) => sum + width(letter), 0) }) };
      const shown = Drawing.prototype.cut.call({}, context, text, 100);
      return [shown, context.measureText(shown).width];
    }"""
    for text, letters in (("plain ascii text", 13), ("你好世界" * 5, 7), ("😀" * 20, 7)):
        shown, width = tab.evaluate(cut, text)
        assert width <= 105 and shown == f"{text[:letters]}…"


@pytest.mark.parametrize("width", [500, 900, 1400])
def test_the_list_gives_tasks_the_room_that_stages_leave(tab: Any, page_file: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    opened(tab, page_file)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    stages = tab.locator("thead th").count() - 1
    room = tab.locator("tbody th[scope=row]").first.evaluate("e => parseFloat(getComputedStyle(e).maxWidth)")
    assert room >= 0.93 * width - 100 * stages - 1 and room >= 0.44 * width


def test_a_hostile_pages_text_stays_text(tab: Any, page_file: str) -> None:
    opened(tab, page_file, "q=script")
    assert HOSTILE in tab.locator("tbody th[scope=row]").inner_text()
    opened(tab, page_file, "at=0:odd:8&node=1")
    tab.reload()
    tab.wait_for_selector("html[data-ready]")
    shown = tab.locator("main").inner_text()
    assert shown.count("<img src=x") >= 6
    tab.get_by_text("3 tokens").click()
    tab.wait_for_selector(".token")
    assert tab.evaluate("window.hacked") is None and tab.locator("main img, main script").count() == 0


def test_the_policy_stops_a_script_a_style_and_a_request(chromium: Any, page_file: str) -> None:
    tab = chromium.new_page()
    opened(tab, page_file)
    broken = tab.evaluate(
        """async () => {
          const broken = [];
          document.addEventListener("securitypolicyviolation", (event) => broken.push(event.effectiveDirective));
          const add = (tag, textContent) =>
            document.head.append(Object.assign(document.createElement(tag), {textContent}));
          add("script", "window.hacked = 1");
          add("style", "body { color: red }");
          document.body.append(Object.assign(new Image(), {src: "http://127.0.0.1:9/x.png"}));
          await fetch("http://127.0.0.1:9/").catch(() => {});
          await new Promise((done) => setTimeout(done, 300));
          return broken.sort();
        }"""
    )
    assert broken == ["connect-src", "img-src", "script-src-elem", "style-src-elem"]
    assert tab.evaluate("window.hacked") is None
    tab.close()
