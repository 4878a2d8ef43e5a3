"""Chromium's own sandbox: never left out unasked; and the review's attacks on what keeps browsers apart."""

from __future__ import annotations

from pathlib import Path

import attacks_remote  # noqa: F401  (its attacks are run below)
import pytest
from attack import ATTACKS

from agentq.cli import main
from agentq.envs.browser import processes
from agentq.envs.browser.pool import BrowserPool
from agentq.errors import EnvError
from agentq.live import command, models
from tests.scripted_engine import Scripted


@pytest.mark.browser
@pytest.mark.parametrize("number", ["4.12", "4.23"])
def test_the_reviews_attack_ends_as_it_should(number: str, browser: BrowserPool, tmp_path: Path) -> None:
    assert ATTACKS[number].act(tmp_path) == ATTACKS[number].expected


def test_the_sandbox_is_left_out_only_where_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, sandbox in (("1", False), ("0", True), ("", True), ("yes", True)):
        monkeypatch.setenv("AGENTQ_NO_SANDBOX", said)
        for given in (None, True, False):
            with BrowserPool(sandbox=given) as pool:
                assert pool.sandbox is (sandbox if given is None else given)


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        (
            "[11:ERROR:zygote_host_impl_linux.cc:103] Running as root without --no-sandbox is not supported. See ..",
            "Running as root without --no-sandbox is not supported",
        ),
        (
            "[11:FATAL:credentials.cc:127] Check failed: namespace: Operation not permitted (1)",
            "Check failed: namespace: Operation not permitted (1)",
        ),
        ("No usable sandbox! Update your kernel or see ..", "No usable sandbox"),
    ],
)
def test_a_refused_sandbox_is_told_in_chromiums_words(complaint: str, said: str) -> None:
    log = "launch failed\n  - <launching> chromium --x\n  - [pid=1][err] {}\n  - [pid=1] <kill>"
    told = processes.sandbox_error(log.format(complaint))
    assert told == (
        f"Chromium must run in its sandbox; got '{said}': "
        "run as a user that is not root, or let it run without its sandbox: AGENTQ_NO_SANDBOX=1"
    )
    assert processes.sandbox_error(log.format("cannot open display")) == ""


@pytest.mark.parametrize(("words", "sandbox"), [([], None), (["--no-sandbox"], False)])
def test_a_live_run_may_be_told_to_go_without(
    words: list[str], sandbox: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def pool(sandbox: bool | None) -> None:
        given.append(sandbox)
        raise EnvError("no browser is needed to see this")

    monkeypatch.setattr(command, "BrowserPool", pool)
    monkeypatch.setattr(models, "make_engine", lambda *_: Scripted(lambda role, text: ""))
    live = ["run", "do it", "--url", "http://127.0.0.1:1", "--model", "none", "--out", str(tmp_path / "run")]
    assert main([*live, *words]) == 2
    assert given == [sandbox]
