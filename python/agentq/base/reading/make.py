"""Makes the reading base from nothing but a seed: tokenizer, sites, training. `agentq base reading` runs it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from agentq.base.demonstrations import demonstrate
from agentq.base.mixture import tokenizer_texts
from agentq.base.pages import collect_pages
from agentq.base.reading.initial import write_induction_heads
from agentq.base.reading.mixture import KINDS, exercise_stream, own_texts, texts_of
from agentq.base.reading.programs import Programs
from agentq.base.reading.progress import held_out
from agentq.base.reading.sites import Sites
from agentq.base.reading.tokenizer import train_reading_tokenizer
from agentq.base.reading.training import BATCH_TOKENS, Metrics, train_parts
from agentq.base.training import Sequence
from agentq.errors import ConfigError
from agentq.learn.sharding import join
from agentq.store.directory import Lock
from agentq.store.durable import make_directory, write_whole

HEAD = 32  # size of a head


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """All ours. Numbers of walks and demonstrations are per site and 60 M tokens; token counts include padding."""

    sites: tuple[str, ...] = ("booking", "shop")
    hidden_size: int = 160  # a multiple of HEAD
    num_layers: int = 6
    vocab_size: int = 4096
    context_tokens: int = 2048
    tokenizer_walks: int = 300
    tokenizer_exercises: int = 1500  # of each kind
    tokenizer_programs: int = 500  # episodes of `apps/1`
    walks: int = 400  # on `shop`
    demonstrations: int = 60
    corrected: int = 40  # episodes of `shop` after the first product has proved wrong
    ranked_demonstrations: int = 400  # seen only as questions of ranking and judging
    programs: int = 60  # episodes of `apps/1`
    slip_rate: float = 0.15  # share of the expert's steps that another action replaces; the expert then recovers
    longest: int = 1000  # tokens of an exercise
    tokens: int = 60_000_000
    batch_tokens: int = BATCH_TOKENS
    learning_rate: float = 2e-3
    held_out: int = 25  # exercises of each kind after each part
    seed: int = 0


def make_reading(
    out: Path,
    s: ReadingSettings,
    *,
    start: Path | None = None,
    device: str = "cpu",
    on_step: Callable[[Metrics], None] = lambda _: None,
) -> None:
    """Train in `out`, or go on there. After each part it has a checkpoint that can be used.

    `start`: an earlier result, whose model and tokenizer are trained on; its tokens count too. The optimiser is new.
    Under `torchrun` the processes share the training, on CPUs only.

    Raises:
        ConfigError: if `start` has no log of its tokens, or no fewer than `s.tokens`.
        StoreError: if another process trains there.
    """
    begun = _last(start, s.tokens) if start else {}
    torch.manual_seed(s.seed)
    make_directory(out)
    ranks = join(device)
    with closing(Lock(out)) if ranks.first else nullcontext():
        if start and ranks.first and not (out / "tokenizer").exists():
            write_whole(out / "training.jsonl", (start / "training.jsonl").read_bytes())
            AutoTokenizer.from_pretrained(start).save_pretrained(out / "tokenizer")
        tokenizer = _tokenizer(out / "tokenizer", s) if ranks.first else None
        ranks.wait()
        tokenizer = tokenizer or _tokenizer(out / "tokenizer", s)
        if start:
            model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
        else:
            model = LlamaForCausalLM(_config(s, tokenizer))
            write_induction_heads(model)
        times = max(1, round(s.tokens / 60e6))  # what comes too often is remembered instead of read
        sites = Sites.collect(
            walks=times * s.walks,
            acted=times * s.demonstrations,
            ranked=times * s.ranked_demonstrations,
            slip_rate=s.slip_rate,
            seed=s.seed,
            corrected=times * s.corrected,
        )
        kinds = {**KINDS, **sites.kinds, "block": Programs.collect(times * s.programs).block}

        def stream(part: int, tokens: float, maker: int) -> Iterator[Sequence]:
            own = (maker or ranks.index,) if maker or not ranks.first else ()  # either makers or ranks are several
            return exercise_stream(tokenizer, kinds, (s.seed, 3, part, *own), tokens, s.longest)

        train_parts(
            model.to(device),
            stream,
            out,
            num_tokens=s.tokens,
            learning_rate=s.learning_rate,
            batch_tokens=s.batch_tokens,
            after_part=lambda: (
                _written(model, tokenizer, out) | held_out(model, tokenizer, kinds, n=s.held_out, seed=s.seed)
            ),
            on_step=on_step,
            ranks=ranks,
            begun=begun,
        )


def _last(start: Path, tokens: int) -> Metrics:
    """The last line of an earlier result's log."""
    log = start / "training.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    if not lines:
        raise ConfigError(f"--base must be what agentq base reading made; got {start} without its training.jsonl")
    found: Metrics = json.loads(lines[-1])
    if found["tokens"] >= tokens:
        raise ConfigError(f"--tokens must be more than the {found['tokens']} of {start}; got {tokens}")
    return found


def _written(model: Any, tokenizer: Any, out: Path) -> Metrics:
    """Write each file of the checkpoint whole, the weights last: a directory with weights is complete."""
    with TemporaryDirectory(dir=out, prefix=".partial-") as made:
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        for file in sorted(Path(made).iterdir(), key=lambda file: file.suffix == ".safetensors"):
            write_whole(out / file.name, file.read_bytes())
    return {}


def _tokenizer(path: Path, s: ReadingSettings) -> Any:
    """The tokenizer in `path`, trained if it is not there."""
    if not (path / "tokenizer.json").exists():
        pages = [page for i, site in enumerate(s.sites) for page in collect_pages(site, s.tokenizer_walks, s.seed + i)]
        demos = [d for i, site in enumerate(s.sites) for d in demonstrate(site, 60, s.seed + 10 + i)]
        programs = Programs.collect(s.tokenizer_programs, first_task=1_000_000).episodes
        texts = [*tokenizer_texts(pages, demos), *own_texts(s.tokenizer_exercises, s.seed), *texts_of(programs)]
        made = train_reading_tokenizer(texts, vocab_size=s.vocab_size, context_tokens=s.context_tokens)
        made.save_pretrained(path)
    return AutoTokenizer.from_pretrained(path)


def _config(s: ReadingSettings, tokenizer: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=s.hidden_size,
        intermediate_size=round(2.6 * s.hidden_size / HEAD) * HEAD,
        num_hidden_layers=s.num_layers,
        num_attention_heads=s.hidden_size // HEAD,
        num_key_value_heads=s.hidden_size // HEAD,
        max_position_embeddings=s.context_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
