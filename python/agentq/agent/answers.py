"""An answer's sections as chat models write them: bold, headings, lists, fences, tags, JSON. Owns these forms.

Forms are tried in the order of `_FORMS`; two different COMMANDS sections in one form are unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agentq.agent.commands import Unreadable
from agentq.agent.objects import COMMAND_KEYS, first, load, lowered, read_object, tagged_call
from agentq.agent.quoting import FENCE_LINE, quoted_at, quotes_in, reported, without_quoted_lines
from agentq.agent.spellings import Read, read_command, read_line

SECTIONS = ("PLAN", "THOUGHT", "COMMANDS", "EXPLANATION", "STATUS")
MAX_CHARS, MAX_SECTIONS = 20_000, 40

_LABELS = {
    **dict.fromkeys(("THOUGHTS", "THINKING", "REASONING"), "THOUGHT"),
    **dict.fromkeys(("COMMAND", "ACTION", "ACTIONS", "NEXT ACTION", "NEXT COMMAND"), "COMMANDS"),
    "ACTION INPUT": "INPUT",
    **dict.fromkeys(("BEFEHL", "BEFEHLE", "AKTION", "COMMANDE", "COMMANDES", "COMANDO", "COMANDOS"), "COMMANDS"),
    **dict.fromkeys(("ACCIÓN", "AÇÃO", "AZIONE", "COMANDI", "OPDRACHT", "ACTIE", "POLECENIE"), "COMMANDS"),
    **dict.fromkeys(("КОМАНДА", "КОМАНДЫ", "ДЕЙСТВИЕ", "命令", "指令", "操作", "动作", "コマンド", "명령"), "COMMANDS"),
    **{name: name for name in SECTIONS},
}
_NAME = "|".join(sorted(map(re.escape, _LABELS), key=len, reverse=True))
_HEADER = re.compile(
    r"^(?P<lead>[ \t]*"
    r"(?:[-+•][ \t]+|\(?(?:\d{1,2}|[a-h])[.)][ \t]+|(?:_|[^\w\s>\"'“”‘«„「<{\[(-])[️]?[ \t]*){0,8}[\[(]?)"
    rf"(?P<name>{_NAME})"
    r"(?P<close>[\])]?[*_`]{0,3})[ \t]*(?:[=#*_-]*$|(?P<colon>[:：=]|-+>|→|[-–—](?=[ \t]))(?P<after>[*_`]{0,3}))",
    re.MULTILINE | re.IGNORECASE,
)
_INLINE = re.compile(
    r"(?:^|[\s.!?|;,])(?P<lead>[*_]{0,3})(?P<name>PLAN|THOUGHTS?|COMMANDS?|ACTION|EXPLANATION|STATUS|"
    r"(?<=[*_])(?:Plan|Thoughts?)|(?:(?<=[*_])|(?<=[.!?|;][ \t]))(?:Commands?|Action|Explanation|Status))"
    r"(?P<close>[*_]{0,3})[:：](?P<after>[*_]{0,3})"
)
_INSIDE = re.compile(r"[\s|;,](?:EXPLANATION|STATUS)[*_]{0,3}[:：]")
_TAG = re.compile(r"<(/?)(plan|thoughts?|commands?|actions?|explanation|status)>", re.IGNORECASE)
_WRAPPER = re.compile(r"</?(?:answer|output|response|final|final_answer|tool_call|function_call|json)>", re.IGNORECASE)
_FENCED = re.compile(r"```[a-z]*[ \t]*\n?([^`]{1,2100}?)\n?[ \t]*```[ \t.]*\Z")
_STEP = re.compile(r"^[^\w\n]*(?:OBSERVATION|Observation|HISTORY|QUERY)\b[^\w\n]*[:：]", re.MULTILINE)


@dataclass(slots=True)
class Answer:
    """The sections' texts by name, the command, and the names of corrections."""

    sections: dict[str, str]
    command: Read
    mended: list[str] = field(default_factory=list)


def read_answer(text: str) -> Answer:
    """The sections and the command of an answer. Raises Unreadable with one line."""
    if len(text) > MAX_CHARS:
        raise Unreadable(f"an answer must have at most {MAX_CHARS} characters; got {len(text)}")
    text, mended = without_quoted_lines(_WRAPPER.sub("", text)), []
    step = _STEP.search(text)
    if step and any(_label(header) == "COMMANDS" for header in _HEADER.finditer(text, 0, step.start())):
        mended.append("imagined")  # it continues as if it had seen the next page
        text = text[: step.start()]
    for form in _FORMS:
        if (answer := form(text)) is not None:
            answer.mended = [*mended, *answer.mended]
            if "```" in text and "fence" not in answer.mended:
                answer.mended.append("fence")
            return answer
    raise Unreadable("a COMMANDS section must be present; got none")


