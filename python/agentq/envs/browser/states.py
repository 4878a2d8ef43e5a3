"""What a BrowserEnv keeps and records: states, how a step went, how a state was reached again. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentq.envs.browser.guard import FinalStep
from agentq.envs.tab import View
from agentq.types import EnvAction, Observation, Task


@dataclass(frozen=True, slots=True)
class StepLog:
    """What a step cost and how the page settled: `rule` is Tab.settle's, "" where no page was asked.

    `lost` says why workers were lost on the way; each was replaced, and the step tried again where that is safe.
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
    """One way back to a state. `tried`: cheaper ways that did not lead there.

    exact: the page and the server as they were. approximate: the page; of the server nothing is known. failed: neither.
    """

    way: str
    outcome: str
    ms: float
    tried: tuple[str, ...] = ()


@dataclass(slots=True)
class Lineage:
    """Sessions that share one server session: how many requests of theirs may have changed it."""

    unsafe: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """How the present document was asked for: by GET, or by sending the form `post` when the server knew `before`.

    `html`: the document as it came, if it has no script.
    """

    url: str = ""
    post: str | None = None
    before: Any = None
    html: str = ""


@dataclass(frozen=True, slots=True)
class BrowserSnapshot:
    """A state. `memory` is the server's, `storage` the context's, `unsafe` the lineage's count then.

    `taken` is the action that led here, `repeats` how many times in a row it has left the page as it was. `held` is the
    step that waits for the user's yes and ended the episode; `committed`: on the way here there was one that got it.
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
    committed: bool = False
    parent: BrowserSnapshot | None = field(default=None, repr=False)

    @property
    def print(self) -> str:
        """The fingerprint of the page alone, without an error or a reply below it."""
        return page_print(self.view)

    def path(self) -> list[BrowserSnapshot]:
        """The states from the first page to this one."""
        states, state = [], self
        while state.parent is not None:
            states.append(state)
            state = state.parent
        return [state, *reversed(states)]


def page_print(view: View) -> str:
    """The fingerprint of what a view shows."""
    return Observation(view.text(), view.url).fingerprint
