"""The composite action's text: printing it and reading it back. Owns its form, but neither prompts nor pages.

    PLAN: ...            only at the first step
    THOUGHT: ...
    COMMANDS: TYPE [3] Blue Harbor Grill
    EXPLANATION: ...     optional
    STATUS: CONTINUE

One section per line. Only COMMANDS reaches the environment; the likelihood is over the whole text (arXiv:2408.07199,
section 3.1). An answer in another form is read as a person would read it (`answers`), and each correction is named.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from agentq.agent.answers import SECTIONS, read_answer
from agentq.agent.commands import Unreadable, print_env_action, read_env_action
from agentq.agent.thinking import spoken
from agentq.types import Action, EnvAction, Status

_STATUSES = {
    **dict.fromkeys(("DONE", "COMPLETE", "COMPLETED", "FINISHED", "SUCCESS"), Status.DONE),
    **dict.fromkeys(("FAIL", "FAILED", "FAILURE"), Status.FAIL),
    **dict.fromkeys(("ASK_USER", "ASK"), Status.ASK_USER),
    **dict.fromkeys(("CONTINUE", "CONTINUING", "IN_PROGRESS", "ONGOING"), Status.CONTINUE),
}
_SECTION = re.compile(rf"^[ \t]*({'|'.join(SECTIONS)})[ \t]*:[ \t]*", re.MULTILINE)


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
        f"COMMANDS: {print_env_action(env_action)}",
        f"EXPLANATION: {explanation}" if explanation else "",
        f"STATUS: {status}",
    ]
    return "\n".join(line for line in lines if line)


def history_text(action: Action) -> str:
    """The text of an action in later prompts: its own, or the form above if its own needed corrections.

    So a history has no thinking, fences or second commands. Training still uses the sampled text.
    """
    if action.env_action is None:
        return spoken(action.text)[0]
    if not action.mended:
        return action.text
    plan, thought, explanation = (" ".join(said.split()) for said in (action.plan, action.thought, action.explanation))
    return format_action(action.env_action, plan=plan, thought=thought, explanation=explanation, status=action.status)


def parse_action(text: str, *, cut: bool = False) -> Action:
    """Read any text of a model. Never raises: an unreadable text has `env_action=None` and a `parse_error`.

    `cut`: the text ended at a token limit. Then a command at its very end is unreadable, unless it is complete.
    """
    action = _parse(text)
    if cut and action.env_action is not None and (action.env_action.text is not None or not text.endswith("]")):
        longer = _parse(text + "7")
        if longer.env_action != action.env_action:
            complaint = f"COMMANDS must be complete; got it cut off: {text[-40:]!r}"
            return replace(action, env_action=None, status=Status.CONTINUE, parse_error=complaint)
    return action


def _parse(text: str) -> Action:
    said, mended = spoken(text)
    sections: dict[str, str] = {}
    try:
        sections = _split(said)
        env_action, more = read_env_action(sections["COMMANDS"])
        status = _status(sections.get("STATUS"))
        mended += more
    except Unreadable:
        try:
            answer = read_answer(said)
        except Unreadable as error:
            told: dict[str, Any] = {name.lower(): sections.get(name, "") for name in ("PLAN", "THOUGHT", "EXPLANATION")}
            return Action(text, None, parse_error=str(error), mended=mended, **told)
        sections, (env_action, more) = answer.sections, answer.command
        status, unknown = _any_status(sections.get("STATUS"))
        mended = tuple(dict.fromkeys((*mended, *answer.mended, *more, *unknown))) or ("remark",)
    return Action(
        text=text,
        env_action=env_action,
        thought=sections.get("THOUGHT", ""),
        plan=sections.get("PLAN", ""),
        explanation=sections.get("EXPLANATION", ""),
        status=status,
        mended=mended,
    )


def _split(text: str) -> dict[str, str]:
    found = list(_SECTION.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    sections: dict[str, str] = {}
    for match, end in zip(found, ends, strict=True):
        if match[1] in sections:
            raise Unreadable(f"each section must occur once; got {match[1]} twice")
        sections[match[1]] = text[match.end() : end].strip()
    if "COMMANDS" not in sections:
        raise Unreadable("a COMMANDS section must be present; got none")
    return sections


def _status(text: str | None) -> Status:
    if text is None:
        return Status.CONTINUE
    name = text.strip().upper().replace(" ", "_")
    if name not in Status.__members__:
        raise Unreadable(f"STATUS must be one of {', '.join(Status)}; got {text[:40]!r}")
    return Status(name)


def _any_status(text: str | None) -> tuple[Status, tuple[str, ...]]:
    """The status in the first word or two of a section; CONTINUE if there is none."""
    words = re.findall(r"[A-Z]+", (text or "").upper().replace("_", " "))
    for said in ("_".join(words[:2]), *words[:1]):
        if said in _STATUSES:
            return _STATUSES[said], ()
    return Status.CONTINUE, ("status",) if words else ()


def same_action(a: EnvAction | None, b: EnvAction | None) -> bool:
    """Whether two proposals do the same: equal up to white space. All unreadable ones are the same."""
    return action_key(a) == action_key(b)


def action_key(env_action: EnvAction | None) -> tuple[str, int | None, str]:
    """The key by which proposals are deduplicated; their log-probabilities are never merged."""
    if env_action is None:
        return ("", None, "")
    return (env_action.command.value, env_action.element, " ".join(env_action.text.split()) if env_action.text else "")
