"""Every setting of a run, typed, with its default, bounds and one sentence.

Owns the merge: defaults < TOML file < `--section.key value`. The Agent Q paper (arXiv:2408.07199)
publishes no hyper-parameter of its search or training, so every default here is ours.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from agentq.errors import ConfigError, did_you_mean

SEEDS = 1 << 32  # seeds of runs and learners are below: as far as numpy, torch and the samples' seeds tell them apart
Selection = Literal["ucb1", "uct", "puct", "best_first", "gumbel", "thompson_gaussian", "thompson_beta"]
GO_WIDER = ("thompson_gaussian", "thompson_beta")  # rules that ask for further children of a node
MOST_TASKS = 1_000_000_000  # of a split


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SearchConfig(_Section):
    """Monte-Carlo tree search over training tasks."""

    num_iterations: int = Field(default=8, ge=1, description="Rollouts of each tree.")
    num_proposals: int = Field(default=5, ge=1, description="K: actions sampled at each node.")
    selection: Selection = Field(default="ucb1", description="Rule that chooses the leaf of the next rollout.")
    c_exp: float = Field(default=1.0, ge=0, description="Exploration constant of ucb1, uct and puct, in reward units.")
    temperature: float = Field(default=0.8, ge=0, description="Sampling temperature of the policy; 0 is greedy.")
    num_trees_in_flight: int = Field(default=32, ge=1, description="Trees searched at once, in common model batches.")
    leaves_in_flight: int = Field(default=1, ge=1, description="Rollouts of one tree that run side by side.")


class PairsConfig(_Section):
    """Which siblings of a tree become a preference pair."""

    alpha: float = Field(default=0.75, ge=0, le=1, description="Weight of the search; 1 leaves the critic out.")
    threshold: float = Field(default=0.5, ge=0, description="Smallest gap of blended values, in reward units.")
    max_pairs_per_node: int = Field(default=4, ge=0, description="Largest gaps kept of each node; 0 keeps all.")
    min_visits: int = Field(default=1, ge=1, description="Visits that both actions need.")


class TrainConfig(_Section):
    """Training of the policy on one round's data."""

    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    beta: float = Field(default=0.1, gt=0, description="DPO's weight of the reference; larger stays closer to it.")
    sft_weight: float = Field(default=1.0, ge=0, description="Weight of the SFT loss of good actions beside DPO's.")
    epochs: int = Field(default=1, ge=1, description="Passes over one round's data.")
    batch_size: int = Field(default=16, ge=1, description="Pairs or samples of one optimiser step.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this global norm.")
    lora_rank: int = Field(default=0, ge=0, description="Rank of the LoRA adapters; 0 trains all weights.")
    warmup_fraction: float = Field(default=0.1, ge=0, le=1, description="Part of the steps in which the rate rises.")
    logp_tolerance: float = Field(
        default=0.0,
        ge=0,
        description="Sampled log-probabilities are the old ones where the learner's differ by less, in nats a token.",
    )
    bf16: bool = Field(default=False, description="Matrix products in bfloat16; the weights stay as they are.")
    gradient_checkpointing: bool = Field(default=False, description="Layers computed twice, for less memory.")


class PolicyGradientConfig(_Section):
    """The loss and the advantages of REINFORCE's family. A recipe sets what its paper says."""

    ratio: Literal["none", "token", "turn", "sequence"] = Field(
        default="token", description="What shares a ratio to the sampling policy; none: strictly on-policy."
    )
    clip_low: float = Field(default=0.2, ge=0, le=1, description="The ratio counts down to 1 less this.")
    clip_high: float = Field(default=0.2, ge=0, description="The ratio counts up to 1 plus this.")
    average: Literal["token", "sequence", "constant"] = Field(
        default="sequence", description="Mean over tokens, over trajectories' means, or over their sums."
    )
    divide_by_std: bool = Field(default=False, description="Advantages are divided by their group's deviation.")
    kl_weight: float = Field(default=0.0, ge=0, description="Weight of the KL divergence to the start of the run.")
    importance_cap: float = Field(
        default=0.0, ge=0, description="Largest weight learner / sampler of a token, truncated; 0: no such weights."
    )


