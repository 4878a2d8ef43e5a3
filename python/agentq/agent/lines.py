"""The grammar of lines: the answer's section COMMANDS has a line of text, such as `open the chest`; STOP ends.

A text of several lines, such as a filled grid, is a fenced block on lines of its own.
"""

from __future__ import annotations

import re

from agentq.agent import sections
from agentq.agent.commands import MAX_TEXT_CHARS, Unreadable
from agentq.agent.thinking import spoken
from agentq.types import Action, Command, EnvAction, Status, Verb

_LABEL = re.compile(r"^[ \t>*_]*(?:COMMANDS?|ACTION)[*_]*[ \t]*[:>][*_]*[ \t]*(.*)$", re.MULTILINE | re.IGNORECASE)
_BLOCK = re.compile(r"`{3,}[\w+-]*[ \t]*\n(?P<text>.*?)\n[ \t]*`{3,}", re.DOTALL)
_HELD = "a place for the block"  # stands for the only block while the sections around it are read
_WRAPPED = re.compile(r"[`\"'*>\s]*(.*?)[`\"'*\s]*")


def parse(text: str, *, cut: bool) -> Action:
    """See `grammars.Grammar.parse`. A line that a cut text may continue is unreadable."""
    said, mended = spoken(text)
    found: dict[str, str] = {}
    status = Status.CONTINUE
    blocks = [match["text"].strip("\n") for match in _BLOCK.finditer(said)]
    held = blocks[0] if len(blocks) == 1 and not _LABEL.search(blocks[0]) else None
    around = said if held is None else _BLOCK.sub(_HELD, said)
    try:
        try:
            found = sections.split(around)
            line, status = found["COMMANDS"], sections.status(found.get("STATUS"))
            if "\n" in line:
                raise Unreadable("COMMANDS must hold one line; got several")
        except Unreadable:
            line, mended = _line(around, held is not None), (*mended, "remark")
        if held is not None and line == _HELD:
            line, mended = held, mended if "\n" in held else (*mended, "fence")
        if not line or len(line) > MAX_TEXT_CHARS:
            raise Unreadable(f"COMMANDS must hold a line of 1 to {MAX_TEXT_CHARS} characters; got {len(line)}")
        if cut and said.rstrip(" ").endswith(line):
            raise Unreadable(f"COMMANDS must be complete; got it cut off: {said[-40:]!r}")
    except Unreadable as error:
        return Action(text, None, parse_error=str(error), mended=mended)
    env_action = EnvAction(Command.STOP) if line == "STOP" else EnvAction(Verb.SAY, None, line)
    thought, plan, explanation = (found.get(name, "") for name in ("THOUGHT", "PLAN", "EXPLANATION"))
    return Action(text, env_action, thought, plan, explanation, status, mended=mended)


def body(env_action: EnvAction) -> str:
    """See `grammars.Grammar.body`."""
    said = str(env_action)
    return f"\n```\n{said}\n```" if "\n" in said else f" {said}"


def key(env_action: EnvAction) -> str:
    """Equal up to white space and case."""
    return " ".join(str(env_action).lower().split())


def _line(said: str, has_block: bool) -> str:
    """The line after a label, the block, or the only line. Raises Unreadable if there is none or several."""
    labelled = [match[1] for match in _LABEL.finditer(said)]
    if has_block and not any(each.strip() not in ("", _HELD) for each in labelled):
        return _HELD
    lines = labelled or [line for line in said.split("\n") if line.strip()]
    if len(lines) != 1:
        raise Unreadable(f"COMMANDS must hold one line, or several between ``` and ```; got {len(lines)}")
    found = _WRAPPED.fullmatch(lines[0])
    return found[1] if found else lines[0].strip()
