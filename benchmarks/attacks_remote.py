"""Attacks on the environment server, on its clients, and on the isolation of browsers."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

from attack import Skipped, agentq, attack
from hostile_env import HostileServer, answering, mutations, survived
from served import OWN, Luring, children, dial, folders, in_time, is_hung_up, memory_mib, processor_s, send_all, serving

from agentq.envs.browser import processes
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.origins import is_allowed, read_origins
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.website import Website
from agentq.envs.remote.connection import Connection
from agentq.errors import ConfigError, EnvError, MissingExtra
from agentq.policies.engine_names import embedded_base
from agentq.types import Split, Task

_UNSANDBOXED = "AGENTQ_NO_SANDBOX"
_MIB = 1 << 20


@attack(
    "3.5", "--env of a server that is not there", expected="exit 2, one line names agentq env serve, no run directory"
)
def no_server(folder: Path) -> str:
    came = agentq("train", "loop", "--env", "foo@127.0.0.1:1", "--out", "run", cwd=folder)
    names = len(came.lines) == 1 and "a server must listen at 127.0.0.1:1: agentq env serve; got" in came.lines[0]
    said = "one line names agentq env serve" if names else str(came)
    return f"exit {came.code}, {said}, {'a' if (folder / 'run').exists() else 'no'} run directory"


@attack("3.35", "env serve of what cannot be served", expected="7 of 7: exit 2 and one line")
def not_to_be_served(folder: Path) -> str:
    (folder / "raises.py").write_text("raise OSError('the world is not ready')\n")
    own, free = f"{OWN}:make", "127.0.0.1:0"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases = [
            ("none.py:make", free),
            (f"{OWN}:mkae", free),
            (own, f"127.0.0.1:{taken.getsockname()[1]}"),
            (own, "127.0.0.1:99999"),
            (own, "203.0.113.7:0"),
            (own, free, "--python", "/bin/false"),
            ("raises.py:make", free),
        ]
        came = [agentq("env", "serve", what, "--at", at, *more, cwd=folder, timeout=60) for what, at, *more in cases]
    good = sum(each.code == 2 and len(each.lines) == 1 and not each.has_traceback for each in came)
    return f"{good} of {len(came)}: exit 2 and one line"


@attack("3.38", "names outside ASCII", expected="--env: did you mean 'booking'?; --out: exit 0 and a run directory")
def beyond_ascii(folder: Path) -> str:
    named = agentq("train", "loop", "--env", "böoking", "--out", "none", cwd=folder)
    guess = named.lines[-1].rpartition("; ")[2] if len(named.lines) == 1 else str(named)
    kept = agentq("eval", str(embedded_base()), "--eval.num_tasks=1", "--out", "tr 1é", cwd=folder)
    found = "a" if (folder / "tr 1é" / "config.json").exists() else "no"
    return f"--env: {guess}; --out: exit {kept.code} and {found} run directory"


@attack(
    "4.10",
    "env serve --at an ordinary file, and a link to one",
    expected="exit 2, one line: 2 of 2; file and link kept",
)
def ordinary_file(folder: Path) -> str:
    precious, link = folder / "precious.txt", folder / "link"
    precious.write_text("years of work")
    link.symlink_to(precious)
    refused = 0
    for at in ("./precious.txt", "./link"):
        with suppress(subprocess.TimeoutExpired):  # it serves
            came = agentq("env", "serve", f"{OWN}:make", "--at", at, cwd=folder, timeout=15)
            refused += came.code == 2 and len(came.lines) == 1
    kept = link.is_symlink() and precious.is_file() and precious.read_text() == "years of work"
    return f"exit 2, one line: {refused} of 2; file and link {'kept' if kept else 'lost'}"


_STUB = """#!/bin/sh
case " $* " in *" --no-sandbox "*) echo x >> LAUNCHES; exec CHROMIUM "$@";; esac
echo "[1:1:FATAL:zygote_host_impl_linux.cc:128] No usable sandbox! Update your kernel." >&2
exit 1
"""


@attack(
    "4.12",
    "Chromium refuses its sandbox",
    expected="refused in one line that names AGENTQ_NO_SANDBOX=1, 0 launches without; allowed: opened, 1",
)
def no_sandbox(folder: Path) -> str:
    chromium = next(filter(None, map(shutil.which, processes.CHROMIUMS)), None)
    if chromium is None:
        raise Skipped("no Chromium on the PATH")
    stub, launches = folder / "chromium", folder / "launches"
    launches.touch()
    stub.write_text(_STUB.replace("LAUNCHES", str(launches)).replace("CHROMIUM", chromium))
    stub.chmod(0o755)
    before = os.environ.get(_UNSANDBOXED, "")
    came = []
    try:
        for allowed in ("", "1"):
            os.environ[_UNSANDBOXED] = allowed
            launches.write_text("")
            said = _opens(str(stub))
            came.append(f"{said}, {len(launches.read_text().split())}")
    finally:
        os.environ[_UNSANDBOXED] = before
    return f"{came[0]} launches without; allowed: {came[1]}"


def _opens(executable: str) -> str:
    with BrowserPool(executable=executable) as pool:
        try:
            pool.open(["http://127.0.0.1"]).close()
        except MissingExtra as error:
            raise Skipped(str(error)) from None
        except EnvError as error:
            is_clear = "\n" not in str(error) and f"{_UNSANDBOXED}=1" in str(error)
            return f"refused in one line that names {_UNSANDBOXED}=1" if is_clear else str(error)
    return "opened"


@attack(
    "4.18",
    "12 MiB as the first message to an environment server, and as a call",
    expected="memory grows by 0 and 0 times the message; then it serves",
)
def big_message(folder: Path) -> str:
    body = b"[" + b"[]," * (4 * _MIB) + b"[]]"
    grew = []
    with serving(folder) as (pid, at):
        for is_known in (False, True):
            before = memory_mib(pid)
            with ExitStack() as stack:
                if is_known:
                    connection = Connection(at)
                    stack.callback(connection.hang_up)
                    connected = connection._socket
                else:
                    connected = stack.enter_context(dial(at))
                send_all(connected, len(body).to_bytes(4, "big") + body)
            grew.append(round((memory_mib(pid) - before) / (len(body) / _MIB)))
        return f"memory grows by {grew[0]} and {grew[1]} times the message; then {_serves(at)}"


def _serves(at: str) -> str:
    try:
        Connection(at).hang_up()
    except EnvError as error:
        return str(error)
    return "it serves"


@attack(
    "4.19",
    "connections to an environment server that say nothing, or a byte a second",
    expected="0 processes for them, a client is served beside them, all are hung up on",
)
def idle_connections(folder: Path) -> str:
    with serving(folder, "--sessions", "2") as (pid, at), ExitStack() as stack:
        first = children(pid)
        silent = [stack.enter_context(dial(at)) for _ in range(8)]
        dripping = stack.enter_context(dial(at))
        in_time(lambda: bool(children(pid) - first), 2)
        started = len(children(pid) - first)
        served = _serves(at)

        def drip() -> None:
            with suppress(OSError):
                while True:
                    dripping.send(b"\0\0\1\0{")
                    time.sleep(1)

        threading.Thread(target=drip, daemon=True).start()
        gone = in_time(lambda: all(map(is_hung_up, silent)), 25) and in_time(lambda: is_hung_up(dripping), 5)
        client = "a client is served" if served == "it serves" else served
        return f"{started} processes for them, {client} beside them, {'all' if gone else 'not all'} are hung up on"


@attack(
    "4.20",
    "an environment server out of file descriptors",
    expected="less than half of a processor, 0 folders left, then it serves",
)
def no_descriptors(folder: Path) -> str:
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))}
    with serving(folder, "--sessions", "50", **few) as (pid, at), ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(dial(at))
        time.sleep(2)  # it has taken what it can
        before = processor_s(pid)
        time.sleep(2)
        share = (processor_s(pid) - before) / 2
        stack.close()
        in_time(lambda: not children(pid), 15)
        in_time(lambda: not folders(folder), 15)  # a folder goes after its process
        left = len(folders(folder))
        in_time(lambda: _serves(at) == "it serves", 15)
        used = "less than half of a processor" if share < 0.5 else f"{share:.1f} processors"
        return f"{used}, {left} folders left, then {_serves(at)}"


@attack(
    "4.21",
    "an environment server that answers nonsense",
    expected="deadline_s 1e300: exit 2, one line; every one of over 1000 answers: one line, or data on the step",
)
def nonsense(folder: Path) -> str:
    with HostileServer(answering("hello", deadline_s="1e300")) as server:
        came = agentq("train", "loop", "--env", f"fake@{server.at}", "--out", "run", cwd=folder)
        said = "one line" if len(came.lines) == 1 else "a traceback" if came.has_traceback else str(came)
        counts = Counter(survived(server, answer) for _, answer in mutations())
    fine = counts.pop("refused", 0) + counts.pop("step", 0)
    if not counts:
        ended = f"every one of {'over 1000' if fine > 1000 else fine} answers: one line, or data on the step"
    else:
        ended = f"{counts.total()} of {fine + counts.total()} answers: {counts.most_common(1)[0][0][:80]}"
    return f"deadline_s 1e300: exit {came.code}, {said}; {ended}"


@attack("4.23", "a first page that opens a foreign pop-up", expected="the page is shown; 0 requests by the pop-up")
def foreign_popup(folder: Path) -> str:
    Luring.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Luring) as server, BrowserPool() as pool:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            env = BrowserEnv(Website("site", f"http://127.0.0.1:{server.server_port}/"), pool)
            seen = env.reset(Task("site", 0, Split.TRAIN, "book a table"))
            shown = "the page is shown" if seen.text == "heading Tables" else repr(seen.text)
        except MissingExtra as error:
            raise Skipped(str(error)) from None
        except EnvError as error:
            shown = str(error)
        finally:
            server.shutdown()
    return f"{shown}; {len(Luring.asked)} requests by the pop-up"


@attack(
    "4.24",
    "an allow-list with hosts that are not ASCII",
    expected="bücher.test allows xn--bcher-kva.test, and straße.test is refused in one line",
)
def foreign_script(folder: Path) -> str:
    allowed = read_origins(["https://bücher.test"])
    matched = "allows" if is_allowed("https://xn--bcher-kva.test/a", allowed) else "does not allow"
    try:
        read_origins(["https://straße.test"])
        refused = "accepted"
    except ConfigError as error:
        refused = "refused in one line" if "\n" not in str(error) else str(error)
    return f"bücher.test {matched} xn--bcher-kva.test, and straße.test is {refused}"


@attack(
    "4.25",
    "owner and worker killed together",
    expected="1 folder is left, a minute later the next start removes it and keeps its own",
)
def killed_together(folder: Path) -> str:
    with serving(folder) as (pid, at):
        session = Connection(at)
        processes = children(pid) | {pid}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none sees another die
            for each in processes:
                os.kill(each, number)
        session.hang_up()
    left = folders(folder)
    for each in left:
        os.utime(each, (time.time() - 60, time.time() - 60))
    with serving(folder) as (pid, at):
        session = Connection(at)
        own = set(folders(folder)) - set(left)
        gone = not any(each.exists() for each in left)
        session.hang_up()
    what = "removes it" if gone else "keeps it"
    return f"{len(left)} folder is left, a minute later the next start {what} and keeps {'its own' if own else 'none'}"
