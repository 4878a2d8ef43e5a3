"""Questions that show what an OpenAI-compatible server gives, each repeated until it answers or time is up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from agentq.errors import ConfigError, ModelError
from agentq.policies.openai_answers import CUT_OFF, Model, range_of
from agentq.policies.openai_client import OpenAIClient, Refused
from agentq.policies.patience import BadAnswer, Failing, patiently
from agentq.policies.protocol import MAX_LIKELIEST
from agentq.policies.published import OURS

Told = TypeVar("Told")

PROBE = "agentq: 7:30 PM [12]"
CHAT = [{"role": "user", "content": PROBE}]
COLD, COMPARED = 0.25, 5  # temperature of the second probe; number of the likeliest tokens whose distances count
LEAST_RANGE = 0.3  # of these tokens, in nats: below it rounding could decide (up to 0.1 in bfloat16 under load; ours)
SHOWN = 8  # models in a message; a hosted API may list hundreds
V1 = "; a server's URL ends in /v1"
UNLISTED = {400, 401, 403, 404, 405}  # HTTP statuses of /models where a server has no list, or none for this key


async def card_of(server: OpenAIClient, model: str, patience_s: float, crowded_s: float = 0.0) -> Model:
    """The server's card of a model, of its only one if none is named. An adapter has the limit of its parent.

    A model that is named and not listed is asked for all the same: not every server has a list, and not every list has
    all names.

    Raises:
        ConfigError: if the server does not know the model, or none is named and there is not exactly one.
        ModelError: if the server refuses the request, or does not answer.
    """
    asked = partial(patiently, patience_s=patience_s, crowded_s=crowded_s)
    unlisted: Refused | None = None
    every = list[Model]()
    try:
        every = await asked(server.models, who=server.url)
    except Refused as error:
        unlisted = error
        if not model or error.status not in UNLISTED:
            raise _without_list(server, error) from None
    except Failing as error:
        if not model or not _no_list(error):
            raise _with_address(server, error, f"; name the model by {server.url}#MODEL") from error.__cause__
    cards = {card.id: card for card in every if not card.id.startswith(OURS)}  # an earlier run may have left adapters
    wrong = ConfigError(
        f"{server.url} must be asked for one of its models ({_shown(list(cards), model)}); got '{model}'"
        + (f"; name one by {server.url}#MODEL" if not model else "")
    )
    if not model and len(cards) != 1:
        raise wrong
    if (card := cards.get(model or next(iter(cards)))) is not None:
        limit = card.max_model_len or next((each.max_model_len for each in every if each.id == card.parent), None)
        return card.model_copy(update={"max_model_len": limit})
    server.model = model
    try:
        await asked(partial(server.chat, CHAT, 1, 0, 1.0, 1), who=f"{server.url}#{model}")
    except Refused as error:
        if unlisted is not None and error.status == unlisted.status == 400:  # LiteLLM, for a wrong key
            raise ModelError(server.with_key(str(error))) from None
        if unlisted is not None:
            raise (_without_list(server, unlisted) if error.status == 404 else error) from None
        raise wrong if error.status in (400, 404, 422) else error from None
    except Failing as error:
        raise _with_address(server, error) from error.__cause__
    return Model(id=model)


def _shown(names: Sequence[str], model: str) -> str:
    """The names, of many those most like `model`."""
    if not names:
        return "it lists none"
    shown = get_close_matches(model, names, SHOWN, 0.0) if model and len(names) > SHOWN else names[:SHOWN]
    return ", ".join(shown) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _with_address(server: OpenAIClient, error: Failing, otherwise: str = "") -> Failing:
    """The failure. If the answers are not OpenAI's, such as a site's pages, the address may lack its /v1.

    `otherwise`: what may help if it has it.
    """
    if not _no_list(error):
        return error
    return Failing(f"{error}{otherwise if server.url.endswith('/v1') else V1}")


def _no_list(error: Failing) -> bool:
    """Whether the server answers, and not as OpenAI's. Transformers' fails at /models if there is no hub's cache."""
    return isinstance(error.__cause__, BadAnswer) or getattr(error.__cause__, "kind", "") == "HTTP 500"


def _without_list(server: OpenAIClient, error: Refused) -> ModelError:
    """The refusal of /models, with what may help."""
    if error.status not in UNLISTED:
        return error
    where = "" if server.url.endswith("/v1") or error.status in (401, 403) else V1
    return ModelError(f"{error}, asked for {server.url}/models{where}; name the model by {server.url}#MODEL")


class Probes:
    """Asks `server`, which messages call `name`, for at most `patience_s` each, or `crowded_s` (`patiently`)."""

    def __init__(self, server: OpenAIClient, name: str, patience_s: float, crowded_s: float = 0.0) -> None:
        self.server, self.name, self.patience_s, self.crowded_s = server, name, patience_s, crowded_s

    async def _told(self, ask: Callable[[], Awaitable[Told]]) -> Told:
        return await patiently(ask, who=self.name, patience_s=self.patience_s, crowded_s=self.crowded_s)

    async def tokens(self) -> list[int]:
        """The token ids of `PROBE` by /completions; none if it does not return token ids and log-probabilities.

        Raises:
            ModelError: if the log-probabilities are not those at temperature 1.
        """
        asks = (partial(self.server.complete, PROBE, 1, 0, t, 1, likeliest=COMPARED) for t in (1.0, COLD))
        try:
            told = [(await self._told(ask)).choices for ask in asks]
            (warm, ids), (cold, _) = (choices[0].probed() for choices in told)
        except (ModelError, BadAnswer, IndexError):
            return []
        # Scaled by 1 / COLD, tokens are so many times as far apart, even where the likeliest has probability 1.
        apart, cold_apart = (range_of(logps, warm.keys() & cold.keys()) for logps in (warm, cold))
        if apart >= LEAST_RANGE and abs(cold_apart - apart) > abs(cold_apart - apart / COLD):
            raise ModelError(
                f"{self.name} must report log-probabilities at temperature 1 (vLLM: --logprobs-mode raw_logprobs); "
                f"got the likeliest tokens {cold_apart:.2f} nats apart at temperature {COLD} instead of {apart:.2f}"
            )
        return ids

    async def gives_two(self) -> tuple[bool, bool]:
        """Whether /chat/completions returns two choices for n = 2, and whether its usage has the tokens of only one.

        One choice is asked for first, which settles parameters. Two that were cut off have two tokens or more.
        """
        told: Any = None
        try:
            for n in (1, 2):
                told = await self._told(partial(self.server.chat, CHAT, n, 0, 1.0, 1))
        except ModelError:
            return False, False
        cut = [choice for choice in told.choices if (choice.finish_reason or "").lower() in CUT_OFF]
        counts_one = len(cut) == 2 and told.usage is not None and told.usage.completion_tokens == 1
        return len(told.choices) == 2, counts_one

    async def tells_likeliest(self) -> bool:
        """Whether /chat/completions returns the log-probabilities of the likeliest tokens."""
        try:
            told = await self._told(partial(self.server.chat, CHAT, 1, 0, 1.0, 1, likeliest=MAX_LIKELIEST))
        except ModelError:
            return False
        return any(choice.likeliest() for choice in told.choices)
