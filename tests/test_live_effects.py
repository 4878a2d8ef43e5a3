"""What a live run sends: nothing unasked, whatever a page is made of; with a yes or a rule what it is for."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from effects import EFFECTS, POST, act, button, open_at, pages_of, tried
from recorder import recording

from agentq.envs.browser.env import BrowserEnv
from agentq.envs.browser.gate import Head
from agentq.envs.browser.guard import FinalStep, Guard
from agentq.envs.browser.outgoing import OutgoingRequest, tell, visible
from agentq.envs.browser.pool import BrowserPool
from agentq.envs.browser.rules import read_rules
from agentq.errors import ConfigError, EnvError
from agentq.types import Command, EnvAction
from tests.browser_lab import click, named

QUICK = list(EFFECTS)[::6]
# A body too long to be shown is sent by rule only; where the focus was is no part of a page that is come back to.
ASKED = [name for name in EFFECTS if name not in ("fetch of a long body", "form, key Enter")]


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.rest]) for name in EFFECTS]
)
def test_no_action_sends_anything_unasked(browser: BrowserPool, name: str) -> None:
    sent, held = tried(EFFECTS[name], browser)
    assert sent == [] and held > 0


@pytest.mark.browser
@pytest.mark.rest
@pytest.mark.parametrize("name", EFFECTS)
def test_the_same_action_does_send_where_nothing_is_held(browser: BrowserPool, name: str) -> None:
    """The control: each effect is one, so the test above can fail."""
    effect = EFFECTS[name]
    with recording(pages_of(effect)) as site:
        env = open_at(site.url, browser, None)
        act(env, effect)
        until(lambda: bool(site.sent))
        env.close()


@pytest.mark.browser
@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if i % 20 == 0 else [pytest.mark.rest]) for i, name in enumerate(ASKED)]
)
def test_an_answer_is_for_one_request(browser: BrowserPool, name: str, says: bool) -> None:
    effect, asked = EFFECTS[name], Asked(lambda step: says)
    with recording(pages_of(effect)) as site:
        env = open_at(site.url, browser, guard := Guard())
        act(env, effect)
        if (held := env.held) is None:
            env.close()
            pytest.skip("this is never asked about")
        env.carry_out(held, asked)
        time.sleep(effect.late_s)
        env.close()
    assert len(asked.steps) == (1 if says else effect.refused) and len(site.sent) == says
    assert (guard.counts["sent"], guard.counts["allowed_by_person"], len(guard.sent)) == (says, says, says)


class Asked:
    """Answers `says(step)`; `steps` is what was asked."""

    def __init__(self, says: Callable[[FinalStep], bool]) -> None:
        self.says = says
        self.steps: list[FinalStep] = []

    def __call__(self, step: FinalStep) -> bool:
        self.steps.append(step)
        return self.says(step)


def until(holds: Callable[[], bool]) -> None:
    """Wait for it, ten seconds at most."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def press(env: BrowserEnv, asked: Asked) -> None:
    """Press Go, which is held, and carry it out."""
    assert click(env, "Go").error_kind == "held" and env.held is not None
    env.carry_out(env.held, asked)


@pytest.mark.browser
def test_a_request_that_comes_late_this_time_is_asked_about_too(browser: BrowserPool) -> None:
    """In search it came while the page settled, and the person has agreed to be asked."""
    with recording({"/": button(POST)}) as site:
        env = open_at(site.url, browser, Guard())
        click(env, "Go")
        assert env.held is not None
        site.pages["/"] = button(f"setTimeout(() => {POST}, 1500)")
        env.carry_out(env.held, asked := Asked(lambda step: True))
        env.close()
        assert len(asked.steps) == 1 and site.sent == ["POST /x a=1"]


@pytest.mark.browser
def test_each_request_of_an_act_is_a_question_of_its_own(browser: BrowserPool) -> None:
    two = "fetch('/one', {method: 'POST', body: '1'}); fetch('/two', {method: 'DELETE'})"
    asked = Asked(lambda step: step.sends.method == "DELETE")
    with recording({"/": button(two)}) as site:
        env = open_at(site.url, browser, guard := Guard())
        press(env, asked)
        env.close()
        assert site.sent == ["DELETE /two"]
    assert sorted(step.sends.method for step in asked.steps) == ["DELETE", "POST"]
    assert (guard.counts["allowed_by_person"], guard.counts["sent"]) == (1, 1)


