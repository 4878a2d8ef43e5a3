"""Makes the embedded base checkpoint from nothing but a seed: pages, tokenizer, pretraining, few demonstrations.

Only BASE-split tasks are used, so train, validation and test tasks stay unseen. What is weak on purpose is acting: the
model reads, copies and names elements after pretraining, but has seen few demonstrations of whole tasks.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

from agentq import envs
from agentq.agent.actions import format_action
from agentq.agent.prompts import LETTERS, plain_text, policy_messages
from agentq.base.exercises import (
    FIRST_TIME,
    NAVIGATION,
    PLACE,
    SECOND_TIME,
    TrainingExample,
    alike,
    ask_example,
    list_example,
    make_example,
    near_misses,
    page_elements,
    past_actions,
    rank_example,
)
from agentq.base.tokenizer import train_tokenizer
from agentq.base.training import Sequence, encode_example, train
from agentq.envs.booking import tasks as booking
from agentq.envs.explore import random_action, random_walk
from agentq.envs.shop import tasks as shop
from agentq.policies.transformers_engine import load_checkpoint
from agentq.store.durable import disk_named, make_directory, write_whole
from agentq.types import EnvAction, History, Observation, Split, Task

TOKENIZER_DEMONSTRATIONS = 60  # a site; their texts join the tokenizer's, however many demonstrations there are
DEMONSTRATION_START = 0  # BASE indices of demonstrations; walks start far behind them
WALK_START = 1_000_000
LIST_SHARE = 0.25  # of the exercises
ASK_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class BaseSettings:
    """All ours. `demonstrations` is per site; token counts are padded training tokens."""

    sites: tuple[str, ...] = ("booking", "shop")
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 4
    vocab_size: int = 2048
    context_tokens: int = 1024
    walks: int = 4000
    pretrain_tokens: int = 55_000_000
    demonstrations: int = 60
    ranked_demonstrations: int = (
        1600  # further ones, seen only as ranking questions: judging is taught more than acting
    )
    slip_rate: float = 0.1  # of the expert's steps, replaced by another action, which the expert then has to mend
    exercise_every: int = 2  # while demonstrating, one sequence in two stays an exercise
    demonstration_tokens: int = 1_500_000
    learning_rate: float = 2.5e-3
    demonstration_learning_rate: float = 1.2e-3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One expert step: the history, the composite action's text, what else could have been done there."""

    history: History
    text: str
    action: EnvAction
    thought: str
    others: tuple[EnvAction, ...]


def collect_pages(site: str, walks: int, seed: int, *, per_kind: int = 3000) -> list[tuple[Observation, Task]]:
    """Distinct pages of random walks and their tasks, at most `per_kind` of each kind (first word of the path)."""
    env, rng = envs.make(site), random.Random(seed)
    by_kind: dict[str, dict[str, tuple[Observation, Task]]] = defaultdict(dict)
    for index in range(walks):
        task = envs.task(site, Split.BASE, WALK_START + index)
        for _, _, page in random_walk(env, task, rng, 24):
            kind = page_kind(page)
            if len(by_kind[kind]) < per_kind:
                by_kind[kind][page.fingerprint] = (page, task)
    return [page for pages in by_kind.values() for page in pages.values()]


def page_kind(page: Observation) -> str:
    """The words of a page's path, without its numbers."""
    return re.sub(r"\d+", "", page.url.split("?")[0])


def demonstrate(
    site: str, n: int, seed: int, *, start: int = DEMONSTRATION_START, slip_rate: float = 0.0
) -> list[Demonstration]:
    """The expert's steps on `n` BASE tasks, each with a few other actions its page would take.

    With `slip_rate` another action is sometimes taken in place of the expert's, so that its next steps show how to go
    on from there (Laskey et al. 2017, arXiv:1703.09327); what is to be learnt stays the expert's.
    """
    env, expert, rng = envs.make(site), envs.expert(site), random.Random(seed)
    found = []
    for index in range(n):
        task = envs.task(site, Split.BASE, start + index)
        history = History.of(task, env.reset(task))
        while True:
            advice = expert(task, env)
            text = format_action(
                advice.env_action,
                plan="" if history.actions else expert.plan,
                thought=advice.thought,
                explanation=advice.explanation,
                status=advice.status,
            )
            others = tuple(random_action(env, task, rng) for _ in range(8))
            found.append(Demonstration(history, text, advice.env_action, advice.thought, others))
            action = advice.env_action
            if others[0] != action and rng.random() < slip_rate:
                action, text = others[0], slip_text(history.observation, others[0])
            result = env.step(action)
            if result.terminated or result.truncated:
                break
            history = history.then(text, result.observation)
    return found


def slip_text(page: Observation, action: EnvAction) -> str:
    """A slip as the model would write it: the element's name and id, the value."""
    name = next((name for _, element, name in page_elements(page.text) if element == action.element), "")
    return format_action(action, thought=f"{name} [{action.element}] {action.text or ''}".strip())


