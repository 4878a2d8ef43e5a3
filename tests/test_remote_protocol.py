"""What goes over the wire between a client and a server of environments: the document's session, and what is none."""

from __future__ import annotations

import itertools
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from agentq import envs
from agentq.envs.browser import wire
from agentq.envs.remote import address
from agentq.envs.remote.connection import Closed, Connection, SessionLost
from agentq.envs.remote.env_server import EnvServer
from agentq.envs.replies import ResetReply
from agentq.errors import EnvError
from tests.remote_lab import OWN, ROOT


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the environment of examples/own_env.py is, for this user without a token."""
    with EnvServer(f"{OWN}:make", sys.executable, str(tmp_path_factory.mktemp("at") / "socket"), 4) as server:
        yield server.at


def test_the_documents_session_is_what_is_said(at: str) -> None:
    document = (ROOT / "docs" / "protocol.md").read_text()
    (session,) = re.findall(r"^```\n(> .*?)^```$", document, re.DOTALL | re.MULTILINE)
    lines = session.splitlines()
    with address.connect(at, 60.0) as connected, connected.makefile("rwb") as stream:
        for said, answered in zip(lines[::2], lines[1::2], strict=True):
            assert (said[:2], answered[:2]) == ("> ", "< ")
            body = said[2:].encode()
            stream.write(len(body).to_bytes(4, "big") + body)
            stream.flush()
            reply = stream.read(int.from_bytes(stream.read(4), "big"))
            assert json.loads(reply) == json.loads(answered[2:])
    assert len(lines) == 16


@pytest.mark.parametrize(("is_known", "most"), [(False, 1 << 12), (True, 1 << 20)], ids=["first", "later"])
def test_bytes_that_are_no_call_end_their_session_only(at: str, is_known: bool, most: int) -> None:
    for data, said in (
        (b"GET / HTTP/1.1\r\n\r\n", f"a message must fit {most} bytes; got 1195725856"),
        ((most + 1).to_bytes(4, "big"), f"a message must fit {most} bytes; got {most + 1}"),
        ((2).to_bytes(4, "big") + b"[]", "a message must be an object; got list"),
        ((4).to_bytes(4, "big") + b'"\xff"?', "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte"),
        ((4000).to_bytes(4, "big") + b"[" * 4000, "maximum recursion depth exceeded while decoding"),
    ):
        connected = Connection(at)._socket if is_known else address.connect(at, 60.0)
        with connected, connected.makefile("rwb") as stream:
            stream.write(data)
            stream.flush()
            reply = wire.read(stream)
            assert reply is not None and str(reply["error"]).startswith(said), reply
            if not is_known:
                assert wire.read(stream) is None
    Connection(at).hang_up()


def test_calls_that_are_none_are_refused_in_one_line(at: str) -> None:
    for call, args, said in (
        ("hello", {"protocol": 2}, "protocol must be 1; got 2"),
        ("fly", {}, "call must be one of hello, reset, step, expert, close; got fly"),
        ("reset", {}, "TypeError: ServedEnv.reset() missing 1 required positional argument: 'seed'"),
        ("answer", {"message": {}}, "call must be one of hello, reset, step, expert, close; got answer"),
    ):
        connection = Connection(at)
        with pytest.raises(SessionLost) as error:
            connection.call(Closed, call, 60.0, **args)
        assert str(error.value) == said


class Fake:
    """A server that answers every call with the same bytes, then hangs up."""

    def __init__(self, answer: bytes) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._serve, args=(answer,), daemon=True).start()

    def _serve(self, answer: bytes) -> None:
        connected, _ = self.listening.accept()
        with self.listening, connected:
            connected.recv(1 << 16)
            connected.sendall(answer)


def framed(**message: object) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body


HELLO = {"protocol": 1, "name": "fake", "max_steps": 3, "sessions": 1, "deadline_s": 1.0}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "the server at AT must answer hello; it hung up"),
        (framed(id=1, result=HELLO)[:-1], "the server at AT must answer hello; it hung up"),
        (b"HTTP/1.1 400 Bad Request", "the server at AT must speak the protocol; got a message must fit"),
        (framed(id=1, result=5), "the reply to hello is wrong in int in place of {"),
        (
            framed(id=1, result=HELLO | {"max_steps": 0}),
            "wrong in max_steps: input should be greater than or equal to 1",
        ),
        (
            framed(id=1, result=HELLO | {"name": "a@b"}),
            "wrong in name: string should match pattern '^[^@]+$', not 'a@b'",
        ),
        (
            framed(id=2, result=HELLO),
            "the server at AT must speak the protocol; got a reply must have the id of its call",
        ),
    ],
    ids=["nothing", "torn", "http", "no object", "out of bounds", "a name with @", "another call"],
)
def test_a_server_that_speaks_otherwise_is_told_in_one_line(answer: bytes, said: str) -> None:
    fake = Fake(answer)
    with pytest.raises(EnvError) as error:
        envs.make(f"another@{fake.at}")  # a name of its own: greetings are kept by name and address
    assert said.replace("AT", fake.at) in str(error.value) and "\n" not in str(error.value)


def test_a_reply_that_drips_in_does_not_outlast_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection.__new__(Connection)
    connection.at, connection._numbers, connection._socket = "here", itertools.count(1), ours
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.05):
            try:
                theirs.send(b"\0")
            except OSError:
                return

    theirs.send((100).to_bytes(4, "big"))
    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(SessionLost, match=r"reset must be answered within 0\.5 s; got nothing"):
        connection.call(ResetReply, "reset", 0.5, seed=1)
    assert connection not in Connection.live
    stop.set()
    thread.join()
    theirs.close()
