"""Does an agent see what a person sees, and can it do what a person does?

    python benchmarks/web.py [--json] [--misses] [--only coverage experts] [--episodes 1]

coverage: every interactive role and name of Playwright's `aria_snapshot` against our reading, of the same document.
Pages: those of web_pages/ with widgets from npm (`make widgets` fetches them; without it they are left out), and all
pages of MiniWoB++. Reports for each page the elements that the snapshot has, how many of them our reading has too (same
role, same name), and the characters of both. The exception is a table or list of more than 200 rows, which is read near
the window alone and elsewhere counted: the corpus has one of 150.

experts: every task of the suite of real applications (`make apps`) by its scripted expert, which finds elements in the
observation alone. The application's own database says whether the task is done.

The exception is a table or list of more than 200 rows, which is read near the window alone and elsewhere counted: the
corpus has one of 150.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib.util
import json
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from machine import commit, machine

from agentq import envs
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.tab import page_source, source
from agentq.envs.browser.whole import control_text
from agentq.errors import EnvError
from agentq.types import Split, Task

HERE = Path(__file__).resolve().parent
WIDGETS = HERE.parent / "build" / "apps" / "widgets"
INTERACTIVE = (
    *(
        "button",
        "link",
        "checkbox",
        "radio",
        "switch",
        "tab",
        "menuitem",
        "menuitemcheckbox",
        "menuitemradio",
        "option",
    ),
    *("treeitem", "textbox", "searchbox", "combobox", "listbox", "slider", "spinbutton"),
)
LINE = re.compile(r"""^\s*- '?(\w+)(?: "((?:[^"\\]|\\.)*)")?""", re.MULTILINE)
ROLES = {"file": "button"}  # as the snapshot calls it
COVERED, SIZE = 0.99, 0.5
PARTS = ("coverage", "experts")


class Pages(http.server.SimpleHTTPRequestHandler):
    """web_pages/ at /, the packages at /node_modules, MiniWoB++ at /miniwob."""

    def translate_path(self, path: str) -> str:
        path = path.partition("?")[0]
        if path.startswith("/node_modules/"):
            return str(WIDGETS / path[1:])
        if path.startswith(("/miniwob/", "/core/", "/common/")):
            return str(miniwob().parent / path[1:])
        return str(HERE / "web_pages" / path[1:].partition("?")[0])

    def log_message(self, format: str, *args: Any) -> None:
        pass


def miniwob() -> Path:
    """The folder of the MiniWoB++ pages."""
    spec = importlib.util.find_spec("miniwob")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "html" / "miniwob"


def addresses() -> list[str]:
    """The pages of the corpus, as paths."""
    own = [f"/{page.name}?rows=150" for page in sorted((HERE / "web_pages").glob("*.html"))]
    if not (WIDGETS / "node_modules").exists():
        own = [
            path
            for path in own
            if "/node_modules/" not in (HERE / "web_pages" / path[1:].partition("?")[0]).read_text()
        ]
    return own + [f"/miniwob/{page.name}" for page in sorted(miniwob().glob("*.html"))]


def plain(name: str) -> str:
    """A name for comparison: its words, in lower case."""
    return " ".join(name.replace('\\"', '"').split()).casefold()


def told(snapshot: str) -> Counter[tuple[str, str]]:
    """The interactive roles and names of a snapshot."""
    return Counter((role, plain(name or "")) for role, name in LINE.findall(snapshot) if role in INTERACTIVE)


def ours(seen: dict[str, Any]) -> tuple[Counter[tuple[str, str]], str]:
    """The roles and names of our reading, and its text."""
    found: Counter[tuple[str, str]] = Counter()
    lines = []
    for line in seen["lines"]:
        said = []
        for part in line["parts"]:
            control = part.get("control") if isinstance(part, dict) else None
            if control:
                found[ROLES.get(control["role"], control["role"]), plain(control["name"])] += 1
                found.update(("option", plain(label)) for label, _ in control["options"])
                said.append(control_text(control["key"], control, begins=not said))
            elif isinstance(part, str):
                said.append(part)
            else:
                said.append(part["name"] if "most" in part else f"frame {part['name']}")
        if said and said[0].strip() == "listbox":
            found["listbox", plain("".join(said[1:]))] += 1
        lines.append(" " * line["depth"] + "".join(said))
    return found, "\n".join(lines)


