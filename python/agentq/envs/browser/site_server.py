"""A built-in site over HTTP, on a loopback port of this process: the same Site object, pages and checkers.

A visitor is a cookie that cannot be guessed. The owner of this object can read and copy the server's memory of a
visitor, which makes going back exact and cheap. Requests without a known visitor get 403.
"""

from __future__ import annotations

import secrets
import socketserver
import sys
import threading
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from agentq.envs.site import Response, Site, SiteSession, read_request

COOKIE = "visitor"
_MAX_BODY = 1 << 20


class SiteServer:
    """Serves one site until closed; `origin` is its address."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.visitors: dict[str, SiteSession] = {}
        self.lock = threading.RLock()  # a finalizer may dismiss a visitor during an answer

        class Handler(_Handler):
            owner = self

        self._server = LocalServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def admit(self, memory: SiteSession, visitor: str = "") -> str:
        """Set the memory of a new visitor, or of the one given, to a copy of `memory`. Returns the cookie."""
        visitor = visitor or secrets.token_urlsafe(16)
        with self.lock:
            self.visitors[visitor] = dict(memory)
        return visitor

    def memory(self, visitor: str) -> SiteSession:
        """A copy of the server's memory of a visitor."""
        with self.lock:
            return dict(self.visitors[visitor])

    def dismiss(self, visitor: str) -> None:
        """Forget a visitor."""
        with self.lock:
            self.visitors.pop(visitor, None)

    def answer(self, visitor: str, method: str, target: str, form: dict[str, str]) -> Response:
        """The site's response to one request."""
        with self.lock:
            if visitor not in self.visitors:
                return Response("<!doctype html><title>403</title><p>no such visitor</p>", 403)
            return self.site.handle(read_request(method, target, form), self.visitors[visitor])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class LocalServer(ThreadingHTTPServer):
    """A server for browsers of this machine, which reset connections when they close."""

    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without HTTPServer's look-up of the host name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the browser dropped is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    owner: SiteServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        if not 0 <= size <= _MAX_BODY:
            self.send_error(413)
            return
        body = self.rfile.read(size).decode("utf-8", "replace")
        self._answer(dict(parse_qsl(body, keep_blank_values=True)))

    def _answer(self, form: dict[str, str]) -> None:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        response = self.owner.answer(cookie.value if cookie else "", self.command, self.path, form)
        body = response.html.encode()
        self.send_response(response.status)
        if response.location is not None:
            self.send_header("Location", response.location)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