class RftConfig(_Section):
    """Rejection-sampling fine-tuning of the base on its own successes; every other method starts from its result."""

    num_tasks: int = Field(
        default=120, ge=1, le=MOST_TASKS, description="Training tasks tried; later rounds use other ones."
    )
    attempts: int = Field(default=4, ge=1, description="Episodes of each task.")
    max_per_task: int = Field(default=2, ge=0, description="Successes kept of each task; 0 keeps all.")
    learning_rate: float = Field(default=3e-5, gt=0, description="Peak learning rate of AdamW.")
    epochs: int = Field(default=2, ge=1, description="Passes over the kept successes.")


class OutcomeDpoConfig(_Section):
    """What outcome-supervised DPO does otherwise than node-level DPO, which `train` is set for."""

    learning_rate: float = Field(default=1e-5, gt=0, description="Peak learning rate of AdamW.")


class EvalConfig(_Section):
    """Measuring an agent on held-out tasks."""

    num_tasks: int = Field(default=200, ge=1, le=MOST_TASKS, description="Held-out tasks.")
    num_iterations: int = Field(default=20, ge=1, description="Rollouts of each tree in search at test time.")
    temperature: float = Field(
        default=0.0, ge=0, description="Sampling temperature of the judged episodes; 0 is greedy."
    )
    measure_base: bool = Field(default=True, description="Whether the policy before training is measured too.")


class PriceConfig(_Section):
    """What an engine costs, in any currency; sums are shown where one is given."""

    prompt: float = Field(default=0.0, ge=0, description="Of a million prompt tokens that were not cached.")
    cached: float = Field(default=0.0, ge=0, description="Of a million cached prompt tokens; not given: as the others.")
    generated: float = Field(default=0.0, ge=0, description="Of a million generated tokens.")

    def of_tokens(self) -> tuple[float, float, float]:
        """Prices of prompt, cached and generated tokens. Without a price of their own, cached ones cost as new ones."""
        return self.prompt, self.cached if "cached" in self.model_fields_set else self.prompt, self.generated


class RunConfig(_Section):
    """What is run, and where its results go."""

    env: str = Field(default="booking", min_length=1, description="Name of the environment.")
    seed: int = Field(default=0, ge=0, lt=SEEDS, description="Every random choice of the run follows from it.")
    out: str = Field(default="", description="The run directory; empty: runs/COMMAND..., named after what is run.")
    engine: str = Field(default="", description="What samples for trained weights: vllm:PATH or a vLLM server's URL.")
    num_rounds: int = Field(default=1, ge=1, description="Rounds of search and training.")
    constrained: bool = Field(default=False, description="Whether actions are held to the grammar and the page's ids.")
    max_env_steps: int = Field(default=0, ge=0, description="No round begins that would take more; 0: no limit.")
    num_tasks: int = Field(default=100, ge=1, le=MOST_TASKS, description="Training tasks of each round.")
    group_size: int = Field(default=8, ge=1, description="Rollouts of each task in a round that makes no trees.")


