"""The settings of each command and recipe: models whose fields are exactly the settings it reads, with its defaults.

Imports nothing heavy, so `load` reports a wrong setting before torch is imported. The recipes cite the sources.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import create_model

from agentq import config
from agentq.config import Settings
from agentq.errors import ConfigError
from agentq.eval_settings import Eval, EvalBoth, EvalRungs, EvalWays, check_calls
from agentq.model_settings import VLLM, CriticSettings, JudgeSettings, ModelSettings, Section
from agentq.run_settings import Draws

S = TypeVar("S", bound=Settings)


def _rounds(num_tasks: int, group_size: int) -> config.Contests:
    return config.Contests(num_tasks=num_tasks, group_size=group_size, num_rounds=10)


class Training(Settings):
    """The settings that `recipes.rounds` reads for every recipe. A recipe's own settings are a subclass."""

    run: config.Rounds = config.Rounds()
    train: config.Train = config.Train()
    eval: EvalBoth = EvalBoth()

    @property
    def temperature(self) -> float:
        """Sampling temperature of the policy; 1 without the setting, as for on-policy recipes."""
        return self.search.temperature if isinstance(self.search, config.Sampling) else 1.0


class Grouped(Training):
    """Several rollouts per task."""

    search: config.Episodes = config.Episodes()
    run: config.Groups = config.Groups()


class Rft(Grouped):
    run: config.Groups = config.Groups(num_tasks=120, group_size=4)
    train: config.Train = config.Train(epochs=2)
    rft: config.Kept = config.Kept()


class OutcomeDpo(Grouped):
    run: config.Contests = config.Contests()
    train: config.Dpo = config.Dpo(learning_rate=1e-5)


class AgentQ(Training):
    search: config.Trees = config.Trees()
    critic: CriticSettings = CriticSettings()
    pairs: config.Pairs = config.Pairs()
    train: config.Dpo = config.Dpo()


class Imitation(Training):
    """Preferences of an expert's actions over the policy's."""

    search: config.Episodes = config.Episodes(temperature=1.0)
    run: config.Rounds = config.Rounds(num_rounds=3)
    train: config.Dpo = config.Dpo(sft_weight=0.0)


Preferring = AgentQ | OutcomeDpo | Imitation


class OnPolicy(Training):
    """Actions are sampled from the density that is trained: at temperature 1, from the unconstrained policy."""

    train: config.TrainOnSampled = config.TrainOnSampled(batch_size=64)
    policy_gradient: config.Clipped = config.Clipped()
    ratios: ClassVar[tuple[str, ...]] = ("none", "token", "turn", "sequence")  # with which the recipe is right

    def check(self, name: str) -> None:
        """See `Section.check`."""
        super().check(name)
        if self.run.constrained:
            raise ConfigError(
                f"run.constrained must be false for {name}, which trains the unconstrained policy; got true"
            )
        ratio, t, run = self.policy_gradient.ratio, self.train, self.run
        if ratio not in self.ratios:
            raise ConfigError(f"policy_gradient.ratio must be {' or '.join(self.ratios)} for {name}; got {ratio}")
        most = run.num_tasks * (run.group_size if isinstance(run, config.Groups) else 1)
        if ratio == "none" and (t.epochs > 1 or t.batch_size < most):
            raise ConfigError(  # without a ratio, the data are valid for one step only
                f"train.epochs must be 1 and train.batch_size at least run.num_tasks * run.group_size ({most}) for "
                f"{name}, which is strictly on-policy; got {t.epochs} and {t.batch_size}"
            )


class Family(OnPolicy):
    """The REINFORCE family: advantages come from the returns of rollouts."""

    run: config.Groups = config.Groups()
    policy_gradient: config.Compared = config.Compared()


class Reinforce(Family):
    """With `ratio` none and `average` constant, this is the gradient of the trajectory's log-probability."""

    run: config.Groups = config.Groups(group_size=1, num_tasks=240, num_rounds=10)
    train: config.TrainOnSampled = config.TrainOnSampled(batch_size=240)
    policy_gradient: config.Compared = config.Compared(ratio="none", average="constant")


class PolicyGradient(Family):
    """Advantages from comparing the rollouts of a task."""

    run: config.Contests = _rounds(32, 8)


class Gspo(PolicyGradient):
    """The ratio is a geometric mean over tokens."""

    ratios = ("turn", "sequence")


class ArpoReplay(PolicyGradient):
    """Some rollouts are of earlier policies."""

    ratios = ("token", "turn", "sequence")


class StepAgentInverse(OnPolicy):
    """The number of items, and so of steps, is known only after collecting."""

    ratios = ("token", "turn", "sequence")


class Ppo(OnPolicy):
    """Advantages from a value function."""

    run: config.Groups = config.Groups(group_size=8, num_tasks=32, num_rounds=10)
    policy_gradient: config.Valued = config.Valued()

    def check(self, name: str) -> None:
        """See `Section.check`."""
        super().check(name)
        if self.policy_gradient.values == "head" and not self.train.thinking:
            raise ConfigError(  # it would be trained on the states after the thinking and value those before it
                f"train.thinking must be true for {name} with a value head, which reads the state before an answer; "
                "got false; or give --policy_gradient.values=ridge"
            )


