"""Allow-lists: which addresses are the same origin, and what is none."""

from __future__ import annotations

import pytest

from agentq.envs.browser.origins import Origin, is_allowed, origin_of, read_origins
from agentq.errors import ConfigError


def test_origins_are_compared_exactly() -> None:
    allowed = read_origins(["https://shop.test", "http://127.0.0.1:8000", "http://[::1]:80/"])
    assert sorted(map(str, allowed)) == ["http://127.0.0.1:8000", "http://[::1]", "https://shop.test"]
    yes = [
        "https://shop.test/a?b#c",
        "HTTPS://SHOP.TEST:443/",
        "https://shop.test./",
        "http://127.0.0.1:8000",
        "http://[::1]/",
    ]
    no = [
        "http://shop.test/",
        "https://shop.test:8443/",
        "https://www.shop.test/",
        "https://shop.test.evil.test/",
        "https://evil.test/https://shop.test/",
        "https://shop.test@evil.test/",
        "https://evil.test\\@shop.test/",
        "https://evil.test @shop.test/",
        "http://127.0.0.1/",
        "http://127.0.0.2:8000/",
        "data:text/html,x",
        "blob:https://shop.test/1-2",
        "javascript:location='https://shop.test/'",
        "file:///etc/passwd",
        "filesystem:https://shop.test/x",
        "view-source:https://shop.test/",
        "ftp://shop.test/",
        "ws://127.0.0.1:8000/",
        "about:srcdoc#x",
        "chrome-error://chromewebdata/",
        "https://shop.test:99999/",
        "https://[shop.test/",
        "//shop.test/",
        "",
    ]
    assert [url for url in yes if not is_allowed(url, allowed)] == []
    named = read_origins(["https://bücher.test", "https://例え.テスト:8443"])
    assert sorted(map(str, named)) == ["https://xn--bcher-kva.test", "https://xn--r8jz45g.xn--zckzah:8443"]
    for url in ("https://xn--bcher-kva.test/", "https://BÜCHER.test./ä", "https://XN--BCHER-KVA.test"):
        assert is_allowed(url, named)
    assert not is_allowed("https://bucher.test/", named)
    assert [url for url in no if is_allowed(url, allowed)] == []
    assert is_allowed("about:blank", allowed) and origin_of("https://shop.test/") == Origin("https", "shop.test", 443)


def test_an_at_sign_is_refused_before_the_host_and_part_of_a_path_behind_it() -> None:
    """A browser reads slashes and backslashes alike, skips any number of them, and ends the authority at / ? or #."""
    good, port = Origin("http", "good", 80), Origin("http", "good", 8080)
    same = [
        "http://good/@user",
        "http://good/@scope/pkg?a@b",
        "http://good/a#/@me",
        "http://good/#@evil/",
        "http://good?@evil/",
        "http://good#@evil/",
        "http://good/x@evil.test",
        "http://good//@evil",
        "HTTP://GOOD./@",
    ]
    assert [url for url in same if origin_of(url) != good] == []
    assert origin_of("http://good:8080/@user") == port
    none = [
        "http://good@evil/",
        "http://good@evil",
        "http://good:80@evil/",
        "http://good:pass@evil/@user",
        "http://@good/",
        "http://good@/",
        "http://a@b@good/",
        "http://evil@good/",
        "http://good\\@evil",
        "http://evil\\@good/",
        "http:\\\\evil@good/",
        "http://good/\\@evil",
        "http:/good@evil",
        "http:good@evil",
        "http:///good@evil",
        "http:////good/@evil",
        "//good@evil",
        "//good/@user",
        "http://good\t@evil/",
        "http://good /@evil",
        "ht\ntp://good@evil/",
        "http://good\uff20evil/",
        "http://good\u2100evil/",
        "http://good\uff0f@evil/",
        "http://[::1]@evil/",
        "http://[::1@evil]/",
        "javascript://good/@user",
    ]
    assert [url for url in none if origin_of(url) is not None] == []
    assert origin_of("http://good%40evil/") != good and origin_of("http://good%2f@evil/") is None
    assert origin_of("http://good:0/") == Origin("http", "good", 0)  # and not of port 80
    for url in ("http://good/@user", "http://[::1]/@a"):
        assert read_origins([url]) == {origin_of(url)}


@pytest.mark.parametrize("host", ["straße", "λόγος", "a\u200db", "ü％", "ü" * 80, "ü.", "℀"])
def test_a_host_that_converts_in_two_ways_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"in another script may have to be written in punycode \(xn--\.\.\.\)$"):
        read_origins([f"https://{host}.test"])
    assert origin_of(f"https://{host}.test") is None


@pytest.mark.parametrize(
    "wrong", ["*", "https://*.shop.test", "shop.test", "file:///", "https://", "https://a@shop.test"]
)
def test_an_allow_list_holds_exact_origins_only(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"an allowed origin must be an exact one such as https://shop\.test; got"):
        read_origins([wrong])
