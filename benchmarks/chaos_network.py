"""examples/own_env.py behind `agentq env serve`, and a network to it that stalls, resets or truncates when told to."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

STALL_S = 3.0
OWN = Path(__file__).parents[1] / "examples" / "own_env.py"


class Broker:
    """A server on a port of its own, and a port that passes everything on to it. `name`: the environment's."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.token = os.environ.setdefault("AGENTQ_ENV_TOKEN", secrets.token_hex(16))
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.fault, self.closed = "", False

    def __enter__(self) -> Broker:
        self.name = f"{self.start()}@127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self.listening.close()
        self.server.terminate()
        self.server.wait()

    def start(self) -> str:
        """Start the server. Returns the environment's name."""
        words = ["env", "serve", f"{OWN}:make", "--at", f"127.0.0.1:{self.port}", "--sessions", "40"]
        self.server = subprocess.Popen(
            [sys.executable, "-m", "agentq", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.server.stdout is not None
        return self.server.stdout.readline().split()[1].partition("@")[0]

    def fail(self, kind: str) -> None:
        """One fault: `stall`, `reset` or `truncate` of every connection there is, or a `server` that is killed."""
        if kind == "server":
            self.server.kill()
            self.server.wait()
            self.start()
        elif kind == "stall":
            self.fault = kind
            time.sleep(STALL_S)
            self.fault = ""
        elif kind == "truncate":
            self.fault = kind  # until a reply was cut
        else:
            for pair in self.pairs:
                for end in pair:
                    with suppress(OSError):  # an abortive close
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self.closed:
            with suppress(OSError):
                client, _ = self.listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.port), 10)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self.pairs.append((client, server))
                for one, other, replies in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(one, other, replies), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, replies: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                while self.fault == "stall":
                    time.sleep(0.05)
                if self.fault == "truncate" and replies:
                    self.fault = ""
                    other.sendall(data[: len(data) // 2])
                    break
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
