"""Does a base model read? The gates that it must pass before any search is measured with it.

    python benchmarks/gates.py CHECKPOINT [--tasks 40] [--only copy verdicts critic judge] [--log FILE] [--json]

- `copy`: of 60 questions of each kind, how often it types, checks or clicks the right thing. All words are pseudo-words
  that its training never draws. At least 95 % of each kind.
- `verdicts`: pages of results of `shop` from tasks that training never sees, where each "[4] 54 yes" is a verdict, and
  lists of numbers beside a limit, "61 no , 54 yes". At least 95 % of verdicts; whole lists that are right have no aim.
- `critic`: of two proposals of the model itself at a state of the expert's path, does it rank the better one higher? At
  least 80 % of pairs on both sites.
- `judge`: of final pages of its own and the expert's episodes, how often it agrees with the checker. At least 90 % on
  both sites. A base that acts well hardly fails: `judge.py --judge CHECKPOINT` asks about more failures.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from critic import found_nodes, pair_accuracy, together, wrong
from judge import measure as judged
from machine import commit, machine

from agentq.agent.actions import action_key, parse_action
from agentq.base.exercises import TrainingExample
from agentq.base.reading import copying, deciding, shopping
from agentq.base.reading.copying import ask, put
from agentq.base.reading.sites import HELD_OUT_FROM, Sites
from agentq.base.reading.words import Words
from agentq.critics.judge import OutcomeJudge
from agentq.critics.ranker import LLMRanker
from agentq.evaluation.stats import wilson
from agentq.policies.engine_names import make_engine
from agentq.policies.model_policy import ModelPolicy
from agentq.policies.protocol import Engine, SampleRequest
from agentq.types import History, Observation

SITES = ("booking", "shop")
AT_LEAST = {"copy": 0.95, "verdicts": 0.95, "critic": 0.8, "judge": 0.9}
_VERDICT = re.compile(r"\[\d+\] \S+ (?:yes|no)")


def one_field(w: Words, *, quoted: bool) -> TrainingExample:
    """One word to type into the only field."""
    word = w.pseudo()
    said = f'Enter "{word}" into the text field and press Submit.' if quoted else f"type {word} in Name"
    return ask([(said, put("Name", 1, word))], "textbox Name [1]\nbutton Submit [2]")


def one_of_several(w: Words) -> TrainingExample:
    """Three names and values in the instruction; the page asks for one of them."""
    labels, values = ["First name", "City", "Note"], [w.pseudo() for _ in range(3)]
    at = w.below(3)
    told = " , ".join(f"{label} {value}" for label, value in zip(labels, values, strict=True))
    return ask([(told, put(labels[at], 1, values[at]))], f"textbox {labels[at]} [1]\nbutton Submit [2]")


COPIED = {
    "quoted": partial(one_field, quoted=True),
    "plain": partial(one_field, quoted=False),
    "one of several": one_of_several,
    "form": copying.form,
    "pick": copying.pick,
    "boxes": copying.several,
}


def answers(engine: Engine, examples: Sequence[TrainingExample]) -> list[str]:
    """The greedy answer to the first question of each example."""

    async def one(example: TrainingExample) -> str:
        prompt = engine.render(History("", Observation("")), lambda _: example.messages, max_new_tokens=160)
        (answer,) = await engine.sample(SampleRequest(prompt, temperature=0.0, max_new_tokens=160))
        return answer.text

    return together(one(example) for example in examples)


def share(hits: int, n: int) -> dict[str, Any]:
    """A share with Wilson's interval."""
    return {"hits": hits, "n": n, "share": hits / n, "interval": list(wilson(hits, n))}


def copy(engine: Engine, n: int, _: int) -> dict[str, Any]:
    """The share of right actions by kind."""
    found = {}
    for name, kind in COPIED.items():
        w = Words(np.random.default_rng([7, len(name)]), held_out=True)
        examples = [kind(w) for _ in range(n)]
        said = answers(engine, examples)
        found[name] = share(sum(_same(a, e.answer) for a, e in zip(said, examples, strict=True)), n)
    return found


def _same(said: str, wanted: str) -> bool:
    return action_key(parse_action(said).env_action) == action_key(parse_action(wanted).env_action)