@pytest.mark.browser
def test_the_gate_closes_behind_a_yes(browser: BrowserPool) -> None:
    again = "<form method=post action=/again></form><script>{}</script>"
    now = again.format("document.forms[0].submit()")
    later = again.format("setTimeout(() => document.forms[0].submit(), 700)")
    for result in (now, later, f"<script>{POST}</script>"):
        asked = Asked(lambda step: True)
        with recording({"/": "<form method=post action=/order><button>Go</button></form>", "/order": result}) as site:
            env = open_at(site.url, browser, guard := Guard())
            press(env, asked)
            time.sleep(1.5)
            env.close()
            assert site.sent == ["POST /order"] and len(asked.steps) == 1
        assert guard.counts["held"] >= 2  # the step itself in search, and what the result page tried


@pytest.mark.browser
def test_a_request_that_its_page_gives_up_is_not_sent_with_a_late_yes(browser: BrowserPool) -> None:
    script = "fetch('/x', {method: 'POST', signal: AbortSignal.timeout(300)}).catch(() => 0)"

    def slowly(step: FinalStep) -> bool:
        time.sleep(1.5)
        return True

    with recording({"/": button(script)}) as site:
        env = open_at(site.url, browser, guard := Guard())
        press(env, Asked(slowly))
        env.close()
        assert site.sent == [] and guard.counts["sent"] == 0


@pytest.mark.browser
def test_a_person_sees_all_that_is_sent_as_it_is_sent(browser: BrowserPool) -> None:
    page = (
        "<form method=post action=/order><input type=hidden name=amount value=9999>"
        "<input type=hidden name=token id=t><input aria-label=Note name=note><button>Go</button></form>"
        "<script>t.value = Math.random()</script>"
    )
    asked = Asked(lambda step: True)
    with recording({"/": page}) as site:
        env = open_at(site.url, browser, Guard())
        env.step(EnvAction(Command.TYPE, named(env, "Note"), "a b"))
        press(env, asked)
        env.close()
        body = site.sent[0].removeprefix("POST /order ")
    (step,) = asked.steps
    token = dict(step.sends.fields)["token"]
    assert step.sends.fields == (("amount", "9999"), ("token", token), ("note", "a b"))
    assert body == f"amount=9999&token={token}&note=a+b"  # the very request that was shown, though it changes each time
    assert step.lines()[-4:-1] == ["  amount = 9999", f"  token = {token}", "  note = a b"]
    assert step.lines()[-1].startswith(f"POST {site.url}/order , {len(body)} bytes , SHA-256 ")


@pytest.mark.browser
def test_a_site_that_posts_for_searching_is_searched_by_rule(browser: BrowserPool) -> None:
    page = (
        "<h1>Search</h1><button onclick=\"fetch('/find', {method: 'POST', body: 'q'}).then((r) => r.text())"
        '.then((t) => document.body.append(t))">Find</button>' + button(POST)
    )
    with recording({"/": page, "/find": "three tables"}) as site:
        env = open_at(site.url, browser, guard := Guard(allow=[f"POST {site.url}/find"]))
        before = env.snapshot()
        found = click(env, "Find")
        assert found.error_kind is None and "three tables" in found.observation.text
        assert click(env, "Go").error_kind == "held"
        env.restore(before)
        assert env.restored == "approximate"
        env.close()
        assert site.sent == ["POST /find q"]
    counts = {"allowed_by_rule": 1, "sent": 1, "held": 1, "allowed_by_person": 0}
    assert guard.counts == counts and guard.tried == {f"POST {site.url}/x": 1}


@pytest.mark.browser
def test_what_a_rule_blocks_is_neither_sent_nor_asked(browser: BrowserPool) -> None:
    with recording({"/": button(POST)}) as site:
        env = open_at(site.url, browser, guard := Guard(block=[f"POST {site.url}/*"]))
        assert click(env, "Go").error_kind is None
        env.close()
        assert site.sent == [] and guard.counts["held"] == 1


@pytest.mark.browser
def test_what_a_page_sends_by_itself_holds_no_step(browser: BrowserPool) -> None:
    polls = f"<script>setInterval(() => {POST}, 60)</script>" + button("document.title = 'x'")
    with recording({"/": polls}) as site:
        env = open_at(site.url, browser, guard := Guard())
        time.sleep(0.3)
        for _ in range(3):
            assert click(env, "Go").error_kind is None
        env.close()
        assert site.sent == [] and guard.counts["held"] > 3


@pytest.mark.browser
def test_messages_on_a_web_socket_are_sent_by_rule_only(browser: BrowserPool) -> None:
    page = (
        "<p id=o></p><script>var w = new WebSocket('/ws'); w.onopen = () => { w.send('hello'); o.textContent = 'open' }"
        "</script>" + button("w.send('order')")
    )
    with recording({"/": page}) as site:
        env = open_at(site.url, browser, guard := Guard(allow=[f"WEBSOCKET {site.url}/ws"]))
        until(lambda: site.sent == ["WEBSOCKET /ws hello"])
        click(env, "Go")
        until(lambda: len(site.sent) == 2)
        env.close()
        assert guard.counts["sent"] == 2
    with recording({"/": page}) as site:
        env = open_at(site.url, browser, guard := Guard())
        assert click(env, "Go").error_kind == "held" and env.held is not None and env.held.held is not None
        assert env.held.held.sends.fields == (("", "order"),)
        env.close()
        assert site.sent == [] and guard.counts["held"] == 2


