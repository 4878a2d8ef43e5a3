"""The booking site behind `agentq env serve`, and a network to it that stalls, resets or truncates when told to."""

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
from typing import Any

STALL_S = 3.0


class Booking:
    """The site as a class of the contract."""

    name, max_steps = "booking", 30

    def __init__(self) -> None:
        from agentq import envs

        self.envs, self.env = envs, envs.make("booking")

    def reset(self, seed: int) -> dict[str, Any]:
        task = self.envs.task_from_seed("booking", seed)
        page = self.env.reset(task)
        return {"instruction": task.instruction, "text": page.text, "url": page.url}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        from agentq.types import Command, EnvAction

        found = self.env.step(EnvAction(Command(command), element, text))
        told = {
            name: getattr(found, name) for name in ("reward", "terminated", "truncated", "success", "error_message")
        }
        kind = {"error_kind": str(found.error_kind) if found.error_kind else None}
        return {"text": found.observation.text, "url": found.observation.url, **told, **kind}


class Broker:
    """A server on a port of its own, and a port that passes everything on to it. `name`: the environment's."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.name = f"booking@127.0.0.1:{self.listening.getsockname()[1]}"
        self.token = os.environ.setdefault("AGENTQ_ENV_TOKEN", secrets.token_hex(16))
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.fault, self.closed = "", False

    def __enter__(self) -> Broker:
        self.start()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self.listening.close()
        self.server.terminate()
        self.server.wait()

    def start(self) -> None:
        """Start the server."""
        words = ["env", "serve", f"{self.file}:Booking", "--at", f"127.0.0.1:{self.port}", "--sessions", "40"]
        self.server = subprocess.Popen(
            [sys.executable, "-m", "agentq", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.server.stdout is not None
        self.server.stdout.readline()

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