class Config(_Section):
    """All settings."""

    search: SearchConfig = SearchConfig()
    pairs: PairsConfig = PairsConfig()
    train: TrainConfig = TrainConfig()
    policy_gradient: PolicyGradientConfig = PolicyGradientConfig()
    rft: RftConfig = RftConfig()
    outcome_dpo: OutcomeDpoConfig = OutcomeDpoConfig()
    eval: EvalConfig = EvalConfig()
    price: PriceConfig = PriceConfig()
    run: RunConfig = RunConfig()

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain JSON values, section by section: what the run store keeps and compares.

        `run.out` and `price` are left out: they change nothing in a run, so both may be others when it goes on.
        """
        return self.model_dump(mode="json", exclude={"run": {"out"}, "price": True})


class Setting(NamedTuple):
    """One field as people see it."""

    key: str
    default: Any
    description: str


def settings() -> list[Setting]:
    """Every setting in order, for `--help` and the docs."""
    return [Setting(key, info.default, info.description or "") for key, info in _fields()]


def value_of(config: Config, key: str) -> Any:
    """The value of the setting "section.key"."""
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def load(file: Path | None = None, overrides: Sequence[str] = (), defaults: Sequence[str] = ()) -> Config:
    """Settings from the defaults, then `file` (TOML), then `overrides`.

    Args:
        overrides: command-line words, `--section.key value` or `--section.key=value`; the last of a key counts.
        defaults: a recipe's own defaults, as such words: they come before `file`.

    Raises:
        ConfigError: one line that names the source, the key, what must hold and what was given.
    """
    values: dict[str, dict[str, Any]] = {section: {} for section in Config.model_fields}
    for key, value in _read_overrides(defaults):
        _set(values, key, value, source="recipe", from_text=True)
    for key, value in _read_toml(file) if file is not None else ():
        _set(values, key, value, source=Path(file).name if file else "", from_text=False)
    for key, value in _read_overrides(overrides):
        _set(values, key, value, source="command line", from_text=True)
    config = Config.model_validate(values)
    check_search(values["search"].get("selection", ""), values["search"].get("leaves_in_flight", 1))
    return config


def check_search(selection: str, leaves_in_flight: int) -> None:
    """Raises ConfigError if the selection rule cannot have so many leaves in flight."""
    if leaves_in_flight > 1 and selection in GO_WIDER:
        raise ConfigError(
            f"search.leaves_in_flight must be 1 with {selection}, whose draws depend on every earlier rollout; "
            f"got {leaves_in_flight}"
        )


def check_read(
    file: Path | None, overrides: Sequence[str], reads: Sequence[str], *, by: str, readers: Mapping[str, Sequence[str]]
) -> None:
    """Raises ConfigError if a setting is given, in `file` or `overrides`, that the command `by` does not read.

    Args:
        reads: keys, and sections, which stand for all of their keys.
        readers: what each command reads, for the message.
    """
    given = [(key, Path(file).name) for key, _ in _read_toml(file)] if file is not None else []
    for key, source in [*given, *((key, "command line") for key, _ in _read_overrides(overrides))]:
        if not is_read(key, reads):
            others = [f"agentq {command}" for command, read in readers.items() if is_read(key, read)]
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            who = f"{', '.join(others[:3])}{more}" if others else "no command"
            raise ConfigError(f"{source}: settings must be ones that agentq {by} reads; got {key}, read by {who}")


def is_read(key: str, reads: Sequence[str]) -> bool:
    """Whether a setting is among keys and whole sections."""
    return key in reads or key.partition(".")[0] in reads


def _fields() -> Iterator[tuple[str, FieldInfo]]:
    for section, info in Config.model_fields.items():
        model: type[BaseModel] = type(info.default)
        yield from ((f"{section}.{name}", field) for name, field in model.model_fields.items())


def _set(values: dict[str, dict[str, Any]], key: str, value: Any, *, source: str, from_text: bool) -> None:
    """Put one checked value in. Text from the command line is read as the field's type; TOML already has types."""
    known = dict(_fields())
    if key not in known:
        raise ConfigError(f"{source}: unknown key '{key}'{did_you_mean(key, known)}")
    section, name = key.split(".")
    field: Any = known[key]
    adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation(), config=ConfigDict(allow_inf_nan=False))
    try:
        values[section][name] = adapter.validate_python(value, strict=not from_text)
    except ValidationError as error:
        raise ConfigError(f"{source}: {key} {_must_hold(error)}; got {value!r}") from None


def _must_hold(error: ValidationError) -> str:
    """Pydantic's message in the house's words: `must be greater than or equal to 1`."""
    first = error.errors()[0]
    message = first["msg"].replace("Input should", "must").replace("String should", "must")
    return message.split(", unable to parse")[0].split(", got a number")[0]


def _read_toml(file: Path) -> Iterator[tuple[str, Any]]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{file} must be a readable TOML file; got {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file.name} must be TOML; got {error}") from None
    for section, table in document.items():
        if section not in Config.model_fields:
            raise ConfigError(f"{file.name}: unknown key '{section}'{did_you_mean(section, Config.model_fields)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{file.name}: {section} must be a table, [{section}]; got {table!r}")
        yield from ((f"{section}.{name}", value) for name, value in table.items())


def _read_overrides(overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(overrides)
    for word in words:
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"command line: settings must be written --section.key value; got '{word}'")
        key, equals, value = word[2:].partition("=")
        if not equals:
            following = next(words, None)
            if following is None or following.startswith("--"):
                raise ConfigError(f"command line: --{key} must be followed by a value; got {following or 'nothing'}")
            value = following
        yield key, value
