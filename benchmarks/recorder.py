"""A web site that records every request other than GET, and web socket messages."""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SAFE = ("GET", "HEAD", "OPTIONS")
_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


class Recorder:
    """Serves `pages` by path and answers every other path with a short page; `certificate` makes it https.

    `sent`: `METHOD /path body` of each unsafe request, in order of arrival; `gets`: the paths that were read; `closes`:
    what closed each web socket.
    """

    def __init__(self, pages: Mapping[str, str], certificate: Path | None = None) -> None:
        self.pages = dict(pages)
        self.sent: list[str] = []
        self.gets: list[str] = []
        self.closes: list[bytes] = []
        owner = self

        class Handler(_Handler):
            recorder = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    recorder: Recorder
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self._socket()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("utf-8", "replace")
        if self.command in _SAFE and "X-HTTP-Method-Override" not in self.headers:
            self.recorder.gets.append(self.path)
        else:
            self.recorder.sent.append(f"{self.command} {path} {body}".rstrip())
        page = self.recorder.pages.get(path, "<h1>other</h1>")
        head, _, rest = page.partition("\n\n") if page.startswith("HEAD ") else ("", "", page)
        kind = "text/javascript" if path.endswith(".js") else "text/html; charset=utf-8"
        data = (rest if path.endswith(".js") else f"<!doctype html>{rest}").encode()
        self.send_response(200)
        for line in head.splitlines():
            self.send_header(*line.removeprefix("HEAD ").replace("ORIGIN", self.recorder.url).split(": ", 1))
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _socket(self) -> None:
        digest = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + _MAGIC).encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.end_headers()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2:
            mask = self.rfile.read(4)
            data = self.rfile.read(head[1] & 127)  # tests send short messages only
            text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
            if head[0] & 15 >= 8:
                self.recorder.closes.append(text)
                break
            self.recorder.sent.append(f"WEBSOCKET {self.path} {text.decode('utf-8', 'replace')}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def recording(pages: Mapping[str, str], certificate: Path | None = None) -> Iterator[Recorder]:
    """Such a site, until the block ends."""
    site = Recorder(pages, certificate)
    try:
        yield site
    finally:
        site.close()
