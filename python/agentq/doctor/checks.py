"""All checks in order, and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import SubprocessError
from types import MappingProxyType
from typing import Any

from agentq.doctor import Diagnosis, Patient, acting, machine, reading
from agentq.errors import AgentqError
from agentq.model_settings import ModelSettings

Check = Callable[[Patient], Diagnosis]
CHECKS: tuple[Check, ...] = (
    machine.versions,
    machine.package,
    machine.gpu,
    machine.shared_memory,
    machine.file_descriptors,
    machine.chromium,
    reading.tokenizer,
    acting.training_memory,  # before the model is loaded, which may not fit
    reading.model,
    reading.template,
    reading.end_token,
    acting.environment,
    acting.context,
    acting.actions,
    acting.critic,
    reading.system_role,
    acting.log_probabilities,
)

NEED_PAGES = (acting.context, acting.actions, acting.critic)
NO_PAGES = Diagnosis("skipped", "the environment check failed")

REMEDIES = {  # by a part of errors that say only what must hold
    "the tokenizer must be one": "put the model's tokenizer.json and tokenizer_config.json beside its weights",
    "the checkpoint must hold every weight": "save or download the checkpoint again",
    " must answer within ": "start the server, or correct its address",
}


def examine(
    model: Path | str,
    env: str,
    checks: Sequence[Check] = CHECKS,
    *,
    settings: ModelSettings | None = None,
    vllm: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[tuple[str, Diagnosis]]:
    """The name and the diagnosis of each check, as soon as it ends. What a check raises is its diagnosis."""
    patient, begins = Patient(model, env, settings or ModelSettings(), vllm), True
    try:
        for check in checks:
            try:
                diagnosis = check(patient) if begins or check not in NEED_PAGES else NO_PAGES
            except (AgentqError, OSError, ValueError, SubprocessError) as error:
                said = " ".join(str(error).split())
                remedy = next((remedy for part, remedy in REMEDIES.items() if part in said), "")
                diagnosis = Diagnosis("fail", said, remedy)
            begins = begins and (check is not acting.environment or bool(patient.firsts))
            yield check.__name__.replace("_", " "), diagnosis
    finally:
        if patient.engine is not None:
            patient.engine.close()
