"""Plain data that all parts exchange, with no behaviour except reading and printing.

The symbols are the usual ones: o observation, h history, a action, N visits, W value sum. A compact history is
h_t = (a_1 .. a_{t-1}, o_t): all past composite actions, only the current observation (arXiv:2408.07199, section 3.1).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from agentq.error_kinds import WORLD_FAULTS
from agentq.notebook import episode_table
from agentq.picture import Picture
from agentq.verbs import BROWSER_COMMANDS as BROWSER_COMMANDS
from agentq.verbs import ELEMENT_COMMANDS as ELEMENT_COMMANDS
from agentq.verbs import SEEN_COMMANDS as SEEN_COMMANDS
from agentq.verbs import Command as Command
from agentq.verbs import Language as Language
from agentq.verbs import Verb as Verb

if TYPE_CHECKING:
    import numpy as np


class Split(StrEnum):
    """Disjoint task sets. `BASE` tasks are only used to train the embedded base model."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    BASE = "base"


@dataclass(frozen=True, slots=True)
class Task:
    """One episode's goal. The same (env, seed) is always the same task; the seed determines `split`.

    `language`: the language of its actions. `commands`: web commands that the environment accepts beyond the paper's;
    the prompt lists them. `keeps_pages`: whether prompts keep former observations, see `History`. `scenario`:
    equal for tasks that are variants of one; empty if there are no variants. `tools`: JSON in OpenAI's form, or empty.
    """

    env: str
    seed: int
    split: Split
    instruction: str
    commands: tuple[Command, ...] = ()
    language: Language = Language.WEB
    keeps_pages: bool = False
    scenario: str = ""
    tools: str = ""


@dataclass(frozen=True, slots=True)
class EnvAction:
    """A command for the environment: `CLICK [5]`, `TYPE [3] Ann`, `SELECT [4] May 12`, `GOTO /`, `SCROLL DOWN`, `STOP`.

    INPUT_COMMANDS: `HOVER [5]`, `DRAG [5] TO [6]`, `DRAG [5] BY 40 -10` (pixels right and down), `PRESS ArrowUp 12`.
    PAGE_COMMANDS: `UPLOAD [5] a.png`, `FIND text`, `BACK`, `WAIT 2` (seconds), `TAB CLOSE 2`, `DIALOG ACCEPT Ann`.
    SEEN_COMMANDS: `CLICK_AT 320 40` (pixels). With a Verb the action is the text itself: code, a line, a call.
    """

    command: Command | Verb
    element: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        if isinstance(self.command, Verb):
            return self.text or ""
        parts = (self.command.value, None if self.element is None else f"[{self.element}]", self.text)
        return " ".join(part for part in parts if part is not None)


class Status(StrEnum):
    """The agent's statement about the task after this action."""

    CONTINUE = "CONTINUE"
    DONE = "DONE"
    FAIL = "FAIL"
    ASK_USER = "ASK_USER"


@dataclass(frozen=True, slots=True)
class Action:
    """One composite decision a_t. `text` is exactly what the policy emitted; the other fields are parsed from it.

    `env_action` is None when the text could not be read; `parse_error` then says why in one line. `mended` names
    corrections to a text that was not in the requested form, such as "fence" or "quotes".
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
    """What the environment shows: the page as text, with element ids in brackets, and its url.

    `screenshot`: a PNG for a judge, not stored. `picture`: for people (`run.screenshots`) or models (`model.sees`).
    """

    text: str
    url: str = ""
    screenshot: bytes = field(default=b"", repr=False, compare=False)
    picture: Picture | None = field(default=None, repr=False, compare=False)

    @property
    def fingerprint(self) -> str:
        """Equal for equal pages: the first 16 hex digits of the SHA-256 of url and text."""
        return hashlib.sha256(f"{self.url}\n{self.text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class History:
    """h_t: the instruction, the texts of all past composite actions, the current observation, the task's language.

    The compact form has no former observations, as in Agent Q. With `keeps_pages` it is LOOP's append-only
    conversation: `pages` are the observations before the current one, so a prompt is a prefix of the next.
    """

    instruction: str
    observation: Observation
    actions: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    language: Language = Language.WEB
    keeps_pages: bool = False
    pages: tuple[str, ...] = ()
    tools: str = ""

    @classmethod
    def of(cls, task: Task, observation: Observation) -> History:
        """The history of an episode that has just begun."""
        return cls(task.instruction, observation, (), task.commands, task.language, task.keeps_pages, (), task.tools)

    def then(self, action_text: str, observation: Observation) -> History:
        """The history after `action_text` led to `observation`; the compact form drops the old observation."""
        pages = (*self.pages, self.observation.text) if self.keeps_pages else ()
        same = self.commands, self.language, self.keeps_pages  # `replace` takes three times as long
        return History(self.instruction, observation, (*self.actions, action_text), *same, pages, self.tools)

    def shortened(self) -> History:
        """The history without its oldest action and the page after it; the first page stays."""
        return replace(self, actions=self.actions[1:], pages=self.pages[:1] + self.pages[2:])


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step. A page that fails is data here (`error_kind`), never an exception.

    `terminated`: the task is over (STOP, or the site ended it); `truncated`: the steps are used up or the session lost.
    `reward`: that of this step; `success`: the verdict of the site's own checker, read at the end of the episode.
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
    """Why a sampled text ended."""

    EOS = "eos"  # an end token or a stop text was sampled; it is the end of token_ids
    LENGTH = "length"  # max_new_tokens ran out; token_ids has no end token
    REFUSED = "refused"  # by a server: it did not take the prompt, or its filter stopped the answer


@dataclass(frozen=True, slots=True)
class Proposal:
    """One action sampled at a history, with everything that training needs.

    `prompt_ids` `[P]` int32: the rendered history (shared by the K proposals of a node). `token_ids` `[T]` int32: the
    sampled tokens. `logps` `[T]` float32, nats: their log-probabilities at temperature 1, whatever `temperature` was.
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
        return float(self.logps.sum(dtype="float64"))


