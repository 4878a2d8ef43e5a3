"""Marks that begin and end turns in a chat, from known templates, a tokenizer's template or a server's.

Patterns are regular expressions over text without accents, invisible characters and compatibility forms (`fold`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any

from agentq.agent.prompts import Messages

# Names with a meaning in angle or square brackets in a known template or its tokenizer.
_ANGLED = (
    "s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eod|eot|eoh|eom|user|assistant|system|human|bot|model|think|thinking|thought"
    "|tools?|tool_calls?|tool_response|tool_output|tool_list|function_calls?|functions?|answer|start_of_turn|end_of_turn"
    "|start_of_image|end_of_image|image|video|audio|fim_prefix|fim_middle|fim_suffix|fim_pad|repo_name|file_sep"
    r"|[a-z]+_of_(?:text|sentence|message)|\w{1,32}_token|seed:\w{1,32}|(?:extra_id|reserved|special|unused|tokens_unused)_\d+"
)
_SQUARED = (
    "inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|args|call_id|think|model_settings|img|img_break"
    "|img_end|audio|begin_audio|prefix|middle|suffix|gmask|smask|mask|cls|sep|pad|unk|bos|eos"
)
KNOWN = (
    # ChatML, Llama 3 and 4, Phi, DeepSeek, Cohere, harmony, GLM, Granite
    r"(?i:<\|[^<>|\s]{1,64}\|?>|<[^<>|\s]{1,64}\|>)",
    rf"(?i:</?(?:{_ANGLED})>)",  # Gemma, Llama 2, Qwen's thoughts and tools, Seed, T5
    rf"(?i:\[/?(?:{_SQUARED})\]|<</?sys>>)",  # Mistral, Llama 2, BERT, GLM
    r"(?i:\[\|\w{1,32}\|\]|\]~!?b\[|\]~b\]|\[e~\[)",  # EXAONE, MiniMax
    r"(?i:###[ ]?(?:instruction|response|input|human|assistant|user|system):)",  # Alpaca and its like
    r"(?<!\w)(?:USER|ASSISTANT|SYSTEM|HUMAN|BOT):",  # Vicuna; case-sensitive, since pages write "User:"
    r"(?m:^(?:Human|Assistant|User|System):)",
)

_BRACKETED = re.compile(r"<{1,2}[^\s<>]{1,64}>{1,2}|\[[^\s\[\]]{1,64}\]")
_IN_SOURCE = re.compile(  # Jinja's own brackets hold quotes, digits or lower case
    r"<{1,2}[^\s<>{}'\"+]{1,64}>{1,2}|\[/?[A-Z][A-Z_]+\]|#{2,} ?[A-Za-z][\w ]{0,24}:|(?<!\w)[A-Z]{3,}:"
)
_LONGEST_LINE = 40  # a longer line of a template is an instruction
_SYSTEM, _USER, _ANSWER = "agentqsystem", "agentquser", "agentqanswer"
_PROBES: tuple[Messages, ...] = (
    [{"role": "user", "content": _USER}],
    [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}],
    [
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": _ANSWER},
        {"role": "user", "content": _USER},
    ],
)


def fold(text: str) -> tuple[str, list[int] | range]:
    """Text without accents, invisible characters and compatibility forms, and the original index of each character.

    NFKD, without categories Mn and Cf: a full-width `＜` becomes `<`, and a zero-width space disappears.
    """
    if text.isascii():
        return text, range(len(text))
    origin = [i for i, character in enumerate(text) for _ in _folded(character)]
    return "".join(map(_folded, text)), origin


@cache
def _folded(character: str) -> str:
    parts = unicodedata.normalize("NFKD", character)
    return "".join(part for part in parts if unicodedata.category(part) not in ("Mn", "Cf"))


def literals(marks: Iterable[str]) -> list[str]:
    """The patterns of marks: with brackets in any case, words case-sensitively at the beginning of a word."""
    return [_literal(folded) for mark in marks if (folded := fold(mark)[0].strip())]


def _literal(mark: str) -> str:
    if not mark[0].isalnum() and not mark.endswith(":"):
        return f"(?i:{re.escape(mark)})"
    return (r"(?<!\w)" if mark[0].isalnum() else "") + re.escape(mark)


def template_marks(tokenizer: Any, controls: Iterable[str]) -> list[str]:
    """The marks that a tokenizer's chat template writes as ordinary text, found by rendering short chats.

    They are on the lines before and after a message's content: `[INST]` in Llama 2, `USER:` in Vicuna.

    Args:
        controls: texts of tokens that are fenced already.
    """
    split = re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True))) or r"(?!)")
    found: dict[str, None] = {}
    for chat in _PROBES:
        try:
            text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        except Exception:  # a template may raise anything for a role that it lacks
            continue
        for between in re.split(f"{_SYSTEM}|{_USER}|{_ANSWER}", text):
            lines = [line.strip() for part in split.split(between) for line in part.splitlines() if line.strip()]
            for line in (*lines[:1], *lines[-1:]):
                found |= dict.fromkeys(_marks_of(line))
    return list(found)


def _marks_of(line: str) -> list[str]:
    """The bracketed words of a line, or the whole line if it is more than a word, such as `USER:`."""
    worded = re.search(r"[^\W\d_]", line) and re.search(r"[^\w\s]", line) and len(line) <= _LONGEST_LINE
    return _BRACKETED.findall(line) or ([line] if worded else [])


def source_marks(template: str) -> list[str]:
    """The marks that the source of a chat template spells."""
    return list(dict.fromkeys(_IN_SOURCE.findall(template)))