def _lines(text: str) -> Answer | None:
    """Sections whose names begin a line; COMMANDS is preferred to its other names."""
    headers = [h for h in _HEADER.finditer(text) if _is_header(h)][: MAX_SECTIONS + 1]
    quoted = quotes_in(text) if any(_label(h) == "COMMANDS" for h in headers) else []
    headers = [h for h in headers if _label(h) != "COMMANDS" or not _told_of(text, h.start(), quoted)]
    exact = {h.start("name") for h in headers if h["name"].upper() in ("COMMANDS", "COMMAND")}
    chosen = [h for h in headers if not exact or _label(h) != "COMMANDS" or h.start("name") in exact]
    return _answer(text, chosen, inline=False)


def _one_line(text: str) -> Answer | None:
    """Several sections on one line, with names in capitals or bold."""
    quoted = quotes_in(text)
    headers = []
    for header in islice(_INLINE.finditer(text), MAX_SECTIONS + 1):
        begun = text.rfind("\n", 0, header.start("name")) + 1
        told = _label(header) == "COMMANDS" and (not _HEADER.match(text, begun) or reported(text, header.start()))
        if not told and not quoted_at(header.start("name"), quoted):
            headers.append(header)
    return _answer(text, headers, inline=True)


def _told_of(text: str, start: int, quoted: list[tuple[int, int]]) -> bool:
    return quoted_at(start, quoted) or reported(text, start)


def _answer(text: str, headers: list[re.Match[str]], *, inline: bool) -> Answer | None:
    """The answer with these headers; None without a COMMANDS section."""
    commands: list[str] = []
    if len(headers) > MAX_SECTIONS:
        raise Unreadable(f"an answer must have at most {MAX_SECTIONS} sections; got {len(headers)}")
    found = Answer({}, None)  # type: ignore[arg-type]
    between = _between(text, headers) if inline else ""
    for header, end in zip(headers, [*(h.start() for h in headers[1:]), len(text)], strict=False):
        label, body = _label(header), _body(header, text[header.end() : end])
        if label in ("COMMANDS", "INPUT"):
            if label == "INPUT" and commands and "[" not in commands[-1]:
                body = f"{commands.pop()} {body}"
            body, status = _command_alone(body.removesuffix(between).rstrip() if between else body)
            if status:
                found.sections.setdefault("STATUS", status)
                found.mended.append("one_line")
            commands.append(body)
        else:
            body = body.strip("*_ \t\n|") if not inline else body.strip("*_ \t\n|;")
            found.sections.setdefault(label, FENCE_LINE.sub("", body).strip())
        found.mended += _mends(header, label, inline)
    if not commands:
        return None
    found.command = _agreed(commands)
    found.mended = list(dict.fromkeys(found.mended))
    return found


def _between(text: str, headers: list[re.Match[str]]) -> str:
    """The separator of sections on one line, the same before each: a comma, a semicolon, a bar, a slash."""
    before = {text[: h.start("lead")].rstrip()[-1:] for h in headers[1:]}
    return before.pop() if len(before) == 1 and before <= set("|;,/") else ""


def _command_alone(body: str) -> tuple[str, str]:
    """A command without the sections in its line, and the status text. Raises Unreadable for an open quote."""
    inside = _INSIDE.search(body)
    if not inside:
        return body, ""
    with suppress(Unreadable):
        if "quotes" in read_line(body.strip().partition("\n")[0])[1]:
            return body, ""
    alone = body[: inside.start()].rstrip(" \t|;,/")
    if re.search(r"[\])\d][ \t]+(?:'[^']*|\"[^\"]*|“[^”]*)$", alone):
        raise Unreadable(f"a quote must be closed; got {body[:40]!r}")
    status = re.search(r"\bSTATUS[*_]{0,3}[:：]([^\n]*)", body[inside.start() :])
    return alone, status[1] if status else " "


def _agreed(bodies: list[str]) -> Read:
    """The one command of all bodies. Raises Unreadable if they differ."""
    reads = [_of_body(body) for body in bodies]
    for env_action, _ in reads[1:]:
        if env_action != reads[0][0]:
            raise Unreadable(f"COMMANDS must be one; got '{reads[0][0]}' and '{env_action}'")
    return reads[0]


def _of_body(body: str) -> Read:
    unfenced = FENCE_LINE.sub("", body).strip()
    if unfenced[:1] in ("{", "[") and (value := load(unfenced)) is not None and isinstance(value, dict | list):
        env_action, mended = read_object(value)
        return env_action, ("json", *mended)
    return read_command(body)


def _is_header(header: re.Match[str]) -> bool:
    """Whether a match is a header; without a colon it must be marked as one."""
    marked = any(mark in header["lead"] for mark in "#*[")
    if header["colon"] is None:
        return header["name"].isupper() or marked
    return header["colon"] in ":：=" or header["name"].isupper() or marked


