"""The settings of each command and recipe: models whose fields are exactly the settings it reads, with its defaults.

Imports nothing heavy, so `load` reports a wrong setting before torch is imported. The recipes cite the sources.
"""

from __future__ import annotations

from agentq import config
from agentq.config import Section, Settings
from agentq.errors import ConfigError
from agentq.model_settings import CriticSettings


class Training(Settings):
    """The settings that `recipes.rounds` reads for every recipe. A recipe's own settings are a subclass."""

    run: config.Rounds = config.Rounds()
    train: config.Train = config.Train()
    eval: config.EvalBoth = config.EvalBoth()


class Grouped(Training):
    """Several rollouts per task."""

    search: config.Episodes = config.Episodes()
    run: config.Groups = config.Groups()


class Rft(Grouped):
    run: config.Groups = config.Groups(num_tasks=120, group_size=4)
    train: config.Train = config.Train(epochs=2)
    rft: config.Kept = config.Kept()


class Ei(Grouped):
    """Groups, tasks and temperature 1 as in LOOP, arXiv:2502.01600, appendix D. The number of rounds is ours."""

    search: config.Episodes = config.Episodes(temperature=1.0)
    run: config.Groups = config.Groups(group_size=6, num_tasks=40, num_rounds=10)


class OutcomeDpo(Grouped):
    run: config.Contests = config.Contests()
    train: config.Dpo = config.Dpo(learning_rate=1e-5)


class AgentQ(Training):
    search: config.RankedTrees = config.RankedTrees()
    critic: CriticSettings = CriticSettings()
    pairs: config.Pairs = config.Pairs()
    train: config.Dpo = config.Dpo()


class StepAgentImplicit(Training):
    search: config.Episodes = config.Episodes(temperature=1.0)
    run: config.Rounds = config.Rounds(num_rounds=3)
    train: config.Dpo = config.Dpo(sft_weight=0.0)


class OnPolicy(Training):
    """Actions are sampled from the density that is trained: at temperature 1, from the unconstrained policy."""

    train: config.TrainOnSampled = config.TrainOnSampled(batch_size=64)
    policy_gradient: config.Clipped = config.Clipped()

    def check(self, name: str) -> None:
        """See `Section.check`."""
        super().check(name)
        if self.run.constrained:
            raise ConfigError(f"run.constrained must be false for {name}, whose ratios are of the free policy")


class StepAgentInverse(OnPolicy):
    run: config.Rounds = config.Rounds(num_rounds=3)


class Ppo(OnPolicy):
    run: config.Groups = config.Groups(group_size=8, num_tasks=32, num_rounds=10)


class Family(OnPolicy):
    """The REINFORCE family: advantages come from the returns of rollouts."""

    run: config.Groups = config.Groups()
    policy_gradient: config.Compared = config.Compared()

    def check(self, name: str) -> None:
        """See `Section.check`."""
        super().check(name)
        most, t = self.run.num_tasks * self.run.group_size, self.train
        if self.policy_gradient.ratio == "none" and (t.epochs > 1 or t.batch_size < most):
            raise ConfigError(  # without a ratio, the data are valid for one step only
                f"train.epochs must be 1 and train.batch_size at least run.num_tasks * run.group_size ({most}) for "
                f"{name}, which is strictly on-policy; got {t.epochs} and {t.batch_size}"
            )


class Reinforce(Family):
    """With `ratio` none and `average` constant, this is the gradient of the trajectory's log-probability."""

    run: config.Groups = config.Groups(group_size=1, num_tasks=240, num_rounds=10)
    train: config.TrainOnSampled = config.TrainOnSampled(batch_size=240)
    policy_gradient: config.Compared = config.Compared(ratio="none", average="constant")


class Rloo(Reinforce):
    run: config.Contests = config.Contests(group_size=6, num_tasks=40, num_rounds=10)


class PolicyGradient(Family):
    """Advantages from comparing the rollouts of a task."""

    run: config.Contests = config.Contests(group_size=8, num_tasks=32, num_rounds=10)


class Loop(PolicyGradient):
    """Clip 0.1 as in the released code: the ratio stays in [1 / 1.1, 1.1]. PPO and the paper use 1 - 0.1 below."""

    run: config.Contests = config.Contests(group_size=6, num_tasks=40, num_rounds=10)
    train: config.TrainOnSampled = config.TrainOnSampled(epochs=2, batch_size=32)
    policy_gradient: config.Compared = config.Compared(clip_low=0.1 / 1.1, clip_high=0.1)


class Grpo(PolicyGradient):
    policy_gradient: config.Compared = config.Compared(divide_by_std=True)


class Dapo(PolicyGradient):
    policy_gradient: config.Compared = config.Compared(clip_high=0.28, average="token", divide_by_std=True)


class Gspo(PolicyGradient):
    policy_gradient: config.Compared = config.Compared(
        ratio="sequence", clip_low=3e-4, clip_high=4e-4, divide_by_std=True
    )


class ArpoReplay(PolicyGradient):
    policy_gradient: config.Compared = config.Compared(clip_high=0.3, divide_by_std=True)


class TreeGrpo(Grpo):
    run: config.Contests = config.Contests(group_size=6, num_tasks=32, num_rounds=10)


class ArpoEntropy(Grpo):
    run: config.Contests = config.Contests(group_size=16, num_tasks=16, num_rounds=10)


class Demo(Settings):
    """The settings that all rungs of `recipes.ladder` share. The demo takes 15 minutes on two cores (all ours)."""

    run: config.Rounds = config.Rounds(num_tasks=60)
    search: config.Trees = config.Trees()
    critic: CriticSettings = CriticSettings()
    pairs: config.Pairs = config.Pairs()
    train: config.Dpo = config.Dpo()
    rft: config.RftRung = config.RftRung(num_tasks=80)
    eval: config.EvalRungs = config.EvalRungs(num_tasks=100)


class Ladder(Demo):
    run: config.Rounds = config.Rounds()
    rft: config.RftRung = config.RftRung()
    outcome_dpo: config.OutcomeDpoRung = config.OutcomeDpoRung()
    eval: config.EvalRungs = config.EvalRungs()


class EvalCommand(Settings):
    eval: config.Eval = config.Eval()


class EvalSearchCommand(Settings):
    search: config.Search = config.Search()
    critic: CriticSettings = CriticSettings()
    eval: config.EvalSearch = config.EvalSearch()


class Live(Section):
    """`agentq run`."""

    run: config.Draws = config.Draws()
    search: config.SearchRule = config.SearchRule()
    price: config.Prices = config.Prices()


# by name, which is also the module that defines RECIPE
RECIPES: dict[str, type[Training]] = {
    "sft": Training,
    "rft": Rft,
    "ei": Ei,
    "outcome_dpo": OutcomeDpo,
    "agent_q": AgentQ,
    "reinforce": Reinforce,
    "rloo": Rloo,
    "loop": Loop,
    "grpo": Grpo,
    "dapo": Dapo,
    "gspo": Gspo,
    "gigpo": PolicyGradient,
    "arpo_replay": ArpoReplay,
    "tree_grpo": TreeGrpo,
    "arpo_entropy": ArpoEntropy,
    "ppo": Ppo,
    "step_agent_implicit": StepAgentImplicit,
    "step_agent_inverse": StepAgentInverse,
}
COMMANDS: dict[str, type[Section]] = {
    "demo": Demo,
    "ladder": Ladder,
    "eval": EvalCommand,
    "eval --search": EvalSearchCommand,
    "eval --search step": EvalSearchCommand,
    "run": Live,
    **{f"train {name}": model for name, model in RECIPES.items()},
}
