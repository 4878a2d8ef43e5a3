"""The pool of browser workers: deadlines from outside, replacement, the cap, and no process left behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentq.envs.browser import processes
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.pool import BrowserLost, BrowserPool
from agentq.envs.browser.states import StepLog
from agentq.errors import ConfigError, EnvError, MissingExtra
from agentq.types import Command, EnvAction
from tests.browser_lab import TASK, click, lab_env, living, named

pytestmark = pytest.mark.browser
LOOP = "<button onclick='for (;;) {}'>Hang</button><label for=t>Text</label><input id=t><a href=/fine>Fine</a>"
PAGES = {
    "/": LOOP,
    "/fine": "<h1>fine</h1>",
    "/big": "<button onclick='window.a = new Uint8Array(500 << 20).fill(1)'>Grow</button>",
}


@pytest.fixture(scope="module")
def frail_pool(browser: BrowserPool) -> Iterator[BrowserPool]:
    """A pool whose browsers may be broken. `browser` is asked for, so that these tests are skipped without one."""
    with BrowserPool(deadline_s=5.0) as pool:
        yield pool


@pytest.fixture
def frail(frail_pool: BrowserPool) -> BrowserPool:
    """The same, with a live worker and nothing replaced yet."""
    frail_pool.open(["http://127.0.0.1"]).close()
    frail_pool.replaced.clear()
    return frail_pool


@contextmanager
def silence() -> Iterator[str]:
    """An origin that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def blocked(address: str) -> str:
    """A script that stops a page's thread for good, and costs no processor."""
    return f'const x = new XMLHttpRequest(); x.open("GET", "{address}", false); x.send()'


def last(env: BrowserEnv) -> StepLog:
    return next(log for log in reversed(env.log) if isinstance(log, StepLog))


def worker_pid(pool: BrowserPool) -> int:
    return pool._workers[0].process.pid


def kill(pool: BrowserPool, *, renderers: bool = True) -> None:
    """Kill what renders the pages of a pool's browser, or the browser itself."""
    wanted = "--type=renderer" if renderers else "--remote-debugging-pipe"
    for each in processes.tree(worker_pid(pool), pool._workers[0].mark):
        with suppress(OSError):  # it has ended meanwhile
            line = (Path("/proc") / str(each) / "cmdline").read_text()
            if wanted in line and ("--type=" in line) == renderers:
                os.kill(each, signal.SIGKILL)


def test_a_page_that_never_answers_is_data_and_the_episode_goes_on(frail: BrowserPool) -> None:
    with silence() as address:
        env = lab_env(
            frail, {**PAGES, "/": f"<button onclick='{blocked(address)}'>Hang</button>" + PAGES["/"]}, allow=[address]
        )
        env.step(EnvAction(Command.TYPE, named(env, "Text"), "kept"))
        before = env.view
        result = click(env, "Hang")
    assert (result.error_kind, result.error_message) == ("browser_lost", "the page does not answer")
    assert env.view == before
    told = re.compile(r"act must answer within 5\.0 s; it hangs in (_?\w+:\d+( > )?)+; http://\S+ does not answer .+")
    assert len(last(env).lost) == 2 and all(map(told.fullmatch, last(env).lost))
    assert set(frail.replaced) <= set(last(env).lost)  # a page that hangs is closed alone, in time or not
    assert click(env, "Fine").observation.text == "heading fine"


def test_work_is_retried_on_another_worker(frail: BrowserPool) -> None:
    with silence() as address:
        pages = {**PAGES, "/once": [f"<h1>hangs</h1><script>{blocked(address)}</script>", "<h1>answers</h1>"]}
        env = lab_env(frail, pages, allow=[address])
        result = env.step(EnvAction(Command.GOTO, text="/once"))
    assert (result.error_kind, result.observation.text) == (None, "heading answers")
    (lost,) = last(env).lost
    assert re.search("^visit must answer within 5.0 s; it hangs in visit:.* > evaluate:", lost)


def test_a_page_that_hangs_does_not_end_the_sessions_beside_it(browser: BrowserPool) -> None:
    with BrowserPool(deadline_s=15.0) as pool, silence() as address:
        beside = lab_env(pool, PAGES)
        beside.step(EnvAction(Command.TYPE, named(beside, "Text"), "kept"))
        env = lab_env(pool, {**PAGES, "/": f"<button onclick='{blocked(address)}'>Hang</button>"}, allow=[address])
        assert click(env, "Hang").error_kind == "browser_lost" and len(last(env).lost) == 2
        assert pool.replaced == [] and pool._workers[0].sessions == 1
        assert beside.step(EnvAction(Command.TYPE, named(beside, "Text"), "more")).error_kind is None
        assert last(beside).lost == () and beside.view.values[named(beside, "Text") - 1] == "more"
        env.close()
        beside.close()


@pytest.mark.parametrize("victim", ["worker", "browser", "renderer", "stopped"])
def test_a_death_between_steps_costs_nothing_but_time(frail: BrowserPool, victim: str) -> None:
    env = lab_env(frail, PAGES)
    env.step(EnvAction(Command.TYPE, named(env, "Text"), "kept"))
    pid, mark = worker_pid(frail), frail._workers[0].mark
    if victim in ("worker", "stopped"):
        os.kill(pid, signal.SIGKILL if victim == "worker" else signal.SIGSTOP)
    else:
        kill(frail, renderers=victim == "renderer")
    result = env.step(EnvAction(Command.SUBMIT, named(env, "Text")))
    assert result.error_kind == "wrong_role"  # refused before the browser is asked
    assert env.step(EnvAction(Command.TYPE, named(env, "Text"), "more")).error_kind is None
    assert env.view.values[named(env, "Text") - 1] == "more"
    assert len(last(env).lost) == 1
    if victim != "renderer":
        assert living(mark) == []


