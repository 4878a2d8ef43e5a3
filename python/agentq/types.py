"""The plain data that every part exchanges. Owns no behaviour beyond reading and printing itself; imports no agentq.

Symbols are the field's: o observation, h history, a action, N visits, W value sum. A history is
h_t = (a_1 .. a_{t-1}, o_t): all past composite actions, only the current observation (Putta et al. 2024,
arXiv:2408.07199, section 3.1).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np


class Split(StrEnum):
    """Disjoint task sets. `BASE` tasks only ever make the embedded base model."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    BASE = "base"


class Command(StrEnum):
    """The commands of the paper's web agent, of which STOP ends the episode; then INPUT_COMMANDS."""

    CLICK = "CLICK"
    TYPE = "TYPE"
    SELECT = "SELECT"
    SUBMIT = "SUBMIT"
    CLEAR = "CLEAR"
    GOTO = "GOTO"
    SCROLL = "SCROLL"
    ASK_USER = "ASK_USER"
    STOP = "STOP"
    HOVER = "HOVER"
    DRAG = "DRAG"
    PRESS = "PRESS"


INPUT_COMMANDS = (Command.HOVER, Command.DRAG, Command.PRESS)  # mouse and keyboard alone: no built-in site needs them
ELEMENT_COMMANDS = frozenset(
    {Command.CLICK, Command.TYPE, Command.SELECT, Command.SUBMIT, Command.CLEAR, Command.HOVER, Command.DRAG}
)
TEXT_COMMANDS = frozenset(
    {Command.TYPE, Command.SELECT, Command.GOTO, Command.SCROLL, Command.ASK_USER, Command.DRAG, Command.PRESS}
)


@dataclass(frozen=True, slots=True)
class Task:
    """One episode's goal. The same (env, seed) is always the same task; `split` follows from the seed.

    `commands`: what the environment takes beyond the paper's commands; the prompt says so.
    """

    env: str
    seed: int
    split: Split
    instruction: str
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvAction:
    """What reaches the browser: `CLICK [5]`, `TYPE [3] Ann`, `SELECT [4] May 12`, `GOTO /`, `SCROLL DOWN`, `STOP`.

    Of INPUT_COMMANDS: `HOVER [5]`, `DRAG [5] TO [6]`, `DRAG [5] BY 40 -10` (pixels right and down), `PRESS ArrowUp 12`.
    """

    command: Command
    element: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        parts = [self.command.value]
        if self.element is not None:
            parts.append(f"[{self.element}]")
        if self.text is not None:
            parts.append(self.text)
        return " ".join(parts)


class Status(StrEnum):
    """What the agent says of the task after this action."""

    CONTINUE = "CONTINUE"
    DONE = "DONE"
    FAIL = "FAIL"
    ASK_USER = "ASK_USER"


@dataclass(frozen=True, slots=True)
class Action:
    """One composite decision a_t. `text` is exactly what the policy emitted; the fields are read from it.

    `env_action` is None when the text could not be read; `parse_error` then says why in one line. `mended` names what
    was not in the form that the prompt asks for, such as "fence" or "quotes"; empty for a text in that form.
    """

    text: str
    env_action: EnvAction | None
    thought: str = ""
    plan: str = ""
    explanation: str = ""
    status: Status = Status.CONTINUE
    parse_error: str | None = None
    mended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment shows: the page as text (element ids in brackets) and its url.

    `screenshot`: of an episode's end, a PNG, for a judge that sees; it is not kept.
    """

    text: str
    url: str = ""
    screenshot: bytes = field(default=b"", repr=False, compare=False)

    @property
    def fingerprint(self) -> str:
        """Equal for equal pages: the first 16 hex digits of the SHA-256 of url and text."""
        return hashlib.sha256(f"{self.url}\n{self.text}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class History:
    """h_t: the instruction, the texts of all past composite actions, the current observation; the task's `commands`."""

    instruction: str
    observation: Observation
    actions: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()

    @classmethod
    def of(cls, task: Task, observation: Observation) -> History:
        """The history of an episode that has just begun."""
        return cls(task.instruction, observation, commands=task.commands)

    def then(self, action_text: str, observation: Observation) -> History:
        """The history after `action_text` led to `observation`; the old observation is dropped."""
        return replace(self, observation=observation, actions=(*self.actions, action_text))


RESET_FAILED = "reset_failed"  # the first page of a task did not come, twice
REPLAY_MISMATCH = "replay_mismatch"  # a replay reached another page: the action was never executed
SESSION_LOST = "session_lost"  # the environment's process died, hung or broke its protocol