def _facts(task: Task) -> dict[str, str]:
    """What the instruction says of each field, by the field's name on the page."""
    if task.env == "booking":
        f = booking.facts(task.seed)
        details = {"First name": f.first_name, "Last name": f.last_name, "Phone": f.phone, "Email": f.email}
        visit = {"Date": f.date, "Time": f.first_choice, "Party": f.party, "Seating": f.seating}
        choices = {FIRST_TIME: f.first_choice, SECOND_TIME: f.second_choice}
        return {PLACE: f.place.title, "Search": f.place.name, **choices, **visit, **details}
    g = shop.goal(task.seed)
    return {"Search": g.query, "Color": g.color, "Size": g.size}


class _Teller:
    """Finds an instruction that has something to do with a page: a branch of a restaurant listed, a time offered."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = [task for task in tasks if task.env == "booking"]
        self.by_name: dict[str, list[Task]] = defaultdict(list)
        for task in self.tasks:
            self.by_name[booking.facts(task.seed).place.name].append(task)

    def task(self, rng: np.random.Generator, page: Observation) -> Task | None:
        """A task about one of the page's links, there or only like one of them, equally often; None without any."""
        links = [name for role, _, name in page_elements(page.text) if role == "link"]
        like = [task for name in links for task in self.by_name.get(name.rpartition(" ")[0], ())]
        if any(name.endswith(" PM") for name in links):
            drawn = rng.integers(len(self.tasks), size=40)
            told = [(task, _facts(task)) for task in (self.tasks[i] for i in drawn)]
            like = [task for task, facts in told if facts[FIRST_TIME] in links or facts[SECOND_TIME] in links]
        there: tuple[list[Task], list[Task]] = ([], [])
        for task in like:
            facts = _facts(task)
            there[facts[PLACE] in links or facts[FIRST_TIME] in links].append(task)
        found = there[int(rng.random() < 0.5)] or like
        return found[int(rng.integers(len(found)))] if found else None


def _pretraining(tokenizer: Any, pages: list[tuple[Observation, Task]], seed: int) -> Iterator[Sequence]:
    rng = np.random.default_rng(seed)
    kinds: dict[tuple[str, str], list[tuple[Observation, Task]]] = defaultdict(list)
    for item in pages:
        kinds[item[1].env, page_kind(item[0])].append(item)
    groups = [group for group in kinds.values() if len(group) >= 20]
    kinds_of_names = [{name for _, _, name in page_elements(group[0][0].text)} - {*NAVIGATION} for group in groups]
    teller = _Teller([task for _, task in pages])
    asks = [any(teller.task(rng, page) for page, _ in group[:20]) for group in groups]
    sizes = np.array([2 + len(names) for names in kinds_of_names])
    shares = sizes / sizes.sum()  # kinds of pages with more to tell apart come more often
    names = alike(sorted({name for page, _ in pages for role, _, name in page_elements(page.text) if role == "link"}))
    askable = [group for group, some in zip(groups, asks, strict=True) if some]
    while True:
        kind = rng.random()
        if kind < LIST_SHARE:
            yield encode_example(tokenizer, list_example(rng, names), rng, prompt_weight=0.3)
            continue
        if kind < LIST_SHARE + ASK_SHARE and askable:
            group = askable[rng.integers(len(askable))]
            page, past_page = (group[rng.integers(len(group))][0] for _ in range(2))
            about = [t for t in (teller.task(rng, page) for _ in range(int(rng.integers(3, 7)))) if t]
            past = past_actions(rng, past_page, [past_page.text])
            example = ask_example(rng, page, [(t.instruction, _facts(t)) for t in about], past)
            if example is not None:
                yield encode_example(tokenizer, example, rng, prompt_weight=0.3)
            continue
        group = groups[rng.choice(len(groups), p=shares)]
        page, task = group[rng.integers(len(group))]
        like_page, _ = group[rng.integers(len(group))]
        other_page, other_task = pages[rng.integers(len(pages))]
        told = task if rng.random() < 0.5 else other_task  # any instruction, also one that does not fit the page
        if rng.random() < 0.7:
            told = teller.task(rng, page) or told
        values = [page.text, like_page.text, other_page.text, task.instruction, other_task.instruction]
        past_page = like_page if rng.random() < 0.5 else other_page
        example = make_example(rng, page, told.instruction, _facts(told), values, past_page)
        if example is not None:
            yield encode_example(tokenizer, example, rng, prompt_weight=0.3)


def _demonstrations(
    tokenizer: Any, acted: list[Demonstration], ranked: list[Demonstration], seed: int
) -> Iterator[Sequence]:
    """In turn: an expert's step to take, and a step of another episode to pick out of others."""
    rng = np.random.default_rng(seed)
    while True:
        for i in rng.permutation(len(acted)):
            d = acted[i]
            yield encode_example(tokenizer, TrainingExample(policy_messages(d.history), d.text), rng, prompt_weight=0.0)
            r = ranked[int(rng.integers(len(ranked)))]
            others = [*r.others, *near_misses(rng, r.history.observation.text, r.action, [r.history.instruction])]
            ranking = rank_example(rng, r.history, r.action, others)
            if ranking is not None:
                yield encode_example(tokenizer, ranking, rng, prompt_weight=0.0)


