"""A site of somebody else's for live runs: pages by path, what was posted to it, and how it may fail."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

# Two ways to the same form; its button has a name that says nothing.
HOME = """<h1>Tables</h1><a href=/menu>Menu</a>
<form method=post action=/booked>
<label for=n>Name</label><input id=n name=n>
<label for=p>Party</label><select id=p name=p><option>1<option>2<option>3</select>
<button>Go on</button></form>"""
PAGES = {"/": HOME, "/menu": "<h1>Menu</h1><a href=/>Home</a>"}


class Foreign:
    """Serves `pages`; `posts` are the forms that were sent: (path, values). A post to /booked shows what was sent.

    `answers`: where this is False, a post is taken and never answered. A visitor is known by a cookie.
    """

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages = pages
        self.posts: list[tuple[str, dict[str, str]]] = []
        self.gets: list[str] = []
        self.answers = True
        self.visitors = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner.gets.append(self.path)
                self._show(owner.pages.get(self.path, "<h1>none</h1>"))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
                sent = {name: values[0] for name, values in parse_qs(body).items()}
                owner.posts.append((self.path, sent))
                if not owner.answers:
                    self.connection.close()
                    return
                lines = "".join(f"<p>{html.escape(name)} {html.escape(value)}</p>" for name, value in sent.items())
                if self.path != "/booked":
                    self._show("")
                    return
                owner.pages["/done"] = f"<h1>Booked</h1>{lines}<a href=/menu>Menu</a><a href=/>Home</a>"
                self._show("", "/done")

            def _show(self, page: str, location: str = "") -> None:
                body = ("<!doctype html><meta charset=utf-8>" + page).encode()
                self.send_response(303 if location else 200)
                if location:
                    self.send_header("Location", location)
                if "visitor" not in self.headers.get("Cookie", ""):
                    owner.visitors += 1
                    self.send_header("Set-Cookie", f"visitor={owner.visitors}; Path=/")
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        """The site is gone. Connections that are open are answered once more at most."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def foreign(pages: dict[str, str] = PAGES) -> Iterator[Foreign]:
    """Such a site."""
    site = Foreign(dict(pages))
    try:
        yield site
    finally:
        site.close()
