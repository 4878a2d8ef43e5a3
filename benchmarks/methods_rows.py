"""The rows of methods.py: what is trained, with which settings, and which rows make a table."""

from __future__ import annotations

from dataclasses import dataclass

BUDGET = 10_000  # environment steps of training, at most; of demonstrations the expert's
GROUPS = (
    *("--run.num_tasks=16", "--run.group_size=8", "--train.learning_rate=1e-4"),
    *("--train.epochs=2", "--train.batch_size=32"),
)
# Strictly on-policy: one step per round. Small rounds, so that there are about as many updates as with GROUPS.
STRICT = (*GROUPS, "--run.num_tasks=2", "--train.epochs=1", "--train.batch_size=16")


FAMILIES = {  # recipes that share a learning rate; the first stands for its family in `rates.py`
    "demonstrations": ("sft",),
    "imitation": ("rft", "ei"),
    "preferences": ("agent_q",),
    "outcomes": ("outcome_dpo",),
    "inspections": ("step_agent_implicit",),
    "strict": ("rloo", "reinforce"),
    "clipped": (
        *("grpo", "loop", "ppo", "dapo", "gspo", "gigpo", "arpo_replay", "arpo_entropy", "tree_grpo"),
        *("tree_rl", "tree_po", "step_agent_inverse"),
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One run. `recipe` None is the base itself. `start` names the row whose model training begins with.

    `{base}` in a word stands for the base's directory.
    """

    name: str
    recipe: str | None
    words: tuple[str, ...] = ()
    start: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows over one environment. `more`: settings of training and measuring; `also`: environments measured greedily."""

    env: str
    rows: list[Row]
    budget: int = BUDGET
    num_held_out: int = 200
    more: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


CHANGES = {  # of LOOP's loss, one at a time
    "": (),
    ", std": ("--policy_gradient.divide_by_std=true",),
    ", not clipped": ("--policy_gradient.clip_low=1", "--policy_gradient.clip_high=1e9"),
    ", constant": ("--policy_gradient.average=constant",),
}


def _loop(ratio: str, change: str) -> Row:
    unit = "trajectory" if ratio == "sequence" else ratio
    words = (*GROUPS, f"--policy_gradient.ratio={ratio}", *CHANGES[change])
    return Row(f"loop, ratio per {unit}{change}", "loop", words)


LOOP = [
    Row("base", None),
    *(_loop(ratio, change) for change in CHANGES for ratio in ("token", "turn", "sequence")),
    Row("rloo", "rloo", STRICT),
    Row("grpo", "grpo", GROUPS),
    Row("ppo", "ppo", GROUPS),
]
SHOWN, INSPECTED = 60, 300  # episodes of the expert that SFT is trained on; others whose states are inspected
ONCE = ("--run.num_rounds=1", "--train.epochs=2")
BEHIND_SHOWN = f"--run.first_task={SHOWN}"
OTHERS = (BEHIND_SHOWN, f"--run.num_tasks={INSPECTED}")
STEP_AGENT = [
    Row("base", None),
    Row("sft", "sft", (f"--run.num_tasks={SHOWN}", *ONCE)),
    Row("sft, all", "sft", (f"--run.num_tasks={SHOWN + INSPECTED}", *ONCE)),
    Row("step_agent_implicit", "step_agent_implicit", OTHERS, "sft"),
    Row("step_agent_inverse", "step_agent_inverse", (*OTHERS, "--train.learning_rate=1e-4"), "sft"),
    Row("ppo", "ppo", (*GROUPS, BEHIND_SHOWN), "sft"),
]
SEARCHED = ("--run.num_tasks=105", "--run.num_rounds=1")
ALL = [
    *STEP_AGENT[:5],
    Row("rft", "rft", ("--run.num_tasks=130", "--run.num_rounds=1")),
    Row("ei", "ei", ("--run.num_tasks=30",)),
    Row("outcome_dpo", "outcome_dpo", ("--run.num_tasks=65", "--run.num_rounds=1")),
    Row("agent_q", "agent_q", SEARCHED),
    Row("agent_q, no critic", "agent_q", (*SEARCHED, "--critic.model=none")),
    Row("agent_q, no replay", "agent_q", (*SEARCHED, "--train.sft_weight=0")),
    Row("reinforce", "reinforce", (*STRICT, "--run.group_size=1", "--run.num_tasks=16")),
    *(row for row in LOOP if row.name in ("rloo", "loop, ratio per token", "grpo", "ppo")),
    *(
        Row(name, name, GROUPS)
        for name in ("dapo", "gspo", "gigpo", "arpo_replay", "tree_grpo", "arpo_entropy", "tree_rl", "tree_po")
    ),
]
# On `apps` a base acts too seldom by itself, as LOOP's authors begin with an instructed model: all rows follow `sft`.
LEARNT = 200  # episodes of the expert
BEHIND = f"--run.first_task={LEARNT}"


def smaller(words: tuple[str, ...]) -> tuple[str, ...]:
    """Rounds of 6 tasks instead of 16, so that a quarter of the budget has several, too."""
    return tuple("--run.num_tasks=6" if word == GROUPS[0] else word for word in words)


APPS = [
    Row("base", None),
    Row("sft", "sft", (f"--run.num_tasks={LEARNT}", *ONCE, "--train.learning_rate=3e-4")),
    Row("rft", "rft", (BEHIND, "--run.num_tasks=100", *ONCE, "--train.learning_rate=1e-4"), "sft"),
    Row("agent_q", "agent_q", (BEHIND, "--run.num_tasks=50", "--run.num_rounds=1", "--critic.model=none"), "sft"),
    *(
        Row(row.name, row.recipe, (*smaller(row.words), BEHIND), "sft")
        for row in LOOP
        if row.name in ("rloo", "grpo", "ppo") or row in LOOP[1:4]
    ),
]
# On `booking/several` a base is sure of what it does, right or wrong, so all explore at a higher temperature. The
# critic is the base, which was taught to rank.
WARM = ("--run.num_rounds=1", "--search.temperature=1.2")
SEVERAL = [
    Row("base", None),
    Row("rft", "rft", ("--run.num_tasks=65", *WARM, "--train.epochs=2", "--train.learning_rate=1e-4")),
    Row("outcome_dpo", "outcome_dpo", ("--run.num_tasks=32", *WARM, "--train.learning_rate=3e-5")),
    Row("agent_q", "agent_q", ("--run.num_tasks=42", *WARM, "--critic.model={base}")),
    Row("agent_q, no critic", "agent_q", ("--run.num_tasks=42", *WARM, "--critic.model=none")),
]
SEVERAL_MORE = ("--run.max_unreadable=3", "--model.context=1000", "--model.max_new_tokens=128")
APPS_MORE = ("--model.max_new_tokens=256", "--run.max_unreadable=3", "--search.num_trees_in_flight=16")
TABLES: dict[str, Table] = {
    "loop": Table("booking", LOOP),
    "step_agent": Table("booking", STEP_AGENT),
    "step_agent_shop": Table("shop", STEP_AGENT),
    "step_agent_textworld": Table("textworld/3.5.3@127.0.0.1:7007", STEP_AGENT),
    "all": Table("booking", ALL),
    "apps": Table("apps/1", APPS, 2_500, 102, APPS_MORE, ("apps/challenge",)),  # 34 scenarios
    "several": Table("booking/several", SEVERAL, more=SEVERAL_MORE),
}
