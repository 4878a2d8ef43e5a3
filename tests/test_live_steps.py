"""Tasks of more than one effect: log in, then add, then save. What a run is given besides its goal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq.agent.prompts import STEP_JUDGE
from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.envs.browser.guard import FinalStep
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.secret import Secret
from agentq.envs.browser.site_server import COOKIE, SiteServer
from agentq.envs.site import Request, Response, SiteSession, redirect
from agentq.errors import ConfigError
from agentq.live.given import given_of
from agentq.live.options import LiveOptions
from agentq.live.solve import Outcome, Watcher, solve
from agentq.policies.budget import Budget, Budgeted
from agentq.policies.model_policy import ModelPolicy
from agentq.searching.selection import SearchSettings
from tests.scripted_engine import Scripted

PASSWORD = "open sesame 42"
LOGIN = """<h1>Log in</h1><form method=post action=/login>
<input type=password name=p aria-label=Password><button>Enter</button></form>"""
# The form is drawn by a script after a click, so a url does not lead to it; it has no field that a state could fill.
LIST = """<h1>Things</h1>THINGS<button onclick="open_()">New</button><div id=new></div><script>
function open_() { document.getElementById("new").innerHTML = `<form method=post action=/add>
<input name=n aria-label=Thing><button>Save</button></form>`; }</script>"""


class Things:
    """A site that wants a login, and then adds things. `sent` has every POST."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def handle(self, request: Request, session: SiteSession) -> Response:
        if request.method == "POST":
            self.sent.append(request.path)
            if request.path == "/login":
                session["user"] = request.params.get("p") == PASSWORD
            elif session["user"]:
                session["things"] = (*session["things"], request.params["n"])
            return redirect("/")
        if not session["user"]:
            return Response("<!doctype html>" + LOGIN)
        return Response(
            "<!doctype html>" + LIST.replace("THINGS", "".join(f"<p>{each}</p>" for each in session["things"]))
        )


@pytest.fixture
def server() -> Iterator[SiteServer]:
    """The site on a port of its own."""
    made = SiteServer(Things())
    try:
        yield made
    finally:
        made.close()


def storage_of(server: SiteServer, **session: Any) -> dict[str, Any]:
    """A visitor's cookie in Playwright's form."""
    visitor = server.admit({"user": False, "things": (), **session})
    cookie = {"name": COOKIE, "value": visitor, "domain": "127.0.0.1", "path": "/", "expires": -1}
    return {"cookies": [cookie | {"httpOnly": False, "secure": False, "sameSite": "Lax"}], "origins": []}


def proposed(page: str) -> list[str]:
    if "heading Log in" in page:
        return ["TYPE [1] <secret:PASSWORD>", "TYPE [1] guess"] if ": ***" not in page else ["CLICK [2]"]
    if "Thing [2]: milk" in page:
        return ["CLICK [3]"]
    if "Thing [2]" in page:
        return ["TYPE [2] milk"]
    return ["CLICK [1]"]


def agent() -> Scripted:
    """Logs in and adds milk; a step is right if it is a login, or adds milk."""

    def answer(role: str, prompt: str) -> str | list[str]:
        page = prompt.partition("FINAL PAGE:" if role == "judge" else "OBSERVATION:")[2]
        assert PASSWORD not in prompt
        if role == "judge" and engine.requests[-1].prompt.messages[0]["content"] == STEP_JUDGE:
            right = "button Enter , which sends" in page or "Thing [2]: milk" in page
            return f"needed {'YES' if right else 'NO'}"
        if role == "judge":
            return f"milk is there: {'YES' if 'text milk' in page else 'NO'}"
        if role == "critic":
            return "none"
        if "text milk" in page:
            return "COMMANDS: STOP"
        return [f"COMMANDS: {command}" for command in proposed(page)]

    engine = Scripted(answer)
    return engine


@pytest.mark.browser
def test_a_task_of_two_effects_is_asked_about_step_by_step_and_done(browser: BrowserPool, server: SiteServer) -> None:
    asked: list[FinalStep] = []

    def allows(step: FinalStep) -> bool:
        asked.append(step)
        return True

    engine = Budgeted(agent(), Budget(calls=300))
    solution = solve(
        *("add milk", server.origin + "/", ModelPolicy(engine), browser, Watcher(allows), SearchSettings(1000, 2)),
        critic=LLMRanker(engine),
        judge=OutcomeJudge(engine),
        secrets={"PASSWORD": Secret(PASSWORD, server.origin)},
        storage=storage_of(server),
    )
    assert solution.outcome is Outcome.DONE
    assert server.site.sent == ["/login", "/add"]  # type: ignore[attr-defined]
    assert [step.towards for step in asked] == [True, True]
    assert "  a step on the way, not the end" in asked[0].lines()
    assert PASSWORD not in str(solution) + str(asked)


@pytest.mark.browser
def test_a_logged_in_state_needs_no_login(browser: BrowserPool, server: SiteServer) -> None:
    engine = Budgeted(agent(), Budget(calls=300))
    solution = solve(
        *(
            "add milk",
            server.origin + "/",
            ModelPolicy(engine),
            browser,
            Watcher(lambda _: True),
            SearchSettings(1000, 2),
        ),
        critic=LLMRanker(engine),
        judge=OutcomeJudge(engine),
        storage=storage_of(server, user=True),
    )
    assert solution.outcome is Outcome.DONE and server.site.sent == ["/add"]  # type: ignore[attr-defined]


def test_secrets_come_from_the_environment_and_storage_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options(**more: Any) -> LiveOptions:
        return LiveOptions(url="https://shop.test/login", **more)

    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"cookies": [], "origins": []}))
    given = given_of(options(secret=["PASSWORD=SHOP_PASSWORD"], storage_state=state))
    assert given.secrets == {"PASSWORD": Secret(PASSWORD, "https://shop.test")}
    assert given.storage == {"cookies": [], "origins": []}
    assert PASSWORD not in repr(given)
    for wrong, why in (
        ({"secret": [PASSWORD]}, "--secret must be NAME=ENV"),
        ({"secret": ["A=NO_SUCH"]}, "--secret A must name an environment variable that is set; got NO_SUCH"),
        ({"storage_state": tmp_path / "none"}, "storage_state; got .*/none: No such file or directory$"),
    ):
        with pytest.raises(ConfigError, match=why):
            given_of(options(**wrong))
    state.write_text("[]")
    with pytest.raises(ConfigError, match="must have a list of cookies"):
        given_of(options(storage_state=state))
