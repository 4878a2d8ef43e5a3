"""The composite action's text: printing it and reading it back. Owns the grammar, nothing of prompts or pages.

    PLAN: ...            only at the first step
    THOUGHT: ...
    COMMANDS: TYPE [3] Blue Harbor Grill
    EXPLANATION: ...     optional
    STATUS: CONTINUE

One section a line. Only COMMANDS reaches the environment; the likelihood is over the whole text (arXiv:2408.07199,
section 3.1).
"""

from __future__ import annotations

import re

from agentq.types import ELEMENT_COMMANDS, TEXT_COMMANDS, Action, Command, EnvAction, Status

SECTIONS = ("PLAN", "THOUGHT", "COMMANDS", "EXPLANATION", "STATUS")
_SECTION = re.compile(rf"^[ \t]*({'|'.join(SECTIONS)})[ \t]*:[ \t]*", re.MULTILINE)
_COMMAND = re.compile(r"(ASK[ _]USER(?:[ _]HELP)?|[A-Z]+)(?:[ \t]+|(?=\[)|$)(.*)", re.DOTALL)
_ELEMENT = re.compile(r"\[?(\d{1,6})\]?(?:[ \t]+(.*))?$", re.DOTALL)
_DRAG = re.compile(r"TO[ \t]+\[?(\d{1,6})\]?|BY[ \t]+(-?\d{1,4})[ \t,]+(-?\d{1,4})", re.IGNORECASE)
_PRESS = re.compile(r"(\S+)(?:[ \t]+(\d{1,3}))?")
_NEEDS_TEXT = TEXT_COMMANDS - {Command.ASK_USER, Command.SCROLL}
MAX_TEXT_CHARS = 2000
KEYS = (
    *("Enter", "Tab", "Escape", "Space", "Backspace", "Delete", "Home", "End", "PageUp", "PageDown"),
    *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
    *("Shift+Tab", "Control+A", "Control+Home", "Control+End"),
)
MAX_PRESSES = 100


class _Unreadable(ValueError):
    """Why a text is no action; becomes `Action.parse_error`."""


def format_action(
    env_action: EnvAction,
    *,
    plan: str = "",
    thought: str = "",
    explanation: str = "",
    status: Status = Status.CONTINUE,
) -> str:
    """The text of a composite action; `parse_action` reads it back. Section texts must be one line each."""
    lines = [
        f"PLAN: {plan}" if plan else "",
        f"THOUGHT: {thought}" if thought else "",
        f"COMMANDS: {env_action}",
        f"EXPLANATION: {explanation}" if explanation else "",
        f"STATUS: {status}",
    ]
    return "\n".join(line for line in lines if line)


def parse_action(text: str) -> Action:
    """Read any text a model can emit. Never raises: what cannot be read has `env_action=None` and a `parse_error`."""
    sections: dict[str, str] = {}
    try:
        sections = _split(text)
        return Action(
            text=text,
            env_action=parse_env_action(sections["COMMANDS"]),
            thought=sections.get("THOUGHT", ""),
            plan=sections.get("PLAN", ""),
            explanation=sections.get("EXPLANATION", ""),
            status=_status(sections.get("STATUS")),
        )
    except _Unreadable as error:
        return Action(
            text=text,
            env_action=None,
            thought=sections.get("THOUGHT", ""),
            plan=sections.get("PLAN", ""),
            explanation=sections.get("EXPLANATION", ""),
            parse_error=str(error),
        )


def _split(text: str) -> dict[str, str]:
    found = list(_SECTION.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    sections: dict[str, str] = {}
    for match, end in zip(found, ends, strict=True):
        if match[1] in sections:
            raise _Unreadable(f"each section must occur once; got {match[1]} twice")
        sections[match[1]] = text[match.end() : end].strip()
    if "COMMANDS" not in sections:
        raise _Unreadable("a COMMANDS section must be present; got none")
    return sections


def parse_env_action(text: str) -> EnvAction:
    """Read one command. Brackets around an element id or a text may be absent; raises ValueError with one line."""
    text = text.strip()
    match = _COMMAND.match(text)
    if not match or not text:
        raise _Unreadable(f"COMMANDS must start with a command; got {text[:40]!r}")
    if "\n" in text:
        raise _Unreadable("COMMANDS must hold one command on one line; got several lines")
    name = "ASK_USER" if match[1].startswith("ASK") else match[1]
    if name not in Command.__members__:
        raise _Unreadable(f"the command must be one of {', '.join(Command)}; got {name[:40]!r}")
    command = Command(name)
    rest: str | None = match[2].strip()
    element = None
    if command in ELEMENT_COMMANDS:
        found = _ELEMENT.match(rest or "")
        if not found:
            raise _Unreadable(f"{command} must name an element id; got {(rest or '')[:40]!r}")
        element, rest = int(found[1]), (found[2] or "").strip()
    if command not in TEXT_COMMANDS:
        if rest:
            raise _Unreadable(f"{command} must have nothing after it; got {rest[:40]!r}")
        return EnvAction(command, element)
    return EnvAction(command, element, _text(command, rest or ""))


def _text(command: Command, text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    if command is Command.SCROLL:
        text = text.upper() or "DOWN"
        if text not in ("UP", "DOWN"):
            raise _Unreadable(f"SCROLL must be UP or DOWN; got {text[:40]!r}")
    elif command is Command.DRAG:
        target = read_drag(text)
        text = f"TO [{target}]" if isinstance(target, int) else f"BY {target[0]} {target[1]}"
    elif command is Command.PRESS:
        key, times = read_press(text)
        text = key if times == 1 else f"{key} {times}"
    if not text and command in _NEEDS_TEXT:
        raise _Unreadable(f"{command} must have a text; got none")
    if len(text) > MAX_TEXT_CHARS:
        raise _Unreadable(f"a text must have at most {MAX_TEXT_CHARS} characters; got {len(text)}")
    return text


def read_drag(text: str) -> int | tuple[int, int]:
    """Where a DRAG ends: an element's id, or pixels right and down. Raises ValueError with one line."""
    found = _DRAG.fullmatch(text)
    if not found:
        raise _Unreadable(f"DRAG must say TO [id] or BY right down, in pixels; got {text[:40]!r}")
    return int(found[1]) if found[1] else (int(found[2]), int(found[3]))


def read_press(text: str) -> tuple[str, int]:
    """The key of a PRESS, as KEYS has it, and how often it is pressed. Raises ValueError with one line."""
    found = _PRESS.fullmatch(text)
    key = next((each for each in KEYS if found and each.casefold() == found[1].casefold()), "")
    times = int(found[2] or 1) if found else 0
    if not key or not 1 <= times <= MAX_PRESSES:
        raise _Unreadable(f"PRESS must name one of {', '.join(KEYS)}, and 1 to {MAX_PRESSES} times; got {text[:40]!r}")
    return key, times


def _status(text: str | None) -> Status:
    if text is None:
        return Status.CONTINUE
    name = text.strip().upper().replace(" ", "_")
    if name not in Status.__members__:
        raise _Unreadable(f"STATUS must be one of {', '.join(Status)}; got {text[:40]!r}")
    return Status(name)


def same_action(a: EnvAction | None, b: EnvAction | None) -> bool:
    """Whether two proposals would do the same: equal but for white space. Unreadable ones are all the same."""
    return action_key(a) == action_key(b)


def action_key(env_action: EnvAction | None) -> tuple[str, int | None, str]:
    """What proposals are de-duplicated by; `Proposal` log-probabilities are never merged."""
    if env_action is None:
        return ("", None, "")
    return (env_action.command.value, env_action.element, " ".join((env_action.text or "").split()))
