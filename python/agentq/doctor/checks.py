"""All checks in order, and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import SubprocessError

from agentq.doctor import Diagnosis, Patient, acting, machine, reading
from agentq.errors import AgentqError

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
    reading.system_role,
    acting.log_probabilities,
)


def examine(model: Path | str, env: str, checks: Sequence[Check] = CHECKS) -> Iterator[tuple[str, Diagnosis]]:
    """The name and the diagnosis of each check, as soon as it ends. What a check raises is its diagnosis."""
    patient = Patient(model, env)
    try:
        for check in checks:
            try:
                diagnosis = check(patient)
            except (AgentqError, OSError, ValueError, SubprocessError) as error:
                diagnosis = Diagnosis("fail", " ".join(str(error).split()))
            yield check.__name__.replace("_", " "), diagnosis
    finally:
        if patient.engine is not None:
            patient.engine.close()
