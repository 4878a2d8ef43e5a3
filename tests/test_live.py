"""Live runs: nothing final is sent before a person says yes, and then once; what ends a run, and what it leaves."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentq.cli import main
from agentq.critics.judge import Judgement, OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.guard import FinalStep, Guard
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.secret import check_secrets
from agentq.envs.browser.states import Return
from agentq.envs.browser.website import Website
from agentq.errors import ConfigError, EnvError
from agentq.live.solve import Outcome, Solution, Watcher, solve
from agentq.policies.budget import Budget, Budgeted
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, Gives
from agentq.searching.selection import SearchSettings
from agentq.types import Command, EnvAction, History, Split, StepResult, Task
from tests.browser_lab import click, named
from tests.live_lab import PAGES, Foreign, foreign
from tests.scripted_engine import Scripted
from tests.test_cli_faults import documented_keys

GOAL = "a table for 2 , name Ann"


def act(*commands: str) -> list[str]:
    return [f"COMMANDS: {command}" for command in commands]


def answer(role: str, prompt: str) -> str | list[str]:
    """Fills the form, first with a wrong party; approves what names Ann and a party of two."""
    page = prompt.partition("FINAL PAGE:" if role == "judge" else "OBSERVATION:")[2]
    right = {"name is Ann": "Ann" in page, "party is 2": "Party [3]: 2" in page or "p 2" in page}
    if role == "judge":
        return "\n".join(f"{finding}: {'YES' if holds else 'NO'}" for finding, holds in right.items())
    if role == "critic":
        return "none"
    if "heading Booked" in page:
        return act("CLICK [1]", "STOP")
    if "heading Menu" in page:
        return act("STOP")
    if "Name [2]: Ann" not in page:
        return act("TYPE [2] Ann", "CLICK [1]")
    return act("CLICK [4]", "SELECT [3] 3", "SELECT [3] 2")


class Told:
    """A watcher that answers `says` to every step, and what it heard."""

    def __init__(self, says: bool | None) -> None:
        self.says = says
        self.asked: list[FinalStep] = []
        self.rollouts: list[tuple[str | None, Judgement | None]] = []
        self.trees = 0

    def allows(self, step: FinalStep) -> bool:
        self.asked.append(step)
        return bool(self.says)

    def on_rollout(self, history: History, result: StepResult, judgement: Judgement | None) -> None:
        self.rollouts.append((result.error_kind, judgement))

    def on_tree(self, tree: object) -> None:
        self.trees += 1

    @property
    def watcher(self) -> Watcher:
        return Watcher(None if self.says is None else self.allows, self.on_rollout, self.on_tree)


def run(
    site: Foreign,
    pool: BrowserPool,
    told: Told,
    *,
    answer: Callable[[str, str], str | list[str]] = answer,
    calls: int = 400,
) -> Solution:
    engine = Budgeted(Scripted(answer), Budget(calls=calls))
    return solved(engine, site, pool, told)


def solved(engine: Engine, site: Foreign, pool: BrowserPool, told: Told, *, sees: bool = False) -> Solution:
    """A run in which one engine proposes, ranks and judges."""
    policy, critic, judge = ModelPolicy(engine), LLMRanker(engine), OutcomeJudge(engine, sees=sees)
    settings = SearchSettings(1000, 3)
    return solve(GOAL, site.url, policy, pool, told.watcher, settings, critic=critic, judge=judge)


@pytest.mark.browser
def test_what_the_user_allows_is_carried_out_once(browser: BrowserPool) -> None:
    told = Told(True)
    with foreign() as site:
        solution = run(site, browser, told)
    assert solution.outcome is Outcome.DONE
    assert site.posts == [("/booked", {"n": "Ann", "p": "2"})]
    assert solution.carried_out == tuple(told.asked)
    assert solution.commands == ("TYPE [2] Ann", "SELECT [3] 2", "CLICK [4]", "STOP")
    assert solution.findings == (("name is Ann", True), ("party is 2", True))
    (step,) = told.asked
    assert (step.url, step.element, str(step.sends)) == (site.url, "button Go on", f"POST {site.url}booked")
    assert step.values == (("Name", "Ann"), ("Party", "2"))
    # before it the wrong parties were held too, and the judge did not approve of them; after it another way was tried
    before = [judgement for kind, judgement in told.rollouts if kind == "held"]
    assert len(before) > 1 and [judgement.success for judgement in before if judgement] == [False] * (
        len(before) - 1
    ) + [True]
    assert told.trees == 2


@pytest.mark.browser
def test_what_the_user_refuses_is_not_sent_and_the_agent_sees_it(browser: BrowserPool) -> None:
    told, prompts = Told(False), []

    def listening(role: str, prompt: str) -> str | list[str]:
        prompts.append(prompt)
        return answer(role, prompt)

    with foreign() as site:
        solution = run(site, browser, told, answer=listening, calls=60)
        assert site.posts == []
    assert solution.outcome is Outcome.NOT_FOUND and solution.carried_out == ()
    assert len(told.asked) == 1  # the same step is not asked for again
    assert any("error the user does not allow this step" in prompt for prompt in prompts)


@pytest.mark.browser
def test_without_a_person_to_ask_the_step_waits(browser: BrowserPool) -> None:
    with foreign() as site:
        solution = run(site, browser, Told(None))
        assert site.posts == []
    assert solution.outcome is Outcome.WAITS and solution.waits is not None
    assert solution.waits.values == (("Name", "Ann"), ("Party", "2"))


@pytest.mark.browser
def test_a_judge_that_sees_is_shown_the_page(browser: BrowserPool) -> None:
    shown: list[bytes] = []

    def seeing(role: str, said: Any) -> str | list[str]:
        if role != "judge":
            return answer(role, said)
        (text, picture) = said
        kind, _, data = picture["image_url"]["url"].partition(",")
        assert (text["type"], picture["type"], kind) == ("text", "image_url", "data:image/png;base64")
        shown.append(base64.b64decode(data))
        return answer(role, text["text"])

    with foreign() as site:
        engine, told = Budgeted(Scripted(seeing), Budget(calls=400)), Told(True)
        solution = solved(engine, site, browser, told, sees=True)
    assert solution.outcome is Outcome.DONE and len(site.posts) == 1
    assert all(picture.startswith(b"\x89PNG") for picture in shown) and len(set(shown)) > 1


def test_a_judge_that_is_sent_tokens_cannot_see() -> None:
    engine = Scripted(answer)
    engine.gives = Gives.TOKEN_IDS
    with pytest.raises(ConfigError, match="a judge that sees must be a server that is sent chats; got scripted"):
        OutcomeJudge(engine, sees=True)


@pytest.mark.browser
@pytest.mark.parametrize("calls", [1, 7, 12])
def test_a_spent_budget_ends_a_run_with_what_was_found(browser: BrowserPool, calls: int) -> None:
    told = Told(True)
    engine = Scripted(answer)
    with foreign() as site:
        budget = Budget(calls=calls)
        solution = solved(Budgeted(engine, budget), site, browser, told)
    assert len(engine.asked) == calls
    assert solution.outcome is Outcome.NOT_FOUND
    assert budget.ended == f"the limit of {calls} calls is reached"
    assert site.posts == [] and told.asked == []  # the judge approved of nothing yet
    assert solution.commands == () or solution.commands[0] in ("TYPE [2] Ann", "CLICK [1]")


@pytest.mark.browser
def test_a_step_that_was_sent_and_not_answered_is_not_sent_again(browser: BrowserPool) -> None:
    told = Told(True)
    with foreign() as site:
        site.answers = False
        solution = run(site, browser, told)
        # Chromium itself asks again where a connection that it had kept was closed before any answer
        assert {tuple(sent.items()) for _, sent in site.posts} == {(("n", "Ann"), ("p", "2"))}
    assert solution.outcome is Outcome.LOST and len(solution.carried_out) == len(told.asked) == 1


@pytest.mark.browser
def test_a_site_that_is_gone_ends_the_run(browser: BrowserPool) -> None:
    with foreign() as site:

        def vanishing(role: str, prompt: str) -> str | list[str]:
            if role == "judge":
                site.close()
            return answer(role, prompt)

        solution = run(site, browser, Told(True), answer=vanishing, calls=200)
    assert solution.outcome in (Outcome.NOT_FOUND, Outcome.GONE) and site.posts == []
    with pytest.raises(EnvError, match="the first page must load; got net::ERR"):
        run(site, browser, Told(True))


@pytest.mark.browser
def test_the_page_of_a_held_step_must_be_reached_as_it_was_shown(browser: BrowserPool) -> None:
    def changing(role: str, prompt: str) -> str | list[str]:
        said = answer(role, prompt)
        if role == "judge" and "NO" not in said:  # it has approved: the page is not the same any more
            site.pages["/"] = site.pages["/"].replace("Tables", "Tables , now at 90 a seat")
        return said

    told = Told(True)
    with foreign() as site:
        solution = run(site, browser, told, answer=changing)
        assert site.posts == []
    assert solution.outcome is Outcome.GONE and solution.carried_out == () and told.asked == []


POST = "<form method=post action=/booked><input type=hidden name=n value=1>"
HELD = {
    "button": f"{POST}<button>Go</button></form>",
    "keyboard": f"{POST}<input aria-label=Go></form>",
    "new tab": f"{POST.replace('method', 'target=_blank method')}<button>Go</button></form>",
    "script": f"{POST}</form><button onclick='document.forms[0].submit()'>Go</button>",
    "link with a script": f"{POST}</form><a href='javascript:document.forms[0].submit()'>Go</a>",
    "link with a handler": f"{POST}</form><a href=/menu onclick='document.forms[0].submit(); return false'>Go</a>",
    "frame": "<iframe src=/form></iframe>",
    "page that sends itself": "<a href=/sends>Go</a>",
    "name, by fetch": "<button onclick=\"fetch('/booked', {method: 'POST'})\">Place order</button>",
    "name, in a link": "<a href='#' onclick=\"fetch('/booked', {method: 'POST'})\">Delete account</a>",
    "name, in a link that is a button": (
        "<a role=button href=/menu onclick=\"fetch('/booked', {method: 'POST'}); return false\">Pay</a>"
    ),
    "name, of the form's button": (
        "<form onsubmit=\"fetch('/booked', {method: 'POST'}); return false\">"
        "<input aria-label=Card><button>Pay</button></form>"
    ),
    "name, of a list item": "<div onclick=\"fetch('/booked', {method: 'POST'})\">Pay 90</div>",
}


@pytest.mark.browser
@pytest.mark.parametrize("kind", HELD)
def test_a_final_step_is_held_whatever_it_is_made_of(browser: BrowserPool, kind: str) -> None:
    pages = {"/": f"<h1>start</h1>{HELD[kind]}", "/form": f"{POST}<button>Go</button></form>", "/menu": "<h1>Menu</h1>"}
    pages["/sends"] = f"<h1>moment</h1>{POST}</form><script>document.forms[0].submit()</script>"
    with foreign(pages) as site:
        env = live_env(browser, site)
        before = env.view
        name = before.page.controls[0].name
        step = (
            EnvAction(Command.SUBMIT, 1)
            if kind in ("keyboard", "name, of the form's button")
            else EnvAction(Command.CLICK, named(env, name))
        )
        result = env.step(step)
        assert (result.error_kind, result.terminated, result.reward) == ("held", True, 0.0)
        assert result.observation.text.startswith("heading start") and "\nheld " in result.observation.text
        assert site.posts == [] and env.held is not None
        # a yes: the same step is done, once
        env.carry_out(env.held, lambda step: True)
        env.snapshot()
        assert len(site.posts) == 1
        env.close()


HARMLESS = {
    "form that only asks": "<form action=/menu><input name=q aria-label=Words><button>Go</button></form>",
    "link": "<a href=/menu>Order</a>",
    "field": "<input aria-label='Order number'>",
    "script": "<button onclick='document.title = 1'>Go</button>",
}


@pytest.mark.browser
@pytest.mark.parametrize("kind", HARMLESS)
def test_what_can_be_undone_is_not_held(browser: BrowserPool, kind: str) -> None:
    with foreign({"/": HARMLESS[kind], "/menu": "<h1>Menu</h1>", "/menu?q=": "<h1>Menu</h1>"}) as site:
        env = live_env(browser, site)
        last = len(env.view.page.controls)
        result = env.step(EnvAction(Command.TYPE, 1, "7") if kind == "field" else EnvAction(Command.CLICK, last))
        assert result.error_kind is None and not result.terminated
        env.close()


@pytest.mark.browser
def test_search_goes_back_behind_what_was_carried_out_but_never_through_it(browser: BrowserPool) -> None:
    counting = {"/menu": "<h1>Menu</h1><a href=/>Home</a><script>fetch('/visits', {method: 'POST'})</script>"}
    with foreign({**PAGES, **counting}) as site:
        env = live_env(browser, site, max_steps=4)
        for _ in range(3):
            env.step(EnvAction(Command.TYPE, named(env, "Name"), "Ann"))
        before = env.snapshot()
        assert click(env, "Go on").terminated
        held = env.held
        assert held is not None
        env.restore(before)
        assert isinstance(back := env.log[-1], Return) and back.way == "storage"  # what was held was not sent
        env.carry_out(held, lambda step: True)  # its steps are counted from here on
        assert env.view.url == f"{site.url}done"
        behind = env.snapshot()
        click(env, "Menu")
        env.restore(behind)
        assert isinstance(back := env.log[-1], Return) and (back.way, back.outcome) == ("storage", "approximate")
        click(env, "Home")
        site.pages["/done"] = "<h1>Expired</h1>"
        env.restore(behind)
        assert isinstance(back := env.log[-1], Return) and back.outcome == "failed"
        assert back.tried == ("storage: 'heading Booked' is now 'heading Expired'",)
        assert [path for path, _ in site.posts].count("/booked") == 1
        env.close()


def live_env(browser: BrowserPool, site: Foreign, max_steps: int = 30) -> BrowserEnv:
    env = BrowserEnv(Website("live", site.url, max_steps=max_steps), browser, guard=Guard())
    env.reset(Task("live", 0, Split.TEST, GOAL))
    return env


@pytest.mark.parametrize("url", ["shop.test", "file:///etc/passwd", "http://"])
def test_a_site_must_have_an_address_of_the_web(url: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"name a host; got '{url}'")):
        Website("live", url)


def test_a_site_takes_one_origin_and_a_folder_by_name(tmp_path: Path) -> None:
    site = Website("live", "https://shop.test/start", "https://cdn.test", uploads=str(tmp_path))
    assert site.allow == ["https://shop.test", "https://cdn.test"] and site.uploads == tmp_path
    with pytest.raises(
        ConfigError, match=r"secret 'p' must be agentq.envs.browser.secret.Secret\(value, origin\); got str"
    ):
        check_secrets({"p": "hunter2"}, site.allow)  # type: ignore[dict-item]


WORDS = ["run", GOAL, "--url", "http://127.0.0.1:9/", "--model", "base"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--calls", "0"], "--calls must be more than 0; got 0"),
        (["--page-tokens", "0"], "--page-tokens must be at least 1; got 0"),
        (["--uploads", "no_folder"], "--uploads must be a folder; got no_folder"),
        (["--seconds", "nan"], "--seconds must be more than 0; got nan"),
        (["--money", "1"], "--money needs the prices of tokens: --price.prompt and --price.generated"),
        (["--price.prompt", "-1"], "price.prompt must be greater than or equal to 0"),
        (["--search.num_proposals", "0"], "search.num_proposals must be greater than or equal to 1"),
        (
            ["--allow-request", "POST /x"],
            '--allow-request must be METHOD ORIGIN/PATH such as "POST https://diner.test/sea',
        ),
        (
            ["--block-request", "POST http://b.test/x"],
            "--block-request must be about an allowed origin (http://127.0.0.1:9)",
        ),
        (["--out", "FULL"], "--out must be a new or empty directory, or --clean given"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_run_refuses_what_makes_no_sense(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").touch()  # as a run leaves it
    assert main([*WORDS, *(str(tmp_path) if word == "FULL" else word for word in words)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


COMMAND = """
import sys
from agentq.cli import main
from agentq.live import models
from tests.scripted_engine import Scripted
from tests.test_live import answer
models.make_engine = lambda *_: Scripted(answer)
sys.exit(main(sys.argv[1:]))
"""


def started(site: Foreign, out: Path, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """`agentq run` in a process of its own, with a scripted engine and by default no terminal."""
    options = ["--url", site.url, "--model", "scripted", "--out", str(out), *words]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", GOAL, *options],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
            "HF_HUB_OFFLINE": "1",  # "scripted" could be a model of the hub, which would be tried first
        },
    )


@pytest.mark.browser
def test_the_command_tells_what_it_does_and_leaves_a_report(browser: BrowserPool, tmp_path: Path) -> None:
    with foreign() as site:
        prices = ["--money", "1", "--price.prompt", "1", "--price.generated", "2"]
        done = started(site, tmp_path / "yes", "--yes", *prices)
        out, err = done.communicate(timeout=120)
        assert done.returncode == 0, err
        assert len(site.posts) == 1
        waits = started(site, tmp_path / "waits", "--json")
        result = json.loads(waits.communicate(timeout=120)[0])
        assert waits.returncode == 1 and len(site.posts) == 1
    assert out.startswith("done, the judge says\n  TYPE [2] Ann\n") and "judge, yes: party is 2" in out
    assert re.search(r"policy: \d+ requests, .* prompt tokens .* generated, queued \d+ ms each\n", out)
    assert "\ncost: 0.0" in out
    assert re.search(r"rollout 1: TYPE \[2\] Ann > CLICK \[4\]; held; judge: 1 of 2; [\d.e-]+ of 1 money", err)
    assert "This step may not be undone:\n  CLICK [4] button Go on , which sends POST" in err and "  Party: 2" in err
    assert "\nrequests: " in out and "1 allowed by person, 1 sent\n" in out
    page = (tmp_path / "yes" / "report.html").read_text()
    assert "1 allowed by person, 1 sent." in page and f"POST {site.url}booked</code></td>" in page
    assert "A found success" in page and "Carried out, once: <code>CLICK [4] button Go on" in page
    assert '<td class="text">party is 2</td><td>yes</td>' in page
    assert (result["outcome"], result["waits"][:9]) == ("waits", "CLICK [4]")
    assert result.keys() == documented_keys()["run"]
    assert Path(result["report"]).exists()
    assert result["requests"]["sent"] == 0 and result["tried"] == {f"POST {site.url}booked": result["requests"]["held"]}


@pytest.mark.browser
def test_ctrl_c_ends_a_run_with_what_it_has(browser: BrowserPool, tmp_path: Path) -> None:
    with foreign({"/": PAGES["/"].replace("<option>2", ""), "/menu": PAGES["/menu"]}) as site:  # no way leads there
        running = started(site, tmp_path / "run", "--seconds", "100")
        assert running.stderr is not None and running.stderr.readline().startswith("rollout 1: ")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert out.startswith("not found: interrupted\n  TYPE [2] Ann\n")
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.browser
def test_a_dry_run_lists_what_a_site_sends_as_rules_and_sends_nothing(
    browser: BrowserPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with foreign() as site:
        assert main(["run", GOAL, "--url", site.url, "--dry-run", "--calls", "25", "--seconds", "60"]) == 0
        printed = capsys.readouterr()
        assert site.posts == []
    assert re.match(r"25 steps; requests: [1-9]\d* held, 0 allowed by rule, 0 allowed by person, 0 sent\n", printed.out)
    assert re.search(rf"^--allow-request 'POST {site.url}booked'  # \d+ times$", printed.out, re.MULTILINE)
    assert f"held: CLICK [4] button Go on , which sends POST {site.url}booked" in printed.err
    assert main(["run", GOAL, "--url", site.url, "--dry-run", "--allow-request", "x"]) == 2


def test_only_a_dry_run_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", GOAL, "--url", "http://127.0.0.1:9/"]) == 2
    assert "--model must name an engine; got none" in capsys.readouterr().err


@pytest.mark.browser
@pytest.mark.parametrize("typed", ["y", "n"])
def test_the_person_at_the_terminal_is_shown_the_request_and_asked(
    browser: BrowserPool, tmp_path: Path, typed: str
) -> None:
    keyboard, terminal = os.openpty()
    hidden = PAGES["/"].replace("<button>", "<input type=hidden name=amount value=9999><button>")
    with foreign({**PAGES, "/": hidden}) as site:
        running = started(site, tmp_path / "run", "--calls", "60", stdin=terminal)
        os.write(keyboard, f"{typed}\n".encode() * 3)
        out, err = running.communicate(timeout=120)
        assert len(site.posts) == (typed == "y")
    os.close(keyboard)
    os.close(terminal)
    assert "what is sent:\n  n = Ann\n  p = 2\n  amount = 9999\n" in err
    assert f"\nPOST {site.url}booked , 21 bytes , SHA-256 " in err
    assert "Send it? [y/N] " in err
    sent = "1 allowed by person, 1 sent" if typed == "y" else "0 allowed by person, 0 sent"
    assert sent in out