@dataclass(frozen=True, slots=True)
class Step:
    """(observation, proposal, result) of one executed step. Its history is rebuilt from the earlier steps."""

    observation: Observation
    proposal: Proposal
    result: StepResult


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A finished episode: tau. `return_` is the sum of rewards (discount 1).

    An episode that the world broke ends with the broken step. If it has no steps, `info` has the error of its reset.
    """

    task: Task
    steps: tuple[Step, ...]
    return_: float
    success: bool
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def fault(self) -> str | None:
        """Error kind of the world fault that broke the episode; None if it is whole."""
        return next((step.result.error_kind for step in self.steps if step.result.broken), self.info.get("error_kind"))

    @property
    def broken(self) -> bool:
        """Whether the world broke the episode. A broken episode is not used for training."""
        return self.fault is not None

    def _repr_html_(self) -> str:
        return episode_table(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """One action to learn from. `logps` `[T]` float32, nats: log-probabilities under the behaviour policy; all NaN if
    unknown (demonstrations), which only losses without a reference accept.
    """

    prompt_ids: np.ndarray
    token_ids: np.ndarray
    logps: np.ndarray


@dataclass(frozen=True, slots=True)
class CreditedTrajectory:
    """A trajectory with advantages, for training.

    `samples`: one per turn, in order; their `logps` are the old policy's, for ratios. `advantages` `[n]` float64: one
    per turn, in the method's own scale. `reference`: `[T]` log-probabilities of each turn's tokens under the reference
    policy; None if no loss needs them. `sampled`: the same under the sampler, if it is not the old policy. `values`
    `[n, 2]`, for a value head: the return from each turn on, and the turn's value before the round.
    """

    samples: tuple[Sample, ...]
    advantages: np.ndarray
    reference: tuple[np.ndarray, ...] | None = None
    sampled: tuple[np.ndarray, ...] | None = None
    values: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Chosen over rejected. One sample per side for a node pair, one per step for a trajectory pair.

    `gap` > 0: blended value (node pair) or return (trajectory pair) of chosen minus that of rejected.
    """

    chosen: tuple[Sample, ...]
    rejected: tuple[Sample, ...]
    gap: float

    @classmethod
    def from_text(
        cls, prompt: str | list[dict[str, Any]], chosen: str, rejected: str, tokenizer: Any, gap: float = 1.0
    ) -> PreferencePair:
        """The pair of two answers to a prompt. `Learner.step_dpo` computes the log-probabilities that it needs.
        Raises ValueError if the answers are equal, ModelError if there is no tokenizer, or it has no end token.

        Args:
            prompt: chat messages, `{"role": .., "content": ..}`, or the text of a single user message.
            chosen, rejected: answers without an end token; thinking and calls keep their tokens, turn marks do not.
            tokenizer: the model's transformers tokenizer, such as `learner.tokenizer`.
            gap: larger for a clearer preference; DPO's loss does not depend on it.
        """
        from agentq.policies.renderer import samples_of_texts

        if chosen == rejected:
            raise ValueError(f"chosen and rejected must differ; got {chosen[:40]!r} twice")
        better, worse = samples_of_texts(prompt, (chosen, rejected), tokenizer)
        return cls((better,), (worse,), gap)
