"""A model's answer without the thinking before it and the text after its end token."""

from __future__ import annotations

import re

from agentq.agent.quoting import announced

_TAGS = r"think|thinking|reasoning|reflection|scratchpad|analysis|seed:think"
_BEGIN = rf"<(?:{_TAGS})>|\[THINK\]|<\|START_THINKING\|>|<\|channel>(?:thought)?"
_CLOSE = rf"</(?:{_TAGS})>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>"
_THINKING = re.compile(
    rf"(?P<open>^[ \t]*(?:{_BEGIN}))|(?<![\"'`“])(?:{_CLOSE})(?![\"'`”])", re.MULTILINE | re.IGNORECASE
)
_BEGUN = re.compile(rf"(?:{_BEGIN})\s*$", re.IGNORECASE)
_END = re.compile(
    r"(?:<\|(?:im_end|eot_id|eom_id|end|endoftext|end_of_text|end_of_turn|return|im_start|start_header_id)\|>"
    r"|<end_of_turn>|<start_of_turn>|<eos>|</s>|<｜end▁of▁sentence｜>)(?=\s*(?:$|<|\n))"
)
_FINAL = re.compile(r"<\|channel\|>final<\|message\|>")
_HARMONY = frozenset(("<|start|>", "<|channel|>", "<|message|>"))
CLOSED = re.compile(rf"{_CLOSE}|{_FINAL.pattern}", re.IGNORECASE)  # the end of a block
_SECTION = re.compile(r"[ \t]*(?:PLAN|THOUGHT|COMMANDS|EXPLANATION|STATUS)[ \t]*:")
_MARK = re.compile(
    r"[<\[]/?(?:\||｜|/|think|reason|reflect|scratch|analysis|seed:|end_of|start_of|eos|s>|channel\|)", re.IGNORECASE
)


def bounds(token: str) -> bool:
    """Whether a token's text begins or ends thinking by itself."""
    return bool(_THINKING.fullmatch(token))


def is_mark(token: str) -> bool:
    """Whether a token's text is a mark that `spoken` reads."""
    return token in _HARMONY or bounds(token) or bool(_END.fullmatch(token))


def begun(prompt: str) -> str:
    """The mark with which the end of a prompt begins thinking, with the white space after it; empty without one."""
    found = _BEGUN.search(prompt)
    return found[0] if found else ""


def only_ends(text: str) -> bool:
    """Whether an answer ends thinking that it has not begun, so that its prompt has."""
    marks = (mark for mark in _THINKING.finditer(text) if mark["open"] or _ends(text, mark.start(), inside=False))
    first = next(marks, None)
    return first is not None and not first["open"]


def _ends(text: str, at: int, *, inside: bool) -> bool:
    """Whether thinking ends here: not in a quote; if it has no beginning, not in JSON or a section either."""
    line = text.rfind("\n", 0, at) + 1
    if announced(text, at) or text[line:at].lstrip()[:1] == ">":
        return False
    return inside or (text.lstrip()[:1] != "{" and not _SECTION.match(text, line))


def spoken(text: str) -> tuple[str, tuple[str, ...]]:
    """The answer alone, and the names of removed parts: "thinking", "end_token".

    An unclosed block is thinking to its end. An end without a beginning ends thinking that began in the prompt. A
    beginning counts at the start of a line; an end counts unless it is quoted.
    """
    if not _MARK.search(text):
        return text, ()
    mends = []
    if finals := list(_FINAL.finditer(text)):
        text, mends = text[finals[-1].end() :], ["thinking"]
    elif "<|channel|>analysis" in text:
        return "", ("thinking",)
    kept, at, inside = [], 0, False
    for mark in _THINKING.finditer(text):
        if mark["open"]:
            if not inside:
                kept.append(text[at : mark.start()])
            inside = True
        elif _ends(text, mark.start(), inside=inside):
            kept = kept if inside else []
            at, inside = mark.end(), False
    if at or inside:
        mends = ["thinking"]
        text = "".join([*kept, "" if inside else text[at:]])
    if end := _END.search(text):
        text = text[: end.start()]
        mends.append("end_token")
    return (text.strip() if mends else text), tuple(mends)
