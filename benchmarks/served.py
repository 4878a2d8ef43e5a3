"""Targets of attacks: `agentq env serve` as a process, with its memory and child processes; and a site that lures."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

from agentq.envs.browser import processes

OWN = Path(__file__).parents[1] / "examples" / "own_env.py"


@contextmanager
def serving(folder: Path, *words: str, **more: Any) -> Iterator[tuple[int, str]]:
    """A server of examples/own_env.py, whose temporary folders are made in `folder`: its process, and its address."""
    command = [sys.executable, "-m", "agentq", "env", "serve", f"{OWN}:make", "--at", "127.0.0.1:0", *words]
    environ = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ, cwd=folder, **more) as server:
        try:
            assert server.stdout is not None
            yield server.pid, server.stdout.readline().strip().rpartition("@")[2]
        finally:
            server.kill()


def dial(at: str) -> socket.socket:
    """A connection on which nothing has been sent yet."""
    host, _, port = at.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def send_all(connection: socket.socket, data: bytes) -> None:
    """Send as much as the other end accepts, then wait until it hangs up."""
    with suppress(OSError):
        connection.sendall(data)
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def is_hung_up(connection: socket.socket) -> bool:
    """Whether the other end has closed a connection, whatever it sent before."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def in_time(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition holds within `seconds`."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def children(pid: int) -> set[int]:
    """The child processes of a process, with all descendants."""
    return processes.tree(pid, "no token") - {pid}


def memory_mib(pid: int) -> float:
    """The peak memory of a process."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def processor_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def folders(folder: Path) -> list[Path]:
    """The temporary folders of sessions in `folder`."""
    return list(folder.glob("agentq-*"))


class Luring(BaseHTTPRequestHandler):
    """A first page that opens another origin in a new tab; `asked` records requests under another name."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers["Host"] != f"127.0.0.1:{port}":
            self.asked.append(self.path)
        page = f"<!doctype html><h1>Tables</h1><script>window.open('http://localhost:{port}/advertisement')</script>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass
