"""A site for browser tests: pages that script, hang, crash, frame and lure; and a second server that counts visits."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agentq.envs.browser import processes
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.hosts import SiteHost
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.site import Request, Response, SiteSession, redirect
from agentq.envs.web_env import SiteKit
from agentq.types import Command, EnvAction, Split, Task

TASK = Task("lab", 0, Split.TRAIN, "look around")


class Lab:
    """Answers with `pages[path]`, a text or a Response.

    In a page `{n}` is how often this visitor posted, `{q}` what a form sent as q.

    `hits` counts requests by path; `sent` has every q.
    """

    def __init__(self, pages: dict[str, Any]) -> None:
        self.pages, self.hits = pages, dict.fromkeys(pages, 0)
        self.sent: list[str] = []

    def handle(self, request: Request, session: SiteSession) -> Response:
        path = request.path
        self.sent += [request.params["q"]] if "q" in request.params else []
        if request.method == "POST":
            session["posts"] = session.get("posts", 0) + 1
            if path == "/add":
                return redirect("/")
        if path not in self.pages:
            return Response("<h1>none</h1>", 404)
        self.hits[path] += 1
        page = self.pages[path]
        if isinstance(page, Response):
            return page
        if isinstance(page, list):  # one after the other, then the last
            page = page[min(self.hits[path], len(page)) - 1]
        if "slowly" in page:
            time.sleep(0.3)  # much longer than the quiet window
        if page.startswith("-> "):
            return redirect(page[3:])
        page = page.replace("{n}", str(session.get("posts", 0))).replace(
            "{q}", html.escape(request.params.get("q", ""))
        )
        return Response("<!doctype html><meta charset=utf-8>" + page)


def lab_host(
    pages: dict[str, Any], *, strict: bool = False, full: bool = False, allow: list[str] | None = None
) -> SiteHost:
    """A host of such a site."""
    kit = SiteKit(
        "lab",
        Lab(pages),
        50,
        lambda: {"posts": 0},
        lambda seed: "look around",
        lambda session, task: (float(session["posts"]), session["posts"] > 0),
        lambda task, question: "go on",
        None,  # type: ignore[arg-type]
        lambda rng: "x",
    )
    host = SiteHost(kit)
    host.strict, host.full, host.quiet_ms = strict, full, 50
    host.allow = [*host.allow, *(allow or [])]
    return host


def lab_env(browser: BrowserPool, pages: dict[str, Any], *, max_repeats: int = 5, **kwargs: Any) -> BrowserEnv:
    """An environment on the first page of such a site."""
    env = BrowserEnv(lab_host(pages, **kwargs), browser, max_repeats=max_repeats)
    env.reset(TASK)
    return env


def named(env: BrowserEnv, name: str) -> int:
    """The id of the control of this name, which must be on the page."""
    return next(i for i, control in enumerate(env.view.page.controls, 1) if control.name == name)


def click(env: BrowserEnv, name: str) -> Any:
    """Click the control of this name."""
    return env.step(EnvAction(Command.CLICK, named(env, name)))


def living(mark: str) -> list[str]:
    """The command lines of the processes that carry a worker's mark."""
    lines = []
    for pid in processes.tree(-1, mark):
        with suppress(OSError):
            if processes._alive(pid):
                lines.append((Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " "))
    return lines


@contextmanager
def elsewhere(pages: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Another origin: its address, and the list of what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = ("<!doctype html>" + pages.get(self.path, "<h1>elsewhere</h1>")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
