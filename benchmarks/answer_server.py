"""An OpenAI-compatible server that answers a query of the form `answer N` with the Nth text of a script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_QUERY = re.compile(r"QUERY: answer (\d+)$", re.MULTILINE)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    script: Sequence[tuple[str, bool]] = ()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._send({"data": [{"id": "scripted"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._send({"error": {"message": "no such route"}}, 404)
            return
        found = _QUERY.search(body["messages"][-1]["content"])
        text, cut = self.server.script[int(found[1])] if found else ("hello", False)
        choice = {"finish_reason": "length" if cut else "stop", "message": {"role": "assistant", "content": text}}
        self._send({"choices": [choice | {"index": index} for index in range(body.get("n", 1))]})

    def _send(self, answer: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextmanager
def answering(script: Sequence[tuple[str, bool]]) -> Iterator[str]:
    """The URL of a server of these texts. A text with True ends at its token limit."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.script = script
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