def test_a_death_during_a_step_is_told_at_once(browser: BrowserPool) -> None:
    with BrowserPool(deadline_s=24.0) as pool, silence() as address:  # a page is given 4 seconds to settle
        pages = {**PAGES, "/once": [f"<h1>hangs</h1><script>{blocked(address)}</script>", "<h1>answers</h1>"]}
        env = lab_env(pool, pages, allow=[address])
        killer = threading.Timer(7.0, kill, (pool,))
        killer.start()
        result = env.step(EnvAction(Command.GOTO, text="/once"))
        killer.join()
        assert (result.error_kind, result.observation.text) == (None, "heading answers")
        assert last(env).lost == ("the page crashed",) and pool.replaced == []  # not after the deadline


def test_a_worker_past_its_memory_is_replaced_and_its_page_rebuilt(browser: BrowserPool) -> None:
    with BrowserPool(memory_mb=100_000) as pool:
        env = lab_env(pool, PAGES)
        env.step(EnvAction(Command.GOTO, text="/big"))
        pool.memory_limit_mb = pool._workers[0].memory_mb() + 250
        click(env, "Grow")
        deadline = time.monotonic() + 20
        while not pool.replaced and time.monotonic() < deadline:
            env._driver.screenshot(env.snapshot())
        assert pool.replaced[0].startswith("a worker must hold at most")
        assert env.step(EnvAction(Command.GOTO, text="/fine")).observation.text == "heading fine"


def test_never_more_browsers_than_the_cap(browser: BrowserPool) -> None:
    with BrowserPool(2) as pool:
        sessions, most, done = [], [], threading.Event()

        def watch() -> None:
            while not done.is_set():
                most.append(sum("envs.browser.worker" in line for w in list(pool._workers) for line in living(w.mark)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        threads = [threading.Thread(target=lambda: sessions.append(pool.open(["http://127.0.0.1"]))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.kill(worker_pid(pool), signal.SIGKILL)
        for session in sessions:
            try:
                session.call("observe")
            except EnvError:
                pool.open(["http://127.0.0.1"])
        done.set()
        watcher.join()
        assert max(most) == 2 and len(sessions) == 6 and len(pool.replaced) == 1


ORPHAN = """
import sys, threading
from agentq.envs.browser.pool import BrowserPool
from tests.browser_lab import lab_env, click
from tests.test_browser_pool import PAGES
pool = BrowserPool()
env = lab_env(pool, PAGES)
print(pool._workers[0].mark, pool._workers[0].folder, flush=True)
click(env, "Hang") if sys.argv[1] == "hang" else sys.stdin.read()
"""


@pytest.mark.parametrize("busy", ["hang", "idle"])
def test_no_orphan_outlives_a_parent_that_was_killed(browser: BrowserPool, busy: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None and parent.stdin is not None
    mark, folder = parent.stdout.readline().split()
    assert any("--remote-debugging-pipe" in line for line in living(mark))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while (left := living(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert not Path(folder).exists()
    parent.stdin.close()
    parent.stdout.close()


def test_closing_the_pool_leaves_nothing(browser: BrowserPool) -> None:
    pool = BrowserPool()
    session = pool.open(["http://127.0.0.1"])
    mark, folder = pool._workers[0].mark, pool._workers[0].folder
    pool.close()
    pool.close()
    assert living(mark) == [] and not folder.exists()
    with pytest.raises(BrowserLost, match="the pool is closed"):
        session.call("observe")
    with pytest.raises(EnvError, match="a browser pool must be open; this one is closed"):
        pool.open(["http://127.0.0.1"])


def test_a_session_let_go_is_closed_by_the_next_that_opens(browser: BrowserPool) -> None:
    env = lab_env(browser, PAGES)
    held, visitors = browser._workers[0].sessions, env._driver.host.server.visitors  # type: ignore[attr-defined]
    assert len(visitors) == 1
    del env
    lab_env(browser, PAGES).close()
    assert browser._workers[0].sessions == held - 1 and visitors == {}


def test_a_missing_browser_names_both_install_commands() -> None:
    pytest.importorskip("playwright")
    with BrowserPool(executable="/nowhere/chromium") as pool, pytest.raises(MissingExtra) as error:
        pool.open(["http://127.0.0.1"])
    assert str(error.value) == (
        "agentq.envs.browser needs a Chromium: playwright install --with-deps --only-shell chromium, or on Debian: "
        "apt-get install -y chromium-headless-shell; got none at /nowhere/chromium"
    )


def test_a_missing_playwright_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with BrowserPool() as pool, pytest.raises(MissingExtra, match=r"pip install 'agentq-search\[browser\]'"):
        pool.open(["http://127.0.0.1"])


def test_a_browser_that_cannot_start_is_told_and_leaves_no_folder(
    browser: BrowserPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    with BrowserPool() as pool, pytest.raises(EnvError, match="a browser must start; got No such file or directory"):
        pool.open(["http://127.0.0.1"])
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ConfigError, match="browsers must be at least 1, deadline_s and memory_mb positive; got 0, "):
        BrowserPool(0)
    with pytest.raises(ConfigError, match="max_tokens must be at least 1; got 0"):
        BrowserEnv(None, None, 0)  # type: ignore[arg-type]
    assert TASK.env == "lab"
