"""The fence between text and control: text of a page or a model must reach a model as plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self

from agentq.agent.prompts import Messages
from agentq.agent.thinking import bounds
from agentq.policies.marks import KNOWN, fold, literals, template_marks


class Fence:
    """Breaks chat marks wherever a text spells them, and leaves all other text unchanged.

    It puts a space after the first character: `<|im_end|>` becomes `< |im_end|>`. No normaliser removes a space.
    Breaking text twice is the same as breaking it once.
    """

    def __init__(self, patterns: Iterable[str] = KNOWN, tokenizer: Any = None) -> None:
        """`patterns`: as in `marks`. `tokenizer`: a fast tokenizer, used to find remaining added tokens."""
        self._marks = re.compile("|".join(patterns) or r"(?!)")
        self._tokenizer = tokenizer
        self._controls = {} if tokenizer is None else controls_of(tokenizer)
        self._words = set() if tokenizer is None else _words(tokenizer)
        normalized = tokenizer is not None and tokenizer.backend_tokenizer.normalizer is not None
        self._hint = re.compile("" if normalized else "|".join(map(re.escape, self._controls.values())) or r"(?!)")

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """The fence of a tokenizer: its added tokens, special or not, and the marks of its chat template.

        Added tokens that are white space, or a single character and not special, count as text.
        """
        controls = list(controls_of(tokenizer).values())
        worded = template_marks(tokenizer, controls) if tokenizer.chat_template else ["ASSISTANT:"]
        if tokenizer.is_fast:
            return cls(literals(worded), tokenizer)
        return cls(literals([*controls, *worded]))

    def text(self, text: str) -> str:
        """`text` without any mark."""
        while spans := self._spelled(text) or self._found(text):
            text = _broken(text, spans)
        return text

    def answer(self, text: str) -> str:
        """A model's own answer: marks of thinking and added tokens that are not special, as of tools, are its words."""
        while spans := self._foreign(text, self._spelled(text)) or self._foreign(text, self._found(text)):
            text = _broken(text, spans)
        return text

    def _foreign(self, text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans that are no words of an answer."""
        return [span for span in spans if (word := text[slice(*span)].strip()) not in self._words and not bounds(word)]

    def messages(self, messages: Messages) -> Messages:
        """Messages whose contents, or the text parts of them, and tools have no mark."""
        return [
            message | {name: self._all(message[name]) for name in ("content", "tools") if name in message}
            for message in messages
        ]

    def _all(self, value: Any) -> Any:
        """A value of JSON whose texts have no mark, except the addresses of pictures."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self._all(each) for each in value]
            case {"type": "image_url"}:
                return value
            case dict():
                return {self.text(name): self._all(each) for name, each in value.items()}
        return value

    def _spelled(self, text: str) -> list[tuple[int, int]]:
        """Spans of marks, also in forms that a normaliser would make equal."""
        folded, origin = fold(text)
        found = [match.span() for match in self._marks.finditer(folded)]
        return [(origin[start], origin[end - 1] + 1) for start, end in found]

    def _found(self, text: str) -> list[tuple[int, int]]:
        """Spans in which the tokenizer itself finds its added tokens."""
        if not self._hint.search(text):  # no mark is spelled, and no normaliser could make one
            return []
        read = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        unknown = self._tokenizer.unk_token_id  # also used for characters that the vocabulary lacks
        return [
            (start, end)
            for token, (start, end) in zip(read["input_ids"], read["offset_mapping"], strict=True)
            if token in self._controls
            and (spelled := text[start:end].strip())
            and (token != unknown or spelled == self._controls[token])
        ]


def controls_of(tokenizer: Any) -> dict[int, str]:
    """Control tokens, which text must not be tokenized into, by id."""
    special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    added = {
        id: token.content
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.special or len(token.content) > 1
    }
    return {id: content for id, content in (special | added).items() if content.strip()}


def beyond_rows(tokenizer: Any, rows: int) -> list[str]:
    """The tokens without one of `rows` of an embedding that text, the template or the end of an answer can produce.

    Special tokens are none of them, as text never becomes one, unless the template spells it or it has such a role.
    """
    fenced = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special and token.content.strip()}
    fenced -= {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id}
    vocabulary, template = tokenizer.get_vocab() if len(tokenizer) > rows else {}, str(tokenizer.chat_template)
    return [word for word, id in vocabulary.items() if id >= rows and (id not in fenced or word in template)]


def _words(tokenizer: Any) -> set[str]:
    """The added tokens that are not special: a tokenizer counts them as text."""
    special = set(tokenizer.all_special_tokens)
    return {t.content for t in tokenizer.added_tokens_decoder.values() if not t.special and t.content not in special}


def _broken(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with a space between the first two characters of each span; a single character is removed."""
    pieces, end = [], 0
    for start, stop in spans:
        if start < end:  # overlaps with a span that is broken already
            continue
        inside = re.search(r"\S(?=\S)", text[start:stop])
        if inside:
            cut = start + inside.end()
            pieces += [text[end:cut], " "]
            end = cut
        else:
            pieces.append(text[end:start])
            end = stop
    return "".join([*pieces, text[end:]])
