"""The policy on an engine as the settings describe it: its prompt, its grammar, its budget."""

from __future__ import annotations

from agentq.envs.contract import from_file
from agentq.errors import ConfigError
from agentq.model_settings import ModelSettings
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine


def policy_of(engine: Engine, model: ModelSettings, *, constrained: bool = False) -> ModelPolicy:
    """The policy on an engine, with the prompt, grammar and budget of the settings.

    Raises:
        ConfigError: if a file or function is missing, or answers are constrained to a grammar that is not agentq's.
    """
    if constrained and model.grammar:
        raise ConfigError(f"run.constrained must be false with your own grammar; got model.grammar {model.grammar}")
    own = {"compose": (model.prompt, "model.prompt"), "parse": (model.grammar, "model.grammar")}
    given = {name: from_file(what, key) for name, (what, key) in own.items() if what}
    return ModelPolicy(engine, max_new_tokens=model.max_new_tokens, constrained=constrained, stop=model.stop, **given)