def missing(theirs: Counter[tuple[str, str]], found: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """What the snapshot has and our reading has not.

    A name that ours cuts is compared as far as it goes; an element without a name in the snapshot may have one in ours.
    """
    left = found.copy()
    lost = []
    for element in sorted(theirs.elements(), key=lambda each: not each[1]):
        same = next((each for each in left if left[each] and _same(element, each)), None)
        if same is None:
            lost.append(element)
        else:
            left[same] -= 1
    return lost


def _same(theirs: tuple[str, str], own: tuple[str, str]) -> bool:
    named = own[1] == theirs[1] or (own[1].endswith("…") and theirs[1].startswith(own[1][:-1]))
    return (named or not theirs[1]) and own[0] == theirs[0]


def compare(page: Any, url: str) -> dict[str, Any]:
    """Both readings of one page."""
    page.goto(url)
    page.wait_for_timeout(1500 if "/miniwob/" not in url else 100)
    if "/miniwob/" in url:
        page.evaluate("() => { Math.seedrandom?.(1); core.EPISODE_MAX_TIME = 1e6; core.startEpisodeReal?.(); }")
        page.wait_for_timeout(100)
    snapshot = page.locator("body").aria_snapshot()
    seen = page.evaluate(f"() => {{ {page_source(True)}\nreturn agentq.observe() }}")
    theirs, (found, text) = told(snapshot), ours(seen)
    lost = missing(theirs, found)
    count = sum(theirs.values())
    return {
        "own": "/miniwob/" not in url,
        "page": url.rpartition("/")[2].partition("?")[0],
        "elements": count,
        "missing": lost,
        "chars": len(text),
        "aria_chars": len(snapshot),
    }


def coverage() -> list[dict[str, Any]]:
    """Both readings of every page of the corpus."""
    from playwright.sync_api import sync_playwright

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(HERE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.add_init_script(source("listeners.js"))
            return [compare(page, f"http://127.0.0.1:{server.server_port}{path}") for path in addresses()]
    finally:
        server.shutdown()


def experts(episodes: int, words: list[str]) -> list[dict[str, Any]]:
    """Every task of the suite with one of `words` in its name: episodes done, and steps and seconds of each."""
    done = []
    with BrowserPool() as pool:
        for name in (name for name in envs.names("suite") if any(word in name for word in words)):
            env, expert = envs.make(name, pool), envs.expert(name)
            try:
                for task in envs.tasks(name, Split.TEST, episodes):
                    done.append(episode(env, expert, task))
            finally:
                env.close()
    return done


def episode(env: Any, expert: Any, task: Task) -> dict[str, Any]:
    """One task by its expert."""
    begun = time.perf_counter()
    env.reset(task)
    steps, over, success, error = 0, False, False, ""
    while not over:
        try:
            result = env.step(expert(task, env).env_action)
        except EnvError as fault:  # the expert does not see what it needs
            error = str(fault)
            break
        steps, over, success = steps + 1, result.terminated or result.truncated, result.success
    seconds = round(time.perf_counter() - begun, 1)
    return {"task": task.env, "seed": task.seed, "done": success, "steps": steps, "s": seconds, "error": error}


def _chromium() -> str | None:
    """The Chromium on PATH, as agentq finds it."""
    import shutil

    from agentq.envs.browser import processes

    return next(filter(None, map(shutil.which, processes.CHROMIUMS)), None)


def main() -> int:
    """Measure, print, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--misses", action="store_true", help="list every element that our reading lacks")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--tasks", nargs="+", default=[""], help="those of the suite with one of these words in their name"
    )
    parser.add_argument("--episodes", type=int, default=1, help="episodes per task of the suite")
    args = parser.parse_args()
    result: dict[str, Any] = {"met": True}
    if "coverage" in args.only:
        result |= _covered(coverage())
    if "experts" in args.only:
        told = experts(args.episodes, args.tasks)
        result |= {"experts": {"episodes": len(told), "done": sum(each["done"] for each in told)}, "tasks": told}
        result["met"] &= all(each["done"] for each in told)
    if args.json:
        print(json.dumps(result | {"machine": machine(), "commit": commit()}))
    else:
        _print(result, misses=args.misses)
    return 0 if result["met"] else 1


def _covered(pages: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all pages, and those of the pages that have controls by role alone."""
    total, lost = sum(page["elements"] for page in pages), sum(len(page["missing"]) for page in pages)
    own = [page for page in pages if page["own"]]
    size = sum(page["chars"] for page in own) / sum(page["aria_chars"] for page in own)
    figures = {"pages": len(pages), "elements": total, "covered": round(1 - lost / total, 4), "size": round(size, 3)}
    return {"coverage": figures, "pages": pages, "met": figures["covered"] >= COVERED and size <= SIZE}


def _print(result: dict[str, Any], *, misses: bool) -> None:
    for page in result.get("pages", ()):
        if page["missing"] or page["own"]:
            print(
                f"{page['page']}: {page['elements']} elements, {len(page['missing'])} missing, "
                f"{page['chars']} characters, {page['aria_chars']} in the snapshot"
            )
            for role, name in page["missing"][: None if misses else 5]:
                print(f"    {role} {name}")
    if told := result.get("coverage"):
        shown = f"{told['pages']} pages, {told['elements']} elements, {told['covered']:.2%} covered"
        print(f"{shown}; pages with widgets: {told['size']:.2f} of the snapshot's characters")
    for each in result.get("tasks", ()):
        ended = "done" if each["done"] else f"NOT DONE {each['error']}"
        print(f"{each['task']} {each['seed']}: {ended}, {each['steps']} steps, {each['s']} s")
    if "experts" in result:
        print(f"{result['experts']['done']} of {result['experts']['episodes']} episodes done")


if __name__ == "__main__":
    sys.exit(main())
