"""Takes the pictures of docs/viewer.md again.

    agentq demo --out runs/demo --eval.num_tasks 12 --run.num_tasks 10 --rft.num_tasks 10
    agentq eval embedded --search --env chromium/booking --eval.num_tasks 2 --eval.num_iterations 4 \\
        --run.screenshots true --out runs/browser
    python benchmarks/face_images.py runs/demo runs/browser

Needs Chromium. Look at each picture before it is committed: the trees are others where models round differently.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from agentq.credit.pairs import weighed_pairs
from agentq.evaluation.outcomes import best_end
from agentq.store import RunStore
from agentq.store.records import TreeRecord
from agentq.viewer import write_view

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLLECTED, BEFORE, AFTER = "agent_q/round1/collect", "base_mcts/look", "agent_q_mcts/eval"
Shot = tuple[str, Path, dict[str, str | int], int, int]  # picture, page, address, width and height in pixels


def with_a_pair(store: RunStore) -> tuple[TreeRecord, int]:
    """The tree with most pairs kept on the path to a success, and the first action on it that is preferred in one."""
    settings = (store.note(COLLECTED) or {})["pairs"]
    found = []
    for tree in store.trees(COLLECTED):
        path = tree.path(best_end(tree))
        kept = [p.chosen for p in weighed_pairs(tree, **settings) if not p.dropped and p.chosen in path]
        if kept and tree.success.any():
            found.append((len(kept), tree, min(kept, key=lambda node: int(tree.depth[node]))))
    _, tree, node = max(found, key=lambda each: each[0])
    return tree, node


def after_a_choice(tree: TreeRecord) -> int:
    """The first node of the best path with a sibling that was tried too; the path's last one without such."""
    path = tree.path(best_end(tree))
    tried = (node for node in path[1:] if (tree.visit_count[tree.children(tree.parent[node])] > 0).sum() > 1)
    return int(next(tried, path[-1]))


def shots(demo: Path, browser: Path, folder: Path) -> list[Shot]:
    """Every picture, its page and what it shows."""
    page, other = write_view([demo], folder / "demo.html"), write_view([browser], folder / "browser.html")
    with RunStore.read(demo) as store, RunStore.read(browser) as seen:
        tree, node = with_a_pair(store)
        at = {"at": f"0:{COLLECTED}:{tree.task.seed}", "node": node}
        solved = {tree.task.seed: tree for tree in store.trees(AFTER) if tree.success.any()}
        pairs = [(tree, solved[tree.task.seed]) for tree in store.trees(BEFORE) if tree.task.seed in solved]
        one, two = max(pairs, key=lambda each: (each[0].success.any(), len(each[1]), len(each[0])))
        beside = {"at": f"0:{BEFORE}:{one.task.seed}", "node": after_a_choice(one), "page": "difference"}
        beside |= {"with": f"0:{AFTER}:{two.task.seed}", "node2": after_a_choice(two)}
        first = next(iter(seen.trees("eval")))
        shown = {"at": f"0:eval:{first.task.seed}", "node": after_a_choice(first)}
    return [
        ("view_tasks", page, {}, 1400, 700),
        ("view_tasks_500", page, {}, 500, 700),
        ("view_tree", page, at, 1400, 860),
        ("view_tree_900", page, at, 900, 860),
        ("view_tree_500", page, at, 500, 1400),
        ("view_compare", page, beside, 1400, 760),
        ("view_screenshot", other, shown, 1400, 860),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="the run of the demo")
    parser.add_argument("browser", type=Path, help="the run with screenshots")
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder of the pictures")
    args = parser.parse_args(argv)
    taken = shots(args.demo, args.browser, args.browser)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell"),
            chromium_sandbox=os.environ.get("AGENTQ_NO_SANDBOX", "0") == "0",
        )
        for name, page, address, width, height in taken:
            tab = browser.new_page(viewport={"width": width, "height": height})
            tab.goto(f"{page.resolve().as_uri()}#{urlencode(address)}")
            tab.wait_for_selector(".details h2" if address else "html[data-ready]")
            tab.wait_for_timeout(500)  # the drawing moves to its node
            tab.screenshot(path=args.out / f"{name}.png")
            print(f"{args.out / name}.png", width, "x", height, flush=True)
            tab.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