WORLD_FAULTS = frozenset(
    {RESET_FAILED, REPLAY_MISMATCH, SESSION_LOST, "browser_lost", "network", "http_502", "http_503", "http_504"}
)
"""Error kinds that say nothing about the action: the world did not carry it out, or nobody knows whether it did.

browser_lost: the browser died or the page never answered. network: no answer came over the network. http_502, 503 and
504: a gateway answered in the site's place.

Every other kind is an answer to the action, and a lesson. The page or its rules do not take the action: unreadable,
no_such_element, no_such_option, no_such_secret, secret_origin, disabled, covered, wrong_role, not_taken, bad_argument,
bad_url, blocked, too_many_redirects, action_failed. The agent repeats itself: loop. The user decides: held, refused.
The site answers: other http codes. A served environment may have further kinds.
"""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did. A page that fails is data here (`error_kind`), never an exception.

    `terminated`: the task is over (STOP, or the site ended it); `truncated`: the step budget is over, reward then 0.
    `reward` is non-zero only on the last step; `success` is what the site's own checker says then.
    """

    observation: Observation
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    error_kind: str | None = None
    error_message: str = ""

    @property
    def broken(self) -> bool:
        """Whether the world failed here; see `WORLD_FAULTS`."""
        return self.error_kind in WORLD_FAULTS


class StopReason(StrEnum):
    """Why the policy's text ended."""

    EOS = "eos"  # the end token was sampled; it is the last of token_ids
    LENGTH = "length"  # max_new_tokens ran out; token_ids has no end token


@dataclass(frozen=True, slots=True)
class Proposal:
    """One action sampled at a history, with everything training needs.

    `prompt_ids` `[P]` int32: the rendered history (shared by the K proposals of a node). `token_ids` `[T]` int32: what
    was sampled. `logps` `[T]` float32, nats: log-probability of each sampled token at temperature 1, whatever
    `temperature` was.
    """

    action: Action
    prompt_ids: np.ndarray
    token_ids: np.ndarray
    logps: np.ndarray
    stop_reason: StopReason
    policy_version: int
    temperature: float

    @property
    def action_logp(self) -> float:
        """log pi_b(a | h): the sum over the composite action's tokens, in nats, at temperature 1."""
        return float(self.logps.sum(dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Step:
    """(history, proposal, result) of one executed step. The history is rebuilt from the trajectory's earlier steps."""

    observation: Observation
    proposal: Proposal
    result: StepResult


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished episode: tau. `return_` is the sum of rewards (discount 1).

    An episode that the world broke ends with the step at which it did; without steps, `info` has the `error_kind` and
    `error_message` of its reset.
    """

    task: Task
    steps: tuple[Step, ...]
    return_: float
    success: bool
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def fault(self) -> str | None:
        """Error kind of the world's fault that broke the episode; None if none did."""
        kinds = [step.result.error_kind for step in self.steps if step.result.broken]
        return kinds[0] if kinds else self.info.get("error_kind")

    @property
    def broken(self) -> bool:
        """Whether the world broke the episode, so that it is no lesson."""
        return self.fault is not None


@dataclass(frozen=True, slots=True)
class Sample:
    """One action to learn from: an action's tokens after a prompt, with the behaviour policy's log-probabilities.

    `logps` `[T]` float32 in nats; all NaN where unknown (demonstrations), which only losses without a reference accept.
    """

    prompt_ids: np.ndarray
    token_ids: np.ndarray
    logps: np.ndarray


@dataclass(frozen=True, slots=True)
class CreditedTrajectory:
    """A trajectory to learn from by its advantages.

    `samples`: one a turn, in order; their `logps` are the old ones that ratios are taken against. `advantages` `[n]`
    float64, one a turn, in the method's own scale. `reference`: `[T]` log-probabilities of each turn's tokens under the
    reference policy, in nats; None where no loss asks for them. `sampled`: the same under the sampler, where the old
    ones are not its.
    """

    samples: tuple[Sample, ...]
    advantages: np.ndarray
    reference: tuple[np.ndarray, ...] | None = None
    sampled: tuple[np.ndarray, ...] | None = None


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Chosen over rejected. One sample a side for a node pair, one a step for a trajectory pair.

    `gap` > 0: blended value (node pair) or return (trajectory pair) of chosen less that of rejected.
    """

    chosen: tuple[Sample, ...]
    rejected: tuple[Sample, ...]
    gap: float

    @classmethod
    def from_text(cls, prompt: str | list[dict[str, Any]], chosen: str, rejected: str, tokenizer: Any) -> Self:
        """Two answers to chat messages or to a text, see `pair_of`; `Learner.step_dpo` computes log-probabilities."""
        from agentq.policies.renderer import pair_of

        return cls(*pair_of(tokenizer, prompt, chosen, rejected), 1.0)