def _label(header: re.Match[str]) -> str:
    return _LABELS[header["name"].upper()]


def _body(header: re.Match[str], body: str) -> str:
    """A section's text without the end of the bold that began before its name."""
    mark = re.sub(r"[^*_`]", "", header["lead"])[-3:]
    after = header["after"] or ""
    if after and not mark:
        return after + body.rstrip()
    if (
        mark
        and not header["close"]
        and not after
        and body.rstrip().endswith(mark)
        and mark not in body.rstrip()[: -len(mark)]
    ):
        return body.rstrip().removesuffix(mark)
    return body.strip("\n").rstrip()


def _mends(header: re.Match[str], label: str, inline: bool) -> Iterator[str]:
    lead = header["lead"]
    if inline:
        yield "one_line"
    if "*" in lead or "_" in lead:
        yield "bold"
    if "#" in lead:
        yield "heading"
    if re.search(r"[-•+]|\d", lead):
        yield "list"
    if header["name"] != label:
        yield "label"


def _tags(text: str) -> Answer | None:
    """Sections in tags: `<action>CLICK [3]</action>`."""
    bodies: dict[str, list[str]] = {}
    opened: re.Match[str] | None = None
    quoted = quotes_in(text)
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = opened or tag
        elif opened and opened[2].lower() == tag[2].lower():
            if not _told_of(text, opened.start(), quoted):
                bodies.setdefault(_LABELS[tag[2].upper()], []).append(text[opened.end() : tag.start()].strip())
            opened = None
    if "COMMANDS" not in bodies:
        return None
    command = _agreed(bodies.pop("COMMANDS"))
    return Answer({label: texts[0] for label, texts in bodies.items()}, command, ["tags"])


def _objects(text: str) -> Answer | None:
    """One JSON object, alone or on lines of its own."""
    if (call := tagged_call(text)) and not reported(text, call[0]):
        return Answer({}, read_object(call[1]), ["call"])
    text = FENCE_LINE.sub("", text)
    start, end = re.search(r"^[ \t]*[{\[]", text, re.MULTILINE), text.rfind("}")
    if not start or reported(text, start.start()):
        return None
    value = load(text[start.start() : max(end, text.rfind("]")) + 1].strip())
    value = load(text[start.start() : end + 1].strip()) if value is None else value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return Answer({}, read_object(value), ["json"])
    if not isinstance(value, dict) or first(lowered(value), COMMAND_KEYS) is None:
        return None
    fields: dict[str, Any] = {_LABELS.get(key.upper(), ""): said for key, said in lowered(value).items()}
    sections = {label: str(said) for label, said in fields.items() if label in SECTIONS and label != "COMMANDS"}
    return Answer(sections, read_object(value), ["json"])


def _bare(text: str) -> Answer | None:
    """A command without sections: the whole answer, its last line, or a fence at its end."""
    if (fenced := _FENCED.search(text)) and not reported(text, fenced.start()):
        return Answer({}, _of_body(fenced[1]), ["bare", "fence"])
    headers = [h for h in _HEADER.finditer(text) if _is_header(h)]
    body = text[: next((h.start() for h in headers if _label(h) in ("STATUS", "EXPLANATION")), len(text))]
    lines = [line for line in FENCE_LINE.sub("", body).split("\n") if line.strip()]
    if not lines:
        return None
    at = len(lines) - 1
    while at and _is_command(lines[at - 1]):
        at -= 1
    before = "".join(f"{line}\n" for line in lines[:at])
    if not _is_command(lines[at]) or reported(before, len(before)):
        return None
    sections = {_label(h): text[h.end() :].split("\n")[0].strip() for h in headers}
    return Answer(sections, read_command("\n".join(lines[at:])), ["bare"])


def _is_command(line: str) -> bool:
    """Whether a line is a command with its id, or one in capitals, and not a sentence about one."""
    try:
        env_action, mended = read_line(line)
    except Unreadable:
        return False
    return "remark" not in mended and (env_action.element is not None or env_action.command.value in line)


def _whole_object(text: str) -> Answer | None:
    """JSON alone; names quoted in its texts are no sections."""
    alone = FENCE_LINE.sub("", text).strip()
    if alone[:1] not in ("{", "[") or load(alone) is None:
        return None
    if (answer := _objects(text)) is None:
        raise Unreadable("a COMMANDS section must be present; got none")
    return answer


def _tags_alone(text: str) -> Answer | None:
    """Sections in tags from the first on."""
    return _tags(text) if _TAG.match(text.lstrip()) else None


_FORMS: tuple[Callable[[str], Answer | None], ...] = (
    *(_whole_object, _tags_alone),
    *(_lines, _one_line, _tags, _objects, _bare),
)
