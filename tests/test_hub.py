"""Names of models on the Hugging Face hub, where the hub can be reached and where not."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from agentq.policies import hub
from agentq.policies.engine_names import check_checkpoint

CONNECT, TRY = socket.create_connection, hub._try  # conftest replaces the latter


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The addresses that are tried, none of which answers."""
    found = list[object]()

    def refuse(address: object, timeout: float) -> socket.socket:
        found.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    for name in [*os.environ]:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in ((hub.OFFLINE, ""), ("HF_ENDPOINT", "")):  # so that it is as before after the test
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name)
    monkeypatch.setattr(huggingface_hub.constants, hub.OFFLINE, False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(hub, "_try", TRY)
    TRY.cache_clear()
    yield found
    TRY.cache_clear()


def test_models_come_from_the_cache_where_the_hub_cannot_be_reached(
    asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    check_checkpoint(Path("some-org/Some-Model"))
    check_checkpoint(Path("another"))
    assert asked == [("huggingface.co", 443)]  # once
    assert os.environ[hub.OFFLINE] == "1" and huggingface_hub.constants.is_offline_mode()
    told = "agentq: huggingface.co must be reachable for models that are not in its cache; got [Errno 111] Connection"
    assert capsys.readouterr().err == f"{told} refused\n"


def test_a_mirror_is_asked_in_its_place(asked: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.test:8080/hf")
    assert hub.reach_hub(Path("some-org/Some-Model")) and asked == [("mirror.test", 8080)]


@pytest.mark.parametrize(("name", "value"), [("HF_HUB_OFFLINE", "0"), ("HTTPS_PROXY", "http://proxy.test:3128")])
def test_what_the_user_has_set_is_left_alone(
    name: str, value: str, asked: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert hub.reach_hub(Path("some-org/Some-Model")) and not asked
    assert not huggingface_hub.constants.is_offline_mode()


def test_a_hub_that_answers_is_used(asked: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket, "create_connection", CONNECT)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub.reach_hub(Path("some-org/Some-Model"))
    assert not huggingface_hub.constants.is_offline_mode()


def test_no_hub_is_asked_for_a_path(asked: list[object], tmp_path: Path) -> None:
    assert not hub.reach_hub(tmp_path) and not hub.reach_hub(Path("/no/such/path")) and not asked
