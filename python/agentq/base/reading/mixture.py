"""What the reading base is trained on, and when: copying and short pages first, then decisions, then the sites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Items
from typing import Any

import numpy as np

from agentq.base.exercises import TrainingExample
from agentq.base.reading.converting import convert, parity, sums
from agentq.base.reading.copying import code, form, guest, pick, say, several
from agentq.base.reading.deciding import count, extreme, offers, order, table, verdicts
from agentq.base.reading.encoding import encode
from agentq.base.reading.games import game
from agentq.base.reading.judging import choose, final
from agentq.base.reading.places import calendar, labelled, nth, passage, posts, record, rows, word_at
from agentq.base.reading.programs import session
from agentq.base.reading.words import Words
from agentq.base.training import Sequence

Make = Callable[[Words], TrainingExample]
KINDS: dict[str, Make] = {
    kind.__name__: kind
    for kind in (
        *(say, form, pick, several, code, table, verdicts, offers, extreme, count, order, final, choose),
        *(guest, session, game),
        *(labelled, rows, posts, nth, word_at, passage, calendar, record, convert, sums, parity),
    )
}
# The last shares: more of what fails for long, names that share their end, boxes, two proposals that both look right.
_LAST: dict[str, float] = {
    "say": 0.7,
    "form": 6,
    "guest": 3,
    "pick": 4,
    "several": 3,
    "code": 0.7,
    "table": 1,
    "verdicts": 5,
    "offers": 2,
    "extreme": 1,
    "count": 0.7,
    "order": 1,
    "final": 1,
    "choose": 3,
    "step": 1.5,
    "errand": 3,
    "rank": 7,
    "search": 2,
    "results": 4,
    "item": 1.5,
    "slots": 3,
    "reserved": 3,
    "bought": 1.5,
    "session": 2,
    "game": 3,
    "block": 1.5,
}
# Finding by place, and writing in another form: more than half of what is trained on after 220 M tokens.
_PLACES: dict[str, float] = {
    "labelled": 20,
    "rows": 16,
    "posts": 8,
    "nth": 8,
    "word_at": 6,
    "passage": 6,
    "calendar": 8,
    "record": 4,
    "convert": 6,
    "sums": 6,
    "parity": 3,
}
# From so many million tokens on: the share of each kind, before division by their sum. Those that are not in KINDS
# belong to `Sites` and `Programs`.
SHARES: tuple[tuple[float, dict[str, float]], ...] = (
    (0.0, {"say": 6, "form": 1, "pick": 1, "table": 1}),
    (1.5, {"say": 3, "form": 3, "pick": 3, "table": 2, "several": 1, "code": 0.5, "verdicts": 1, "count": 0.5}),
    (
        2.5,
        {
            "say": 1.5,
            "form": 2,
            "pick": 2,
            "several": 0.7,
            "code": 0.7,
            "table": 1.5,
            "verdicts": 2,
            "offers": 1,
            "extreme": 0.5,
            "count": 0.5,
            "order": 0.7,
            "final": 1.5,
            "choose": 1.5,
            "step": 1,
            "rank": 2,
            "results": 2,
            "item": 0.7,
            "reserved": 1.5,
            "bought": 1.5,
        },
    ),
    (  # more of what is learned last: comparisons, forms, and which of several actions is best
        15.0,
        {
            "say": 1,
            "form": 3,
            "pick": 3,
            "several": 2,
            "code": 0.7,
            "table": 1.5,
            "verdicts": 5,
            "offers": 2,
            "extreme": 1.5,
            "count": 0.7,
            "order": 1,
            "final": 1,
            "choose": 1.5,
            "step": 1.5,
            "rank": 4,
            "results": 4,
            "item": 0.7,
            "slots": 2,
            "reserved": 1.5,
            "bought": 1,
        },
    ),
    (24.0, _LAST),
    (90.0, {**_LAST, "step": 3, "errand": 20}),  # errands are long, and were too few to act on
    (200.0, {**_LAST, "step": 3, "errand": 10, "rank": 20}),  # the thoughts of ranking changed after 205 M tokens
    (213.0, {**_LAST, "step": 3, "errand": 5, "rank": 16, "search": 8, "form": 14}),  # whole queries, and forms
    (218.0, {**_LAST, "step": 3, "errand": 24, "rank": 12, "search": 5, "form": 14, "pick": 8}),
    (220.0, {**_LAST, "step": 3, "errand": 5, "rank": 12, **_PLACES}),
    (237.0, {**_LAST, **_PLACES, "say": 3, "form": 30, "pick": 12, "step": 6, "errand": 10, "rank": 16, "convert": 20}),
)


def shares(tokens: float) -> dict[str, float]:
    """The shares of kinds after `tokens` tokens."""
    return next(found for start, found in reversed(SHARES) if tokens >= start * 1e6)


def exercise_stream(
    tokenizer: Any, kinds: Mapping[str, Make], seed: Items[int], tokens: float, limit: int
) -> Iterator[Sequence]:
    """Exercises as they are due after `tokens` tokens, none longer than `limit` tokens."""
    rng = np.random.default_rng(seed)
    words, due = Words(rng), shares(tokens)
    names = list(due)
    weights = np.array([due[name] for name in names])
    while True:
        example = kinds[names[rng.choice(len(names), p=weights / weights.sum())]](words)
        sequence = encode(tokenizer, example)
        if len(sequence.ids) <= limit:
            yield sequence


def own_texts(n: int, seed: int) -> Iterator[str]:
    """The texts of `n` exercises of each kind."""
    words = Words(np.random.default_rng([seed, 1]))
    for kind in KINDS.values():
        yield from texts_of(kind(words) for _ in range(n))


def texts_of(examples: Iterable[TrainingExample]) -> Iterator[str]:
    """Prompts and answers, for the tokenizer."""
    for example in examples:
        yield "\n".join(message["content"] for message in example.messages if message["role"] == "user")
        yield "\n".join([example.answer, *(text for turn in example.more for text in turn)])
