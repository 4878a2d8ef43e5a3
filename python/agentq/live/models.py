"""The models of `agentq run`: one engine per name, and on them the policy, the critic and the judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.policies.budget import Budget, Budgeted
from agentq.policies.engine_names import make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine
from agentq.policies.usage import Price, Usage
from agentq.recipes.prompted import policy_of
from agentq.recipes.settings import Live


def names_of(model: str, config: Live) -> dict[str, str]:
    """The names of the models by the option that gives them."""
    named = {"--model": model, "--judge.model": config.judge.model or model}
    if config.critic.model != "none":
        named["--critic.model"] = model if config.critic.model == "base" else config.critic.model
    return named


class Roles:
    """The policy, the critic and the judge, whose calls share one budget."""

    def __init__(
        self,
        named: Mapping[str, str],
        engines: Mapping[str, Engine],
        config: Live,
        budget: Budget,
        price: Price,
        sees: bool,
    ) -> None:
        """`sees`: see `OutcomeJudge`."""
        asked = {name: Budgeted(engine, budget, price) for name, engine in engines.items()}
        self.engines = engines
        self.policy: ModelPolicy = policy_of(asked[named["--model"]], config.model, constrained=config.run.constrained)
        ranks = asked.get(named.get("--critic.model", ""))
        self.critic = (
            None
            if ranks is None
            else LLMRanker(ranks, method=config.critic.method, max_new_tokens=config.critic.max_new_tokens)
        )
        judge = asked[named["--judge.model"]]
        self.judge = OutcomeJudge(judge, sees=sees, max_new_tokens=config.judge.max_new_tokens)

    @property
    def usage(self) -> Usage:
        """What all of them used."""
        return sum((engine.usage for engine in self.engines.values()), Usage())


@contextmanager
def loaded(named: Mapping[str, str], config: Live) -> Iterator[dict[str, Engine]]:
    """The engines by name; options with the same name share one. They are closed at the end."""
    engines: dict[str, Engine] = {}
    try:
        for name in dict.fromkeys(named.values()):
            engines[name] = make_engine(name, config.model, dict(config.vllm))
        yield engines
    finally:
        for engine in engines.values():
            engine.close()
