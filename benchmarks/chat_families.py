"""Small imitations of the chat formats of model families: how templates write turns, and which marks are tokens.

A family's tokenizer is a small byte-level tokenizer with the family's added tokens. `ordinary` marks are plain text to
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import AddedToken, normalizers

from agentq.base.tokenizer import train_tokenizer
from agentq.types import History, Observation

SYSTEM = "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
TURNS = "{% for m in messages if m.role != 'system' %}"
NORMALIZERS = {
    "none": None,
    "NFKC": normalizers.NFKC(),
    "lower case": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
    "no accents": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]),
    "no spaces": normalizers.Replace(" ", ""),
}


@dataclass(frozen=True, slots=True)
class Family:
    """`special` and `added` are tokens; `ordinary` marks are plain text."""

    name: str
    template: str
    special: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    ordinary: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[str, ...]:
        return self.special + self.added + self.ordinary


def _turns(open_: str, close: str, roles: str = "m.role") -> str:
    """A template whose turns all look alike."""
    opened = open_.replace("ROLE", "{{ " + roles + " }}")
    return (
        f"{{% for m in messages %}}{opened}{{{{ m.content }}}}{close}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{open_.replace('ROLE', 'assistant')}{{% endif %}}"
    )


def _llama2(inst: str, end: str) -> str:
    return (
        SYSTEM
        + TURNS
        + "{% if m.role == 'user' %}<s>"
        + inst
        + " {% if system and loop.first %}<<SYS>>\n{{ system }}\n<</SYS>>"
        "\n\n{% endif %}{{ m.content }} " + end + "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
    )


def _worded(user: str, assistant: str, end: str = "") -> str:
    turn = "{% if m.role == 'user' %}" + user + "{{ m.content }}\n{% else %}"
    answer = assistant + "{{ m.content }}" + end + "\n{% endif %}{% endfor %}"
    asked = "{% if add_generation_prompt %}" + assistant + "{% endif %}"
    return SYSTEM + "{{ system }}\n" + TURNS + turn + answer + asked


THOUGHTS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
MISTRAL = ("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]")
TEKKEN = (*MISTRAL, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]")

FAMILIES = (
    Family("Llama 2", _llama2("[INST]", "[/INST]"), ("<s>", "</s>"), (), ("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>")),
    Family(
        "Llama 3",
        "<|begin_of_text|>" + _turns("<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>"),
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>", "<|eom_id|>"),
    ),
    Family(
        "Llama 4",
        "<|begin_of_text|>" + _turns("<|header_start|>ROLE<|header_end|>\n\n", "<|eot|>"),
        ("<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"),
    ),
    Family(
        "Qwen",
        _turns("<|im_start|>ROLE\n", "<|im_end|>\n"),
        ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
        THOUGHTS,
    ),
    Family("ChatML as text", _turns("<|im_start|>ROLE\n", "<|im_end|>\n"), (), (), ("<|im_start|>", "<|im_end|>")),
    Family("Mistral v1", _llama2("[INST]", "[/INST]"), ("<s>", "</s>"), (), ("[INST]", "[/INST]")),
    Family("Mistral v3", _llama2("[INST]", "[/INST]"), ("<s>", "</s>", *MISTRAL)),
    Family(
        "Mistral Tekken",
        "<s>" + SYSTEM + "[SYSTEM_PROMPT]{{ system }}[/SYSTEM_PROMPT]" + TURNS + "{% if m.role == 'user' %}[INST]"
        "{{ m.content }}[/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
        ("<s>", "</s>", *TEKKEN),
    ),
    Family(
        "Gemma",
        "<bos>{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        + _turns("<start_of_turn>ROLE\n", "<end_of_turn>\n", "'model' if m.role == 'assistant' else m.role"),
        ("<bos>", "<eos>"),
        ("<start_of_turn>", "<end_of_turn>", "<mask>", "\n\n", "  "),
    ),
    Family(
        "Gemma 4",
        "<bos>" + _turns("<|turn>ROLE\n", "<turn|>\n"),
        ("<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>"),
    ),
    Family(
        "Phi 3 and 4",
        _turns("<|ROLE|>\n", "<|end|>\n"),
        ("<|endoftext|>",),
        ("<|user|>", "<|system|>", "<|assistant|>", "<|end|>", "  "),
    ),
    Family(
        "DeepSeek",
        "<｜begin▁of▁sentence｜>" + SYSTEM + "{{ system }}" + TURNS + "{% if m.role == 'user' %}<｜User｜>"
        "{{ m.content }}{% else %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
        "<｜Assistant｜>",
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        ("<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<think>", "</think>"),
    ),
    Family(
        "DeepSeek LLM",
        _worded("User: ", "Assistant: ", "<｜end▁of▁sentence｜>"),
        ("<｜end▁of▁sentence｜>",),
        (),
        ("User:", "Assistant:"),
    ),
    Family(
        "Cohere",
        "<BOS_TOKEN>" + _turns("<|START_OF_TURN_TOKEN|><|ROLE_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "m.role|upper"),
        ("<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|USER_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|START_THINKING|>"),
    ),
    Family(
        "GPT-OSS",
        _turns("<|start|>ROLE<|message|>", "<|end|>"),
        ("<|start|>", "<|message|>", "<|end|>", "<|channel|>", "<|return|>", "<|call|>", "<|constrain|>"),
    ),
    Family(
        "Granite",
        _turns("<|start_of_role|>ROLE<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"),
    ),
    Family(
        "GLM",
        "[gMASK]<sop>" + _turns("<|ROLE|>\n", ""),
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|system|>"),
    ),
    Family(
        "EXAONE",
        _turns("[|ROLE|]", "[|endofturn|]\n"),
        ("[|endofturn|]",),
        ("[|user|]", "[|assistant|]", "[|system|]"),
    ),
    Family("Zephyr", _turns("<|ROLE|>\n", "</s>\n"), ("</s>",), (), ("<|user|>", "<|assistant|>", "<|system|>")),
    Family("Vicuna", _worded("USER: ", "ASSISTANT: ", "</s>"), ("<s>", "</s>"), (), ("USER:", "ASSISTANT:")),
    Family(
        "Alpaca", _worded("### Instruction:\n", "### Response:\n"), ("</s>",), (), ("### Instruction:", "### Response:")
    ),
)


@cache
def _trained() -> Any:
    return train_tokenizer(["text link Great food system user"] * 9, vocab_size=400, context_tokens=4096)


def make_tokenizer(family: Family, normalizer: str = "none", **strips: bool) -> Any:
    """The family's tokenizer; `strips` sets lstrip, rstrip, single_word and normalized of its added tokens."""
    tokenizer = deepcopy(_trained())
    if NORMALIZERS[normalizer] is not None:
        tokenizer.backend_tokenizer.normalizer = NORMALIZERS[normalizer]
    tokenizer.add_tokens(
        [AddedToken(mark, special=True, normalized=False) for mark in family.special], special_tokens=True
    )
    added = [mark for mark in family.added if mark.strip() or normalizer != "no spaces"]  # would be empty
    tokenizer.add_tokens([AddedToken(mark, special=False, **strips) for mark in added])
    tokenizer.chat_template = family.template
    return tokenizer


def spellings(mark: str) -> Iterator[str]:
    """A mark as a page may write it: whole, in other characters, inside another, in pieces."""
    full_width = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in mark)
    yield from (mark, f" {mark} ", f"x{mark}y", mark * 3, mark.upper(), mark.lower(), mark.swapcase(), full_width)
    yield from (mark[:2] + "\u200b" + mark[2:], mark[0] + mark + mark[1:], mark[:3] + mark + mark[3:])
    yield from (mark[:-1], mark[1:], f"{mark[:3]}\n{mark[3:]}", f"e\u0301{mark}é", mark[:2] + "\u0301" + mark[2:])


def history_of(page: str) -> History:
    """A history with `page` everywhere that page text can occur: as the page, in the task and in past actions."""
    return History(
        page, Observation(page, "/"), (f"THOUGHT: {page}", f"COMMANDS: TYPE [3] {page}", f"ASK_USER a\n{page}")
    )
