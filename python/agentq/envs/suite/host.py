"""An application of the suite as the host of a BrowserEnv: a server with a database that each episode renews."""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from agentq.envs.browser.hosts import Start, Verdict, WithoutMemory
from agentq.envs.suite.job import Job
from agentq.envs.tab import View
from agentq.errors import ConfigError, EnvError, MissingExtra
from agentq.types import Task

_START_S = 60
_HERE = Path(__file__).parent


def apps_python() -> Path:
    """The Python of the folder with the applications. Raises MissingExtra without one."""
    folder = Path(os.environ.get("AGENTQ_APPS", "build/apps"))
    python = folder / "bin" / "python"
    if not python.exists():
        raise MissingExtra(f"the suite needs its applications: make apps, or AGENTQ_APPS=FOLDER; got none in {folder}")
    return python.absolute()


@cache
def _folder() -> Path:
    """Where databases lie, for the life of this process."""
    folder = Path(tempfile.mkdtemp(prefix="agentq-suite-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _pristine(application: str) -> Path:
    """The database of an application as every episode begins with it."""
    database = _folder() / f"{application}.sqlite"
    made = subprocess.run(
        [apps_python(), _HERE / "apps" / f"{application}.py", "make", database],
        capture_output=True,
        text=True,
        timeout=_START_S,
        check=False,
    )
    if made.returncode:
        raise EnvError(f"{application} must make its database; got {made.stderr.strip().splitlines()[-1:]}")
    return database


class Server:
    """A server of an application with a database of its own. It ends with this process."""

    def __init__(self, application: str) -> None:
        self.application = application
        self.database = Path(tempfile.mkdtemp(dir=_folder())) / "data.sqlite"
        self.reset()
        script = _HERE / "apps" / f"{application}.py"
        self.process = subprocess.Popen(
            [apps_python(), script, "serve", self.database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self.close)
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if not said.isdecimal():
            raise EnvError(f"{application} must say its port; got '{said}'")
        self.origin = f"http://127.0.0.1:{said}"

    def reset(self) -> None:
        """Begin again with the database as it was made."""
        for more in ("-journal", "-wal", "-shm"):
            self.database.with_name(self.database.name + more).unlink(missing_ok=True)
        shutil.copyfile(_pristine(self.application), self.database)

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.communicate()
        atexit.unregister(self.close)


class SuiteHost(WithoutMemory):
    """See `agentq.envs.browser.hosts.Host`. STOP ends an episode; the checker reads the database."""

    probe = ""
    quiet_ms = 50
    strict = False
    announces = False
    full = True
    repeatable = True
    max_steps = 40

    def __init__(self, name: str, job: Job) -> None:
        self.name, self.job, self.server = name, job, Server(job.application)
        self.allow = [self.server.origin]

    def start(self, task: Task) -> Start:
        if task.env != self.name:
            raise ConfigError(f"task.env must be '{self.name}'; got '{task.env}'")
        self.server.reset()
        return Start(self.server.origin + self.job.start, cookies=[])

    def shown_url(self, url: str) -> str:
        parts = urlsplit(url)
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def target(self, view: View, text: str) -> str:
        return urljoin(self.server.origin + view.url, text)

    def judge(self, task: Task, memory: Any, probe: Any, stopped: bool) -> Verdict:
        if not stopped:
            return Verdict(False)
        with closing(sqlite3.connect(f"file:{self.server.database}?mode=ro", uri=True)) as database:
            done = self.job.done(database, task.seed)
        return Verdict(True, float(done), done)

    def answer(self, task: Task, question: str) -> str:
        return task.instruction

    def __del__(self) -> None:
        if "server" in self.__dict__:
            self.server.close()