def make_base(out: Path, settings: BaseSettings, *, on_step: Callable[[str, dict[str, float]], None]) -> None:
    """Write the checkpoint, `base.json` (settings, sizes) and `training.jsonl` (the log) to `out`.

    The pretrained stage is kept in `out/pretrained`, so an interrupted call goes on after it. Under `torchrun` the
    processes share the training; the first one writes.
    """
    s, rank = settings, int(os.environ.get("RANK", "0"))
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.manual_seed(s.seed)
    log: list[dict[str, Any]] = []

    def note(stage: str) -> Callable[[dict[str, float]], None]:
        def write(metrics: dict[str, float]) -> None:
            on_step(stage, metrics)
            if metrics["step"] % 20 == 0:
                log.append({"stage": stage, **{k: round(v, 4) for k, v in metrics.items() if k != "eta_s"}})

        return write

    def shown(n: int, seed: int, start: int = DEMONSTRATION_START, slip_rate: float = 0.0) -> list[Demonstration]:
        return [d for i, x in enumerate(s.sites) for d in demonstrate(x, n, seed + i, start=start, slip_rate=slip_rate)]

    pages = [page for i, site in enumerate(s.sites) for page in collect_pages(site, s.walks, s.seed + i)]
    demos = shown(s.demonstrations, s.seed + 10, slip_rate=s.slip_rate)
    ranked = shown(s.ranked_demonstrations, s.seed + 20, s.demonstrations, s.slip_rate)
    pretrained = out / "pretrained"
    if not (pretrained / "model.safetensors").exists():
        texts = _corpus(pages, shown(TOKENIZER_DEMONSTRATIONS, s.seed + 10))
        tokenizer = train_tokenizer(texts, vocab_size=s.vocab_size, context_tokens=s.context_tokens)
        model = LlamaForCausalLM(_config(s, tokenizer))
        source = _pretraining(tokenizer, pages, s.seed + 100 * rank)
        train(model, source, num_tokens=s.pretrain_tokens, learning_rate=s.learning_rate, on_step=note("pretrain"))
        _save(model, tokenizer, pretrained, rank)
    model, tokenizer = load_checkpoint(pretrained, device="cpu", dtype=torch.float32)
    exercises = _pretraining(tokenizer, pages, s.seed + 100 * rank + 1)
    source = _mixed(
        _demonstrations(tokenizer, demos, ranked, s.seed + 100 * rank + 1), exercises, every=s.exercise_every
    )
    rate = s.demonstration_learning_rate
    train(model, source, num_tokens=s.demonstration_tokens, learning_rate=rate, on_step=note("demonstrate"))
    _save(model, tokenizer, out, rank)
    if rank == 0:
        summary = {"settings": asdict(s), "parameters": sum(p.numel() for p in model.parameters()), "pages": len(pages)}
        summary |= {"demonstration_steps": len(demos), "vocabulary": len(tokenizer)}
        write_whole(out / "base.json", f"{json.dumps(summary, indent=1)}\n".encode())
        kept = out / "training.jsonl"
        before = kept.read_bytes() if kept.exists() else b""
        write_whole(kept, before + "".join(json.dumps(line) + "\n" for line in log).encode())


def _save(model: Any, tokenizer: Any, path: Path, rank: int) -> None:
    """Each file appears whole, the weights last: where these are, all are."""
    if rank == 0:
        make_directory(path)
        with disk_named(path), TemporaryDirectory(dir=path, prefix=".partial-") as made:
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            for file in sorted(Path(made).iterdir(), key=lambda file: file.suffix == ".safetensors"):
                write_whole(path / file.name, file.read_bytes())
    if dist.is_initialized():
        dist.barrier()


def _mixed(source: Iterator[Sequence], other: Iterator[Sequence], *, every: int) -> Iterator[Sequence]:
    """`source` with one of `other` after each `every - 1` of its own."""
    while True:
        for _ in range(every - 1):
            yield next(source)
        yield next(other)


def _corpus(pages: list[tuple[Observation, Task]], demos: list[Demonstration]) -> Iterator[str]:
    for page, task in pages:
        yield page.text
        yield task.instruction
    for d in demos:
        yield plain_text(policy_messages(d.history))
        yield d.text
    yield "".join(f" ({letter})" for letter in LETTERS)


def _config(s: BaseSettings, tokenizer: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=s.hidden_size,
        intermediate_size=s.hidden_size * 8 // 3 // 16 * 16,
        num_hidden_layers=s.num_layers,
        num_attention_heads=s.num_heads,
        num_key_value_heads=s.num_kv_heads,
        max_position_embeddings=s.context_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
