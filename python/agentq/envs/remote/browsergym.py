"""BrowserGym environments in the other Python: pages as agentq's lines, agentq's commands as BrowserGym's actions.

`browsergym/miniwob.click-test`, or any other id that BrowserGym registers. Reward and end are BrowserGym's own; success
is a positive reward at the end. Playwright runs without delays, and no second browser shows the chat. The time limit
for an action is longer than BrowserGym's half a second, so that results do not depend on the load of the machine.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from agentq.envs.browser import processes
from agentq.envs.remote.axtree import Tree, squeeze
from agentq.errors import ConfigError, MissingExtra, did_you_mean

PREFIX = "browsergym/"
_PATIENCE_MS = 3000
_SCROLL_PX = {"UP": -400, "DOWN": 400}
_MAX_STEPS = {"miniwob": 10}  # as in BrowserGym's benchmarks; 30 for others
_ACTIONS = {"CLICK": "click", "TYPE": "fill", "SELECT": "select_option", "CLEAR": "clear", "HOVER": "hover"}
_DRAG_TO = re.compile(r"TO\s*\[?(\d+)\]?", re.IGNORECASE)


class ActionRefused(Exception):
    """An action that is not accepted, with its `kind` and message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BrowserGymEnv:
    """One environment by its id. Elements are numbered per episode in order of appearance."""

    commands = ("HOVER", "DRAG")

    def __init__(self, name: str) -> None:
        self.name = name
        family = name.removeprefix(PREFIX).partition(".")[0]
        _register(name, family)
        self.max_steps = _MAX_STEPS.get(family, 30)
        self.executable = ""  # Playwright's own
        self.env = self._make()

    def reset(self, seed: int) -> dict[str, Any]:
        """Start the episode of `seed`; its goal is the instruction."""
        try:
            seen, _ = self.env.reset(seed=seed)
        except Exception as error:
            if refused := processes.sandbox_error(str(error)):
                raise ConfigError(refused) from None
            if self.executable or "xecutable doesn't exist" not in str(error):
                raise
            self.executable = next(filter(None, map(shutil.which, processes.CHROMIUMS)), "")
            if not self.executable:
                raise MissingExtra(
                    _install("a Chromium", "playwright install --with-deps --only-shell chromium")
                ) from None
            self.env = self._make()
            return self.reset(seed)
        self.numbers: dict[str, int] = {}  # element numbers by BrowserGym's id
        self.heard = len(seen["chat_messages"])
        return {"instruction": squeeze(seen["goal"]), **self._look(seen)}

    def step(self, command: str, element: int | None, text: str | None) -> dict[str, Any]:
        """Take one command. A command that the page does not accept is data."""
        try:
            action = self._action(command, element, text or "")
        except ActionRefused as error:
            return {**self.page, "error_kind": error.kind, "error_message": str(error)}
        seen, reward, terminated, truncated, _ = self.env.step(action)
        terminated = terminated or command == "STOP"
        answers = [each["message"] for each in seen["chat_messages"][self.heard :] if each["role"] == "user"]
        self.heard = len(seen["chat_messages"])
        failed = seen["last_action_error"].strip().split("\n", 1)[0]
        return {
            **self._look(seen),
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "success": bool(reward > 0 and (terminated or truncated)),
            "error_kind": "action_failed" if failed else None,
            "error_message": squeeze(failed),
            "answer": squeeze(" ".join(answers)),
        }

    def close(self) -> None:
        """End the task and the browser."""
        self.env.close()

    def _make(self) -> Any:
        import browsergym.core.env
        import gymnasium
        from browsergym.core.action.highlevel import HighLevelActionSet

        browsergym.core.env.Chat = _Chat
        actions = HighLevelActionSet(subsets=["chat", "bid", "nav"], multiaction=False, strict=True)
        actions.python_includes = actions.python_includes.replace("timeout=500", f"timeout={_PATIENCE_MS}")

        chromium: dict[str, Any] = {"chromium_sandbox": processes.must_sandbox()}
        if self.executable:
            chromium["executable_path"] = self.executable
        return gymnasium.make(
            self.name,
            disable_env_checker=True,
            slow_mo=0,
            pw_chromium_kwargs=chromium,
            action_mapping=actions.to_python_code,
        )

    def _look(self, seen: dict[str, Any]) -> dict[str, str]:
        """The page as BrowserGym observed it."""
        tree = Tree(seen["axtree_object"]["nodes"], seen["extra_element_properties"])
        lines = tree.lines(self.numbers)
        self.shown: dict[int | None, str] = {self.numbers[bid]: bid for bid in tree.numbered}
        self.url: str = seen["url"]
        self.page: dict[str, str] = {"text": "\n".join(lines), "url": _shown_url(self.url)}
        return self.page

    def _action(self, command: str, element: int | None, text: str) -> str:
        """BrowserGym's code for a command. Raises ActionRefused."""
        if command == "STOP":
            return "noop(0)"
        if command == "ASK_USER":
            return f"send_msg_to_user({text!r})"
        if command == "GOTO":
            return f"goto({self._target(text)!r})"
        if command == "SCROLL" and text not in _SCROLL_PX:
            raise ActionRefused("bad_argument", "SCROLL takes UP or DOWN here: the page is shown whole")
        if command == "SCROLL":
            return f"scroll(0, {_SCROLL_PX[text]})"
        bid = self._bid(element)
        if command == "DRAG":
            onto = _DRAG_TO.fullmatch(text)
            if onto is None:
                raise ActionRefused("no_such_command", "DRAG leads to an element here: DRAG [id] TO [id]")
            return f"drag_and_drop({bid!r}, {self._bid(int(onto[1]))!r})"
        if command == "SUBMIT":
            return f"press({bid!r}, 'Enter')"
        if command not in _ACTIONS:
            raise ActionRefused("no_such_command", f"no {command} here")
        return f"{_ACTIONS[command]}({bid!r}, {text!r})" if text else f"{_ACTIONS[command]}({bid!r})"

    def _bid(self, element: int | None) -> str:
        """BrowserGym's id of an element. Raises ActionRefused."""
        if element not in self.shown:
            raise ActionRefused("no_such_element", f"no element [{element}]")
        return self.shown[element]

    def _target(self, text: str) -> str:
        """The url of GOTO, relative to the present page."""
        try:
            url = urljoin(self.url, text)
            scheme = urlsplit(url).scheme
        except ValueError:
            raise ActionRefused("bad_url", "not a url") from None
        if scheme not in ("http", "https"):
            raise ActionRefused("bad_url", "GOTO needs an http url")
        return url


