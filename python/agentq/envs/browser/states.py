"""What a BrowserEnv keeps and records: states, the log of a step, the way back to a state. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentq.envs.browser.guard import FinalStep
from agentq.envs.browser.whole import WholeView
from agentq.envs.page import first_difference
from agentq.envs.tab import View
from agentq.types import Command, EnvAction, Observation, Task


@dataclass(frozen=True, slots=True)
class StepLog:
    """Time that a step took and how the page settled: `rule` is that of `Tab.settle`, "" if no page was involved.

    `lost`: why workers were lost during the step. Each was replaced, and the step was repeated where that is safe.
    """

    action: str
    ms: float
    rule: str = ""
    settle_ms: float = 0.0
    cut_lines: int = 0
    blocked: tuple[str, ...] = ()
    dialogs: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Return:
    """One way back to a state. `tried`: cheaper ways that failed.

    exact: page and server are as they were. approximate: the page is; the server may differ. failed: neither.
    """

    way: str
    outcome: str
    ms: float
    tried: tuple[str, ...] = ()


@dataclass(slots=True)
class Lineage:
    """Sessions that share one server session. `unsafe`: how many of their requests may have changed it."""

    unsafe: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """How the present document was requested: by GET, or by the form `post` while the server's memory was `before`.

    `html`: the document as it came, if it has no script.
    """

    url: str = ""
    post: str | None = None
    before: Any = None
    html: str = ""


@dataclass(frozen=True, slots=True)
class BrowserSnapshot:
    """A state. `memory` is the server's, `storage` the context's, `unsafe` the lineage's count at that moment.

    `taken`: the action that led here. `repeats`: how many times in a row it has left the page as it was. `held`: the
    step that ended the episode since it needs the user's yes. `committed`: number of steps on the way that got the
    user's yes.
    """

    env: str
    task: Task
    view: View
    steps: int
    over: bool
    observation: Observation
    document: Document
    memory: Any
    lineage: Lineage
    unsafe: int
    storage: Any = None
    action: EnvAction | None = None
    taken: str = ""
    repeats: int = 0
    held: FinalStep | None = None
    committed: int = 0
    parent: BrowserSnapshot | None = field(default=None, repr=False)

    @property
    def print(self) -> str:
        """The fingerprint of the page alone, without the error or reply that an observation adds."""
        return page_print(self.view)

    def path(self) -> list[BrowserSnapshot]:
        """The states from the first page to this one."""
        states, state = [], self
        while state.parent is not None:
            states.append(state)
            state = state.parent
        return [state, *reversed(states)]

    def repeats_after(self, action: EnvAction | None, view: View) -> int:
        """How many times in a row, this one included, `action` has left the page as it was, and what is shown of it.

        WAIT asks for nothing else, so it does not count.
        """
        waited = action is None or action.command is Command.WAIT
        if waited or page_print(view) != self.print or _window(view) != _window(self.view):
            return 0
        return 1 + (self.repeats if str(action) == self.taken else 0)

    def document_after(self, reply: dict[str, Any]) -> Document:
        """How the document that a reply shows was requested."""
        if reply["status"]:
            before = self.memory if reply["post"] is not None else None
            return Document(reply["url"], reply["post"], before, reply["html"])
        return self.document if self.document.post is not None else replace(self.document, url=reply["url"])


def page_print(view: View) -> str:
    """The fingerprint of what a view shows."""
    return Observation(view.text(), view.url).fingerprint


def _window(view: View) -> Sequence[int]:
    """Where the window lies on a page that is shown whole."""
    return [line.at for line in view.lines] if isinstance(view, WholeView) else ()


def base_of(state: BrowserSnapshot) -> BrowserSnapshot | None:
    """The first state after the last allowed step with known storage that a GET reaches; not `state` itself."""
    since = [at for at in state.path()[:-1] if at.committed == state.committed]
    return next((at for at in since if at.storage is not None and at.document.post is None), None)


def difference(wanted: View, got: View) -> str:
    """The first line in which two pages differ, for the log."""
    return first_difference(f"{wanted.url}\n{wanted.text()}", f"{got.url}\n{got.text()}")
