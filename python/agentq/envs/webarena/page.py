"""A page of a built-in site without a browser, for the evaluators: HTML, and the commonest locators by lxml.

Read are `document.querySelector(CSS).outerText`, `[...document.querySelectorAll(CSS)].map(e => e.outerText).join(SEP)`
and `document.body.outerText`, where CSS is made of tags, ids, classes, attributes and descendants. innerText and
textContent are as good. A text has a line per block, single-spaced.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lxml import html as lxml_html
from lxml.html import HtmlElement

from agentq.envs.site import Response, Site, SiteSession, read_request
from agentq.errors import ConfigError

_QUOTED = r"(?P<quote>['\"`])(?P<css>.+?)(?P=quote)"
_READ = r"\??\.(?:outerText|innerText|textContent)"
_ONE = re.compile(rf"document\.(?:querySelector\({_QUOTED}\)|(?P<body>body)){_READ};?")
_ALL = re.compile(
    rf"\[\.\.\.document\.querySelectorAll\({_QUOTED}\)\]"
    rf"\.map\(\(?(?P<name>\w+)\)? => (?P=name){_READ}\)\.join\((?P<other>['\"`])(?P<between>.*?)(?P=other)\);?"
)
_COMPOUND = re.compile(
    r"(?P<tag>[a-zA-Z]\w*|\*)?(?P<rest>(?:#[\w-]+|\.[\w-]+|\[[\w-]+(?:=(?:\"[^\"]*\"|'[^']*'|[\w-]+))?\])*)"
)
_SIMPLE = re.compile(r"#([\w-]+)|\.([\w-]+)|\[([\w-]+)(?:=[\"']?([^\"'\]]*)[\"']?)?\]")
_SPACE = re.compile(r"""\s+(?=(?:[^"']|"[^"]*"|'[^']*')*$)""")
_BLOCKS = frozenset(
    {"p", "li", "ul", "ol", "div", "main", "nav", "section", "form", "header", "footer", "table", "tr", "option"}
    | {"h1", "h2", "h3", "h4", "body", "br"}
)
_UNSEEN = frozenset({"script", "style", "template", "head", "title"})


class Locator(NamedTuple):
    """What a locator selects, as XPath, and how the texts of several elements are joined; None: the first alone."""

    path: str
    between: str | None = None


class SitePage:
    """See `evaluators.GradedPage`. `begin`: what the site's urls begin with, such as `__SHOP__`; `session` stays."""

    def __init__(self, site: Site, session: SiteSession, begin: str, path: str) -> None:
        self._site, self._session, self._begin = site, dict(session), begin
        self.url = begin + path

    def goto(self, url: str) -> None:
        """Open another page of the site."""
        self.url = url
        self.content()

    def content(self) -> str:
        """The HTML, redirects followed."""
        while True:
            response: Response = self._site.handle(
                read_request("GET", self.url.removeprefix(self._begin) or "/", {}), self._session
            )
            if response.location is None:
                return response.html
            self.url = self._begin + response.location

    def evaluate(self, expression: str) -> str:
        """The text that a locator selects. Raises LookupError if it selects nothing, ConfigError if it is not read."""
        path, between = locator_of(expression.removeprefix("() => "))
        found = lxml_html.document_fromstring(self.content()).xpath(path)
        if between is not None:
            return between.join(map(_text, found))
        if not found:
            raise LookupError(path)
        return _text(found[0])


def locator_of(expression: str) -> Locator:
    """A locator. Raises ConfigError for one that is not of the forms above."""
    expression = expression.strip()
    if found := _ONE.fullmatch(expression):
        return Locator("//body" if found["body"] else _xpath(found["css"]))
    if found := _ALL.fullmatch(expression):
        return Locator(_xpath(found["css"]), found["between"].replace("\\n", "\n"))
    raise ConfigError(f"a locator must be one that can be evaluated without a browser; got '{expression:.100}'")


def _xpath(css: str) -> str:
    """The XPath of a selector."""
    path = ""
    for part in _SPACE.split(css.strip()):
        found = _COMPOUND.fullmatch(part)
        if not part or found is None:
            raise ConfigError(f"a selector must have tags, ids, classes and attributes; got '{css:.80}'")
        path += f"//{found['tag'] or '*'}"
        for name, kind, key, value in _SIMPLE.findall(found["rest"]):
            if kind:
                path += f"[contains(concat(' ', normalize-space(@class), ' '), ' {kind} ')]"
            elif name:
                path += f"[@id='{name}']"
            else:
                path += f'[@{key}="{value}"]' if value else f"[@{key}]"
    return path


def _text(node: HtmlElement) -> str:
    """What a person sees of an element, a line per block."""
    pieces: list[str] = []
    _gather(node, pieces)
    lines = (" ".join(line.split()) for line in "".join(pieces).split("\n"))
    return "\n".join(filter(None, lines))


def _gather(node: HtmlElement, pieces: list[str]) -> None:
    end = "\n" if node.tag in _BLOCKS else ""
    pieces += [end, re.sub(r"\s+", " ", node.text or "")]
    for child in node:
        if isinstance(child.tag, str) and child.tag not in _UNSEEN and child.get("hidden") is None:
            _gather(child, pieces)
        pieces.append(re.sub(r"\s+", " ", child.tail or ""))
    pieces.append(end)