class _Chat:
    """BrowserGym's chat without a browser window of its own."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.messages: list[dict[str, Any]] = []

    def add_message(self, role: str, msg: str) -> None:
        """Record a message; notices of BrowserGym are left out."""
        if role != "info":
            self.messages.append({"role": role, "timestamp": 0.0, "message": msg})

    def close(self) -> None:
        """There is nothing to close."""


def _register(name: str, family: str) -> None:
    """Let BrowserGym register the environments of a family. Raises MissingExtra, or ConfigError for an unknown name."""
    try:
        importlib.import_module("browsergym.core")
    except ImportError:
        raise MissingExtra(_install("browsergym-core", "pip install browsergym-core==0.13.3")) from None
    import gymnasium

    logging.getLogger("browsergym.core.env").setLevel(logging.ERROR)  # it warns about each slow_mo
    if family == "miniwob":
        os.environ.setdefault("MINIWOB_URL", _miniwob_url())
    if importlib.util.find_spec(f"browsergym.{family}") is not None:
        importlib.import_module(f"browsergym.{family}")
    known = [each for each in gymnasium.registry if each.startswith(PREFIX)]
    if name not in known:
        if importlib.util.find_spec(f"browsergym.{family}") is None and f"{PREFIX}{family}" not in known:
            raise MissingExtra(_install(f"browsergym-{family}", f"pip install browsergym-{family}"))
        raise ConfigError(f"no environment '{name}'{did_you_mean(name, known)}")


def _miniwob_url() -> str:
    """The pages of the miniwob package, found without importing it (it would import selenium)."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(_install("miniwob", "pip install --no-deps miniwob"))
    return (Path(spec.submodule_search_locations[0]) / "html" / "miniwob").as_uri() + "/"


def _install(what: str, how: str) -> str:
    return f"browsergym environments need {what}: {sys.executable} -m {how}"


def _shown_url(url: str) -> str:
    """The url; of a page in a file, its folder and name, which are the same on every machine."""
    return "/" + "/".join(urlsplit(url).path.split("/")[-2:]) if url.startswith("file:") else url
