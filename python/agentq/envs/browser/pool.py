"""The pool: out-of-process browser workers, a hard cap on their number, and a deadline for every call.

The deadline is kept here, outside the worker: a worker that hangs, dies or outgrows its memory is killed with all its
processes before another may start. Its sessions then raise BrowserLost at their next call; env.py opens another session
and rebuilds the state. If only a page hangs, its worker closes that session alone. Nothing here imports Playwright.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

from agentq.envs.browser import processes, wire
from agentq.envs.browser.secret import Given
from agentq.errors import ConfigError, EnvError, MissingExtra

_START_S = 60.0  # for a worker to launch its browser
_LOOK_S = 0.5  # between two checks of a worker's memory
_KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "FONTCONFIG_PATH", "PLAYWRIGHT_BROWSERS_PATH")
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # where a live run's proxy finds trusted certificates
NO_BROWSER = (
    "agentq.envs.browser needs a Chromium: playwright install --with-deps --only-shell chromium, "
    "or on Debian: apt-get install -y chromium-headless-shell"
)


class BrowserLost(EnvError):
    """The worker of a session was replaced, or its page crashed: the session must be opened again."""


class _Worker(processes.WorkerProcess):
    """The owner's view of one worker process, and the calls that wait for it."""

    def __init__(self, executable: str, *, sandbox: bool) -> None:
        super().__init__()
        cache = Path.home() / ".cache" / "ms-playwright"
        environ = {key: os.environ[key] for key in _KEPT + _TRUST if key in os.environ}
        environ.setdefault("PLAYWRIGHT_BROWSERS_PATH", str(cache))
        environ["HOME"] = str(self.folder)
        self.log = self.folder / "stderr.txt"
        command = [sys.executable, "-m", "agentq.envs.browser.worker", executable, str(int(sandbox))]
        with self.log.open("wb") as log:
            self.start(command, environ, log)
        self.hello: Future[dict[str, Any]] = Future()
        self.waiting: dict[int, Future[dict[str, Any]]] = {0: self.hello}
        self.lock = threading.Lock()
        self.calls = 0
        self.sessions = 0
        self.lost = ""  # why it is no longer used
        self.looked = time.monotonic()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while (message := wire.read(self.process.stdout)) is not None:
                with self.lock:
                    future = self.waiting.pop(message["id"], None)
                if future is not None:
                    future.set_result(message)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self.lost = f"the worker must speak the protocol; got {error}"
        self._fail_all()

    def _fail_all(self) -> None:
        with self.lock:
            self.lost = self.lost or "the worker ended"
            waiting, self.waiting = list(self.waiting.values()), {}
        for future in waiting:
            future.set_exception(BrowserLost(self.lost))

    def send(self, session: int, call: str, args: dict[str, Any]) -> Future[dict[str, Any]]:
        """Send a call. The future gets the worker's message, or BrowserLost."""
        future: Future[dict[str, Any]] = Future()
        assert self.process.stdin is not None
        with self.lock:
            if self.lost:
                raise BrowserLost(self.lost)
            self.calls += 1
            self.waiting[self.calls] = future
            try:
                wire.write(self.process.stdin, {"id": self.calls, "session": session, "call": call, "args": args})
            except OSError:
                self.waiting.pop(self.calls)
                raise BrowserLost("the worker ended") from None
        return future

    def stderr(self) -> str:
        """The end of the log of worker and browser, on one line."""
        try:
            return " ".join(self.log.read_text(errors="replace")[-400:].split())
        except OSError:
            return ""

    def memory_mb(self) -> float:
        return processes.memory_mb(processes.tree(self.process.pid, self.mark))

    def end(self, why: str) -> None:
        """Kill it; waiting calls fail with `why`. Idempotent."""
        self.lost = self.lost or why
        self.kill()
        self._fail_all()


class RemoteSession:
    """A session in some worker. One call at a time; sessions of one pool may be called from several threads."""

    def __init__(self, pool: BrowserPool, worker: _Worker, number: int) -> None:
        self._pool, self._worker, self._number = pool, worker, number

    def call(self, call: str, **args: Any) -> Any:
        """Carry out one of session.CALLS. Raises BrowserLost, or EnvError with the browser's message."""
        return self._pool._call(self._worker, self._number, call, args)

    def close(self) -> dict[str, Any]:
        """Release the context and return its last reply, which is empty if the browser is gone. Never raises."""
        self._worker.sessions -= 1
        if not self._worker.lost:
            with contextlib.suppress(EnvError):
                return dict(self.call("close"))
        return {}

    def abandon(self) -> None:
        """Let the pool release the context when it next opens one. Safe in a finalizer."""
        self._pool.abandoned.append(self)


