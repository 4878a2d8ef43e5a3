"""What every test run prints first (versions that a failure may depend on); a browser and a model that tests share."""

from __future__ import annotations

import gc
import os
import platform
import signal
import warnings
from collections.abc import Generator, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from agentq.envs import makers, own
from agentq.envs.browser.pool import BrowserPool
from agentq.errors import MissingExtra
from agentq.policies import hub

# Tests open pages of their own, often as root in a container, where Chromium cannot have its sandbox; 0 tests with it.
os.environ.setdefault("AGENTQ_NO_SANDBOX", "1")

# A shell's job in the background ignores Ctrl-C, and all that it starts; tests send it to programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Cores are shared, so that drawing or trying an example may take seconds.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

NAMES = ("agentq-search", "numpy", "pydantic", "torch", "transformers", "playwright", "hypothesis")


def pytest_report_header() -> str:
    found = [f"python {platform.python_version()}"]
    for name in NAMES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keeps the garbage collector out of the million objects of imported packages and of the tests themselves."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test tries the hub, nor goes offline for those after it."""
    monkeypatch.setattr(hub, "_try", lambda: None)


def forget_environments() -> None:
    """Close the sessions that are kept, and forget the names that tests have registered."""
    own._close_kept()
    makers._made.clear()
    makers._here.clear()
    own._known.clear()


@pytest.fixture(autouse=True, scope="module")
def _other_modules_know_no_environments_of_this_one() -> Iterator[None]:
    yield
    forget_environments()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests that need a GPU where there is none. On one, the warnings of torch's compiler are no errors."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    there = torch.cuda.is_available()
    for item in gpu:
        item.add_marker(pytest.mark.filterwarnings("default") if there else pytest.mark.skip("needs a CUDA device"))


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint that recipes begin with; no test writes there."""
    from tests.recipes_factory import tiny_checkpoint

    return tiny_checkpoint(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserPool]:
    """One Chromium for all tests; they are skipped, with the install lines, where there is none."""
    with BrowserPool(deadline_s=120) as pool:  # a crowded machine has not broken a browser
        try:
            pool.open(["http://127.0.0.1"]).close()
        except MissingExtra as error:
            pytest.skip(str(error))
        yield pool
        hung = [why for why in pool.replaced if "it hangs in" in why]
        for why in hung:  # rare on a crowded machine, and the call was repeated; where it hung is worth knowing
            warnings.warn(pytest.PytestWarning(f"a browser was replaced: {why}"), stacklevel=1)
        broken = len(pool.replaced) > len(hung) or len(hung) > 3
        assert not broken, f"tests that break browsers must use a pool of their own; got {pool.replaced}"


@pytest.fixture(autouse=True)
def _one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs collect in the test's own process unless they ask for others, which take seconds to start."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
