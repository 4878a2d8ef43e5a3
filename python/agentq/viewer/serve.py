"""`ViewServer`: the same page on the loopback interface while a run goes on.

Only this machine can reach it. Other users of the machine need the secret in the address, and pages of other sites
cannot read it by a name of their own that leads here, because the `Host` of each request is checked.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from agentq.envs.browser.site_server import LocalServer
from agentq.errors import ConfigError, StoreError
from agentq.store.run import PARTIAL
from agentq.store.stages import left_out
from agentq.viewer.data import row, token_data, tree_data, weigh
from agentq.viewer.items import ItemPlace, Items, squeeze
from agentq.viewer.page import about, live_page

EVERY_S = 1.0  # least time between two looks at the run directories
KEPT_BYTES = 32_000_000  # of trees and tokens as they were answered last


class ViewServer:
    """Serves runs until it is closed. `url` is the address of the page."""

    def __init__(self, run_dirs: Sequence[Path], port: int = 0) -> None:
        """Raises StoreError if one is no run directory, ConfigError if the port is invalid or taken."""
        if not 0 <= port <= 65535:
            raise ConfigError(f"--port must be in [0, 65535]; got {port}")
        self._items = Items(run_dirs)
        self._guard = threading.Lock()
        self._places: list[ItemPlace] = []
        self._rows: dict[int, dict[str, Any]] = {}
        self._weighed_by: dict[int, dict[str, Any] | None] = {}  # the settings of the pairs in each row
        self._kept: dict[tuple[Any, ...], bytes] = {}  # answers about items that are done, latest last
        self._lost: list[str] = []  # about damaged items
        self._seen: list[int] = []
        self._index = b""
        self._version = 0
        self._looked = -EVERY_S
        self._page, self._policy = live_page(", ".join(path.name for path in self._items.paths))
        self._secret = secrets.token_urlsafe(16)
        server = self

        class ViewHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """A terminal shows no requests."""

        try:
            self._http = LocalServer(("127.0.0.1", port), ViewHandler)
        except OSError as error:
            self._items.close()
            raise ConfigError(f"--port must be free; got {port}: {error.strerror}") from error
        self._host = f"127.0.0.1:{self._http.server_address[1]}"
        self.url = f"http://{self._host}/{self._secret}/"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def __enter__(self) -> ViewServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving and release the runs."""
        self._http.shutdown()
        self._http.server_close()
        self._items.close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        inside = f"/{self._secret}/"
        known = secrets.compare_digest(path[: len(inside)].encode(), inside.encode())
        if request.headers.get("Host") != self._host or not known:
            request.send_error(404)
            return
        try:
            body, kind, status = self._body(path.removeprefix(inside)), "application/octet-stream", 200
        except StoreError as error:
            body, kind, status = str(error).encode(errors="replace"), "text/plain; charset=utf-8", 500
        if body is None:
            request.send_error(404)
            return
        request.send_response(status)
        if path == inside:
            kind = "text/html; charset=utf-8"
            request.send_header("Content-Security-Policy", self._policy)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def _body(self, name: str) -> bytes | None:
        if name == "":
            return self._page
        if name == "data/index":
            return self._index_now()
        if shot := re.fullmatch("data/shot([0-9a-f]{32})", name):
            return self._picture(bytes.fromhex(shot[1]))
        for kind in ("tree", "tokens"):
            number = name.removeprefix(f"data/{kind}")
            if number.isdecimal() and int(number) < len(self._places):
                return self._data(kind, self._places[int(number)])
        return None

    def _data(self, kind: str, place: ItemPlace) -> bytes | None:
        """The answer about an item, which is kept if nothing can change it but other settings of its pairs."""
        pairs = self._items.pairs(place.run, place.stage, [])
        key = kind, place, str(pairs)
        with self._guard:
            if (kept := self._kept.pop(key, None)) is not None:
                self._kept[key] = kept
                return kept
        shown = self._items.read(place)
        if shown is None:
            return None
        if kind == "tokens":
            found = squeeze(token_data(shown, self._items.words(place.run)))
        else:
            found = squeeze(tree_data(shown, pairs, weigh(shown, pairs)))
        if place.kind != PARTIAL:
            with self._guard:
                self._kept[key] = found
                while sum(map(len, self._kept.values())) > KEPT_BYTES:
                    del self._kept[next(iter(self._kept))]
        return found

    def _picture(self, address: bytes) -> bytes | None:
        for store in self._items.stores:
            with contextlib.suppress(StoreError):
                return store.blob(address)
        return None

    def _index_now(self) -> bytes:
        """What the file's index has, with a version that grows with every change; made again if a run was written."""
        with self._guard:
            if time.monotonic() - self._looked >= EVERY_S and (seen := self._items.versions()) != self._seen:
                self._look()
                rows = [self._rows[number] for number in sorted(self._rows)]
                about_all = {"runs": self._items.runs(), "items": rows, "lost": left_out(self._lost)}
                found = {"live": True, "version": self._version, **about_all}
                self._index, self._seen, self._looked = squeeze(found), seen, time.monotonic()
            return self._index

    def _look(self) -> None:
        """Read new items, growing ones again, and those whose pairs training has begun to take by other settings.

        A tree that is done takes the number of the growing one.
        """
        numbers = {place._replace(kind=""): number for number, place in enumerate(self._places)}
        lost = list[str]()
        pairs_of = lru_cache(maxsize=None)(lambda run, stage: self._items.pairs(run, stage, lost))
        for place in self._items.places():
            number, pairs = numbers.get(place._replace(kind="")), pairs_of(place.run, place.stage)
            same = number is not None and self._places[number] == place and self._weighed_by[number] == pairs
            if same and place.kind != PARTIAL:
                continue
            shown = self._items.whole(place, lost)
            if shown is None:
                continue
            if number is None:
                number = len(self._places)
                self._places.append(place)
            self._places[number], self._weighed_by[number] = place, pairs
            found = about(number, place, row(shown, weigh(shown, pairs)))
            earlier = self._rows.get(number)
            if earlier is None or {**earlier, "change": 0} != {**found, "change": 0}:
                self._version += 1
                self._rows[number] = {**found, "change": self._version}
        self._version += lost != self._lost
        self._lost = lost