@pytest.mark.browser
def test_a_web_socket_is_closed_with_a_code_and_without_a_reason(browser: BrowserPool) -> None:
    page = "<script>var w = new WebSocket('/ws')</script>" + button("w.close(4001, 'delete account 7')")
    with recording({"/": page}) as site:
        env = open_at(site.url, browser, guard := Guard())
        click(env, "Go")
        until(lambda: bool(site.closes))
        env.close()
        assert site.closes == [b"\x0f\xa1"] and site.sent == [] and guard.counts["sent"] == 0


@pytest.mark.browser
def test_what_covers_a_frame_does_not_pass_under_the_name_of_what_is_in_it(browser: BrowserPool) -> None:
    """A GET of an element called `Next` is not held; the cover would send it under this name."""
    cover = "<div style='position: absolute; inset: 0' onclick=\"location = '/delete?id=2'\">Delete order</div>"
    page = (
        f"<div style='position: relative'><iframe src=/frame style='width: 600px; height: 200px'></iframe>{cover}</div>"
    )
    with recording({"/": page, "/frame": "<button>Next</button>"}) as site:
        env = open_at(site.url, browser, Guard())
        assert click(env, "Next").error_kind == "covered"
        assert click(env, "Delete order").error_kind == "held"
        env.close()
        assert "/delete?id=2" not in site.gets


LINKS = {"Delete": True, "Cancel my booking": True, "Menu": False, "Order by price": False}


@pytest.mark.browser
@pytest.mark.parametrize("name", LINKS)
def test_a_name_adds_to_what_is_held(browser: BrowserPool, name: str) -> None:
    """A link that is called so waits with its address; the same word on a button that sends nothing holds nothing."""
    page = f"<a href='/other?id=5'>{name}</a>" + button("document.title = 'x'", name)
    asked = Asked(lambda step: True)
    with recording({"/": page}) as site:
        env = open_at(site.url, browser, guard := Guard())
        assert env.step(EnvAction(Command.CLICK, 2)).error_kind is None
        result = env.step(EnvAction(Command.CLICK, 1))
        assert (result.error_kind == "held") is LINKS[name] is ("/other?id=5" not in site.gets)
        if env.held is not None:
            env.carry_out(env.held, asked)
            assert [str(step.sends) for step in asked.steps] == [f"GET {site.url}/other?id=5"]
            assert site.gets.count("/other?id=5") == 1 and guard.counts["sent"] == 1
        assert env.view.url == f"{site.url}/other?id=5"
        env.close()


@pytest.mark.browser
def test_get_forms_are_not_held_for_what_they_are_called(browser: BrowserPool) -> None:
    with recording({"/": "<form action=/rows><input name=city aria-label=City><button>Apply</button></form>"}) as site:
        env = open_at(site.url, browser, Guard())
        assert click(env, "Apply").error_kind is None and env.view.url == f"{site.url}/rows?city="
        env.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of 127.0.0.1 that signs itself, in one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from ipaddress import ip_address

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    file = tmp_path_factory.mktemp("certificate") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return file


HTTPS = ("form", "fetch PUT", "web socket", "shared worker", "worker of a blob", "beacon")