def verdicts(engine: Engine, n: int, _: int) -> dict[str, Any]:
    """The share of right verdicts, one by one, and of right actions, on `n` held-out pages of results."""
    sites = Sites.collect(walks=n, acted=1, ranked=1, slip_rate=0.0, seed=99, first_task=HELD_OUT_FROM)
    w = Words(np.random.default_rng(99), held_out=True)
    examples = [shopping.results(sites.pages, w) for _ in range(n)]
    said, hits, count = answers(engine, examples), 0, 0
    for answer, example in zip(said, examples, strict=True):
        wanted = _VERDICT.findall(example.answer)
        given = _VERDICT.findall(answer)[: len(wanted)]
        count += len(wanted)
        hits += sum(a == b for a, b in zip(given, wanted, strict=False))
    acted = share(sum(_same(a, e.answer) for a, e in zip(said, examples, strict=True)), n)
    limits = Words(np.random.default_rng(98), held_out=True)
    bare = [deciding.verdicts(limits) for _ in range(n)]
    numbers, lists = [0, 0], [0, n]
    for answer, example in zip(answers(engine, bare), bare, strict=True):
        wanted, given = example.answer.split(" , "), answer.strip().split(" , ")
        lists[0] += answer.strip() == example.answer
        numbers[0] += sum(a == b for a, b in zip(given, wanted, strict=False))
        numbers[1] += len(wanted)
    return {"verdicts": share(hits, count), "actions": acted, "numbers": share(*numbers), "whole lists": share(*lists)}


def critic(engine: Engine, _: int, tasks: int) -> dict[str, Any]:
    """The share of pairs of proposals that are ranked as their true values, and the task and actions of each other."""
    found = {}
    for site in SITES:
        nodes = found_nodes(site, max(1, tasks // 2), 5, engine)
        ranker = LLMRanker(engine)
        values = together(ranker.rank(node.history, node.proposals, seed=i) for i, node in enumerate(nodes))
        accuracy = pair_accuracy(values, [node.steps for node in nodes])
        found[site] = share(accuracy.hits, accuracy.n) if accuracy.n else {"share": 0.0, "hits": 0, "n": 0}
        found[site]["wrong"] = [
            {"task": node.history.instruction, "better": str(node.proposals[i]), "chosen": str(node.proposals[j])}
            for node, value in zip(nodes, values, strict=True)
            for i, j in wrong(value, node.steps)
        ]
    return found


def judge(engine: Engine, _: int, tasks: int) -> dict[str, Any]:
    """Agreement with the checker, approved failures and refused successes by site."""
    policy = ModelPolicy(engine)
    found = {}
    for site in SITES:
        said = judged(site, tasks, policy, OutcomeJudge(engine))
        agreed = said["model"]["agreement"]
        found[site] = {**share(agreed["count"], agreed["n"]), "confusion": said["model"], "episodes": said["episodes"]}
    return found


GATES = {"copy": copy, "verdicts": verdicts, "critic": critic, "judge": judge}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--only", nargs="+", choices=GATES, default=list(GATES))
    parser.add_argument("--questions", type=int, default=60, help="of each kind; default: %(default)s")
    parser.add_argument(
        "--tasks", type=int, default=40, help="of each site, for critic and judge; default: %(default)s"
    )
    parser.add_argument("--log", type=Path, help="append the result to this file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engine = make_engine(args.checkpoint)
    figures = {name: GATES[name](engine, args.questions, args.tasks) for name in args.only}
    targets = {
        f"{gate}: {name}": {"value": row["share"], "target": AT_LEAST[gate], "met": row["share"] >= AT_LEAST[gate]}
        for gate, rows in figures.items()
        for name, row in rows.items()
        if name != "whole lists"
    }
    result = {"checkpoint": args.checkpoint, "tokens": _tokens(Path(args.checkpoint)), "figures": figures}
    result |= {"targets": targets, "machine": machine("torch"), "commit": commit()}
    if args.log:
        with args.log.open("a") as log:
            log.write(json.dumps(result) + "\n")
    if args.json:
        print(json.dumps(result))
        return
    for name, row in targets.items():
        print(
            f"{name:<28} {100 * row['value']:5.1f} %  of {100 * row['target']:.0f}  {'met' if row['met'] else 'open'}"
        )


def _tokens(checkpoint: Path) -> int:
    """How many tokens the checkpoint was trained on, from the log beside it; 0 if there is none."""
    log = checkpoint / "training.jsonl"
    return int(json.loads(log.read_text().splitlines()[-1])["tokens"]) if log.exists() else 0


if __name__ == "__main__":
    main()