class Demo(Settings):
    """The settings that all rungs of `recipes.ladder` share. All defaults are ours."""

    run: config.Rounds = config.Rounds(num_tasks=50)
    search: config.Trees = config.Trees()
    critic: CriticSettings = CriticSettings()
    pairs: config.Pairs = config.Pairs()
    train: config.Dpo = config.Dpo(devices="cores")
    rft: config.RftRung = config.RftRung(num_tasks=70)
    eval: EvalRungs = EvalRungs(num_tasks=100)

    def check(self, name: str) -> None:
        """See `Section.check`."""
        super().check(name)
        check_calls(self.eval.max_calls, self.search.leaves_in_flight)


class Ladder(Demo):
    run: config.Rounds = config.Rounds()
    train: config.Dpo = config.Dpo()
    rft: config.RftRung = config.RftRung()
    outcome_dpo: config.OutcomeDpoRung = config.OutcomeDpoRung()
    eval: EvalRungs = EvalRungs()


class EvalCommand(Settings):
    eval: Eval = Eval()


class EvalSearchCommand(Settings):
    search: config.Search = config.Search()
    critic: CriticSettings = CriticSettings()
    eval: EvalWays = EvalWays()

    def check(self, name: str) -> None:
        """See `Section.check`."""
        super().check(name)
        by, most = self.eval.chosen_by, self.eval.max_calls
        if by == "all" and not most:
            raise ConfigError(
                "eval.max_calls must be at least 1 with eval.chosen_by all, whose rows cost the same; got 0"
            )
        if name == "eval --search step" and by not in ("oracle", "value"):
            raise ConfigError(f"eval.chosen_by must be oracle or value with --search step; got {by}")
        check_calls(most, self.search.leaves_in_flight)


class Examined(Section):
    """`agentq doctor`."""

    model: ModelSettings = ModelSettings()
    vllm: VLLM = VLLM()


class Live(Section):
    """`agentq run`."""

    run: Draws = Draws()
    model: ModelSettings = ModelSettings(date="today")
    critic: CriticSettings = CriticSettings()
    judge: JudgeSettings = JudgeSettings()
    vllm: VLLM = VLLM()
    search: config.SearchRule = config.SearchRule()
    price: config.Prices = config.Prices()


def _variant(model: type[S], **defaults: Any) -> type[S]:
    """The model with other defaults in these sections."""
    fields: Any = {section: (type(default), default) for section, default in defaults.items()}
    return create_model(model.__name__, __base__=model, **fields)


def _by_std(**loss: Any) -> config.Compared:
    return config.Compared(divide_by_std=True, **loss)


RECIPES: dict[str, Any] = {  # models by name, which is also the module that defines RECIPE
    "sft": Training,
    "rft": Rft,
    # groups, tasks and temperature 1 as in LOOP, arXiv:2502.01600, appendix D; the number of rounds is ours
    "ei": _variant(
        Rft,
        search=config.Episodes(temperature=1.0),
        run=config.Groups(group_size=6, num_tasks=40, num_rounds=10),
        train=config.Train(),
        rft=config.Kept(max_per_task=0),
    ),
    "outcome_dpo": OutcomeDpo,
    "agent_q": AgentQ,
    "reinforce": Reinforce,
    "rloo": _variant(Reinforce, run=_rounds(40, 6)),
    # clip 0.1 as in the released code: the ratio stays in [1 / 1.1, 1.1]; PPO and the paper use 1 - 0.1 below
    "loop": _variant(
        PolicyGradient,
        run=_rounds(40, 6),
        train=config.TrainOnSampled(epochs=2, batch_size=32),
        policy_gradient=config.Compared(clip_low=0.1 / 1.1, clip_high=0.1),
    ),
    "grpo": _variant(PolicyGradient, policy_gradient=_by_std()),
    "dapo": _variant(PolicyGradient, policy_gradient=_by_std(clip_high=0.28, average="token")),
    "gspo": _variant(Gspo, policy_gradient=_by_std(ratio="sequence", clip_low=3e-4, clip_high=4e-4)),
    "gigpo": PolicyGradient,
    "arpo_replay": _variant(ArpoReplay, policy_gradient=_by_std(clip_high=0.3)),
    "tree_grpo": _variant(PolicyGradient, run=_rounds(32, 6), policy_gradient=_by_std()),
    "arpo_entropy": _variant(PolicyGradient, run=_rounds(16, 16), policy_gradient=_by_std()),
    "tree_rl": _variant(OnPolicy, run=_rounds(16, 15)),
    "tree_po": _variant(OnPolicy, run=_rounds(32, 6), policy_gradient=config.Clipped(clip_high=0.28, average="token")),
    "ppo": Ppo,
    "step_agent_implicit": Imitation,
    "step_agent_inverse": _variant(StepAgentInverse, run=config.Rounds(num_rounds=3)),
}
COMMANDS: dict[str, type[Section]] = {
    "demo": Demo,
    "ladder": Ladder,
    "eval": EvalCommand,
    "eval --search": EvalSearchCommand,
    "eval --search step": EvalSearchCommand,
    "run": Live,
    "doctor": Examined,
    **{f"train {name}": model for name, model in RECIPES.items()},
}