class BrowserPool:
    """At most `browsers` Chromium processes at any moment; sessions are spread over them.

    Args:
        browsers: hard cap on live browsers, at least 1. Two cores are full with one or two.
        executable: path of a Chromium; by default Playwright's own, else the first one on PATH.
        deadline_s: seconds any call may take before its worker is killed and replaced, > 0.
        memory_mb: MiB a worker with its browser may hold before it is replaced (Linux), > 0.
        sandbox: whether Chromium must run in its own sandbox, which root and some containers cannot have. By default
            it must, unless the environment variable AGENTQ_NO_SANDBOX is 1.
    """

    def __init__(
        self,
        browsers: int = 1,
        *,
        executable: str = "",
        deadline_s: float = 30.0,
        memory_mb: float = 4096.0,
        sandbox: bool | None = None,
    ) -> None:
        if browsers < 1 or deadline_s <= 0 or memory_mb <= 0:
            given = f"{browsers}, {deadline_s}, {memory_mb}"
            raise ConfigError(f"browsers must be at least 1, deadline_s and memory_mb positive; got {given}")
        self.browsers, self.executable = browsers, executable
        self.sandbox = processes.must_sandbox() if sandbox is None else sandbox
        self.deadline_s, self.memory_limit_mb = deadline_s, memory_mb
        self.replaced: list[str] = []  # why each worker was replaced, oldest first
        self.abandoned: list[RemoteSession] = []
        self._workers: list[_Worker] = []
        self._lock = threading.RLock()
        self._opened = 0
        self._closed = False
        atexit.register(self.close)

    def __enter__(self) -> BrowserPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(
        self,
        allow: Iterable[str],
        *,
        storage: Any = None,
        probe: str = "",
        quiet_ms: int = 50,
        announces: bool = False,
        full: bool = False,
        secrets: Given | None = None,
        rules: dict[str, list[str]] | None = None,
    ) -> RemoteSession:
        """A fresh session that may touch the origins `allow` only; raises MissingExtra without a browser.

        `rules`: exceptions from holding all requests except GET; None holds nothing.
        """
        args = {"storage": storage, "probe": probe, "quiet_ms": quiet_ms, "announces": announces, "full": full}
        args |= {"secrets": secrets, "rules": rules, "deadline_s": self.deadline_s}
        while self.abandoned:
            self.abandoned.pop().close()
        worker = self._pick()
        with self._lock:
            self._opened += 1
            session = RemoteSession(self, worker, self._opened)
        try:
            session.call("open", allow=list(allow), **args)
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        """End every browser. Idempotent."""
        with self._lock:
            self._closed = True
            while self._workers:
                self._workers.pop().end("the pool is closed")
        atexit.unregister(self.close)

    def _pick(self) -> _Worker:
        """The worker with the fewest sessions, or a new one if the cap allows."""
        with self._lock:
            if self._closed:
                raise EnvError("a browser pool must be open; this one is closed")
            for worker in [each for each in self._workers if each.lost]:
                self._replace(worker, worker.lost)
            idle = min(self._workers, key=lambda each: each.sessions, default=None)
            if idle is None or (idle.sessions > 0 and len(self._workers) < self.browsers):
                idle = self._start()
                self._workers.append(idle)
            idle.sessions += 1
            return idle

    def _start(self) -> _Worker:
        if importlib.util.find_spec("playwright") is None:
            raise MissingExtra(
                f"agentq.envs.browser needs playwright: pip install 'agentq-search[browser]'; then {NO_BROWSER}"
            )
        try:
            worker = _Worker(self.executable, sandbox=self.sandbox)
        except OSError as error:
            raise EnvError(f"a browser must start; got {error.strerror}") from None
        try:
            hello = worker.hello.result(_START_S)
        except (BrowserLost, TimeoutError):
            hello = {"error": f"the browser did not start: {worker.stderr()}"}
        if "error" not in hello:
            return worker
        worker.end(hello["error"])
        if hello.get("missing"):
            raise MissingExtra(f"{NO_BROWSER}; got none" + (f" at {self.executable}" if self.executable else ""))
        raise EnvError(hello.get("unsandboxed") or f"a browser must start; got {hello['error']}")

    def _replace(self, worker: _Worker, why: str) -> None:
        """End a worker; the next session that needs one starts another."""
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)
                self.replaced.append(why)
                worker.end(why)

    def _call(self, worker: _Worker, session: int, call: str, args: dict[str, Any]) -> Any:
        deadline = time.monotonic() + self.deadline_s
        try:
            future = worker.send(session, call, args)
            message = self._await(worker, future, deadline, call)
            if "hangs" in message:
                raise BrowserLost(message["hangs"])
        except BrowserLost as lost:
            self._replace(worker, str(lost))
            raise
        self._check_memory(worker)
        if "error" not in message:
            return message["result"]
        if message.get("gone"):
            raise BrowserLost(message["error"])
        raise EnvError(f"the browser must carry out {call}; got {message['error']}")

    def _await(self, worker: _Worker, future: Future[dict[str, Any]], deadline: float, call: str) -> dict[str, Any]:
        while True:
            try:
                return future.result(min(_LOOK_S, max(0.0, deadline - time.monotonic())))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise BrowserLost(f"{call} must answer within {self.deadline_s} s; got nothing") from None
                self._check_memory(worker)

    def _check_memory(self, worker: _Worker) -> None:
        if time.monotonic() - worker.looked >= _LOOK_S:
            worker.looked = time.monotonic()
            if (held := worker.memory_mb()) > self.memory_limit_mb:
                self._replace(worker, f"a worker must hold at most {self.memory_limit_mb:.0f} MiB; got {held:.0f}")


@cache
def default_browser() -> BrowserPool:
    """The pool of environments that are made without one: one browser, closed when the process ends."""
    return BrowserPool()