@pytest.mark.browser
def test_the_same_holds_for_https(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with BrowserPool() as pool:
        for name in HTTPS:
            effect = EFFECTS[name]
            with recording(pages_of(effect), certificate) as site:
                env = open_at(site.url, pool, guard := Guard())
                act(env, effect)
                time.sleep(effect.late_s)
                if env.held is not None and name == "form":
                    env.carry_out(env.held, asked := Asked(lambda step: True))
                    assert site.sent == ["POST /x amount=9999"] and len(asked.steps) == 1
                    site.sent.clear()
                env.close()
                assert site.sent == [] and guard.counts["held"] > 0, name


@pytest.mark.browser
def test_a_site_whose_certificate_is_not_trusted_is_not_opened(certificate: Path, browser: BrowserPool) -> None:
    with recording({"/": "<h1>start</h1>"}, certificate) as site:
        with pytest.raises(
            EnvError, match="the first page must load; got the certificate of the site is not trusted: self"
        ):
            open_at(site.url, browser, Guard())
        assert site.gets == []


def test_what_is_shown_has_nothing_that_a_terminal_obeys_or_that_cannot_be_seen() -> None:
    assert visible("a\x1b[2K\rb\n\u202ec\u200b\u3164\\") == r"a\u001b[2K\u000db\n\u202ec\u200b\u3164" + "\\\\"
    assert visible("Zoë 東京 9,99 €") == "Zoë 東京 9,99 €"
    request = OutgoingRequest.read(tell("POST", "https://a.test/x?\u202e", "text/plain", b"x\x1b[2K\xff"))
    assert request.lines()[0] == r"  x\u001b[2K\\xff" and str(request) == r"POST https://a.test/x?\u202e"


FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=b"
BODIES = [
    (FORM, b"a=1&b=x+y%20z&b=", [("a", "1"), ("b", "x y z"), ("b", "")]),
    (FORM, b"=1", [("", "=1")]),  # not wholly a form: as it is
    ("application/json", b'{"amount": 9999}', [("", '{"amount": 9999}')]),
    (
        PARTS,
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        b'--b\r\nContent-Disposition: form-data; name="f"; filename="n.txt"\r\nContent-Type: text/plain\r\n'
        b"\r\nhi\r\n--b--\r\n",
        [("a", "1"), ("f", "file n.txt , text/plain : hi")],
    ),
    (PARTS, b"amount=9999", [("", "amount=9999")]),
    ("", b"", []),
]


@pytest.mark.parametrize(("kind", "body", "fields"), BODIES)
def test_every_field_of_a_body_is_told(kind: str, body: bytes, fields: list[tuple[str, str]]) -> None:
    assert tell("POST", "https://a.test/", kind, body)["fields"] == fields


def test_a_method_in_a_header_counts_as_the_method() -> None:
    head = Head.read(b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method-Override: delete\r\n\r\n", "https://a.test")
    assert (head.method, head.url, head.safe) == ("DELETE", "https://a.test/a?b", False)
    for disguised, method in (
        (b"DELETE / HTTP/1.1\r\nX-HTTP-Method-Override: GET", "DELETE"),
        (b"GET / HTTP/1.1\r\nX-HTTP-Method-Override: GET\r\nX-HTTP-Method: DELETE", "DELETE"),
        (b"GET / HTTP/1.1\r\nX-Method-Override: PUT\r\nX-Method-Override: GET", "PUT"),
        (b"POST / HTTP/1.1\r\nX-Method-Override: PUT\r\nX-HTTP-Method: DELETE", "DELETE, PUT"),
    ):
        head = Head.read(disguised + b"\r\n\r\n", "https://a.test")
        assert (head.method, head.safe) == (method, False)
    for no_request in (b"GET / HTTP/2\r\n\r\n", b"POST http://b.test/ HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
        with pytest.raises(ValueError):
            Head.read(no_request, "https://a.test")


ALLOWED = ["https://a.test", "https://b.test:8443"]


def test_a_rule_is_about_one_method_and_one_path_or_all_below() -> None:
    exact, below = read_rules(
        ["POST https://a.test/search", "PUT https://b.test:8443/api/*"], ALLOWED, "--allow-request"
    )
    assert exact.matches("POST", "https://a.test/search?q=1") and below.matches("PUT", "https://b.test:8443/api/v1/x")
    for method, url in (
        ("PUT", "https://a.test/search"),
        ("POST", "https://a.test/search/more"),
        ("POST", "http://a.test/search"),
        ("POST", "https://b.test:8443/search"),
    ):
        assert not exact.matches(method, url), (method, url)
    assert not below.matches("PUT", "https://b.test:8443/api/..%2forder")
    assert not below.matches("PUT", "https://b.test:8443/order")
    (scoped,) = read_rules([text := "POST https://a.test/@scope/pkg"], ALLOWED, "--allow-request")
    assert str(scoped) == text and scoped.matches("POST", "https://a.test/@scope/pkg")
    assert not scoped.matches("POST", "https://a.test@b.test/@scope/pkg")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("https://a.test/search", "must be METHOD ORIGIN/PATH such as"),
        ("POST a.test/search", "must be METHOD ORIGIN/PATH such as"),
        ("POST https://a.test", "must be METHOD ORIGIN/PATH such as"),
        ("POST https://a.test/*/x", "must be METHOD ORIGIN/PATH such as"),
        ("POST https://a.test/x?q=1", "must be METHOD ORIGIN/PATH such as"),
        ("post https://a.test/x", "must be METHOD ORIGIN/PATH such as"),
        ("GET https://a.test/x", "must name a method that is held"),
        ("POST https://c.test/x", "add --allow https://c.test"),
    ],
)
def test_a_rule_that_is_none_is_refused_before_anything_begins(rule: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^--allow-request ") as error:
        read_rules([rule], ALLOWED, "--allow-request")
    assert message in str(error.value) and f"got '{rule}'" in str(error.value)
