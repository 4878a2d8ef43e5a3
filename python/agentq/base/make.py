"""Makes the embedded base checkpoint from nothing but a seed: pages, tokenizer, pretraining, few demonstrations.

Only tasks of the BASE split are used, so train, validation and test tasks stay unseen. The model is weak at acting on
purpose: pretraining teaches it to read, copy and name elements, and it sees few demonstrations of whole tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentq.base.demonstrations import Demonstration, demonstrate
from agentq.base.mixture import demonstration_stream, exercise_stream, mixed, tokenizer_texts
from agentq.base.pages import collect_pages
from agentq.base.tokenizer import train_tokenizer
from agentq.base.training import train
from agentq.learn.sharding import Ranks, join
from agentq.policies.transformers_engine import load_checkpoint
from agentq.store.durable import disk_named, make_directory, write_whole

TOKENIZER_DEMONSTRATIONS = 60  # per site: the tokenizer does not depend on the number of demonstrations
# Random streams, as distances from the settings' seed. Each site adds its index, each process 100.
PAGES, DEMONSTRATIONS, RANKED = 0, 10, 20
PRETRAINING, ACTING = 0, 1
PROCESS = 100


@dataclass(frozen=True, slots=True)
class BaseSettings:
    """All ours. Numbers of demonstrations and walks are per site; token counts include padding."""

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
    ranked_demonstrations: int = 1600  # seen only as ranking questions: judging is taught more than acting
    slip_rate: float = 0.1  # share of the expert's steps that another action replaces; the expert then recovers
    exercise_every: int = 2  # while demonstrating, one sequence in so many is an exercise
    demonstration_tokens: int = 1_500_000
    learning_rate: float = 2.5e-3
    demonstration_learning_rate: float = 1.2e-3
    seed: int = 0


def make_base(
    out: Path, settings: BaseSettings, *, device: str = "cpu", on_step: Callable[[str, dict[str, float]], None]
) -> None:
    """Write the checkpoint, `base.json` (settings, sizes) and `training.jsonl` (the log) to `out`.

    The pretrained model is kept in `out/pretrained`, so a repeated call starts after that stage. Under `torchrun` the
    processes share the training, on CPUs only; the first one writes.
    """
    s, ranks = settings, join(device)
    torch.manual_seed(s.seed)
    log: list[dict[str, Any]] = []

    def note(stage: str) -> Callable[[dict[str, float]], None]:
        def write(metrics: dict[str, float]) -> None:
            on_step(stage, metrics)
            if metrics["step"] % 20 == 0:
                log.append({"stage": stage, **{k: round(v, 4) for k, v in metrics.items() if k != "eta_s"}})

        return write

    def shown(n: int, seed: int, start: int = 0, slip_rate: float = 0.0) -> list[Demonstration]:
        return [d for i, x in enumerate(s.sites) for d in demonstrate(x, n, seed + i, start=start, slip_rate=slip_rate)]

    pages = [page for i, site in enumerate(s.sites) for page in collect_pages(site, s.walks, s.seed + PAGES + i)]
    demos = shown(s.demonstrations, s.seed + DEMONSTRATIONS, slip_rate=s.slip_rate)
    ranked = shown(s.ranked_demonstrations, s.seed + RANKED, s.demonstrations, s.slip_rate)
    own = s.seed + PROCESS * ranks.index
    pretrained = out / "pretrained"
    if not (pretrained / "model.safetensors").exists():
        texts = tokenizer_texts(pages, shown(TOKENIZER_DEMONSTRATIONS, s.seed + DEMONSTRATIONS))
        tokenizer = train_tokenizer(texts, vocab_size=s.vocab_size, context_tokens=s.context_tokens)
        model = LlamaForCausalLM(_config(s, tokenizer)).to(device)
        source = exercise_stream(tokenizer, pages, own + PRETRAINING)
        train(model, source, num_tokens=s.pretrain_tokens, learning_rate=s.learning_rate, on_step=note("pretrain"))
        _save(model, tokenizer, pretrained, ranks)
    model, tokenizer = load_checkpoint(pretrained, device=device, dtype=torch.float32)
    exercises = exercise_stream(tokenizer, pages, own + ACTING)
    acting = demonstration_stream(tokenizer, demos, ranked, own + ACTING)
    source = mixed(acting, exercises, every=s.exercise_every)
    rate = s.demonstration_learning_rate
    train(model, source, num_tokens=s.demonstration_tokens, learning_rate=rate, on_step=note("demonstrate"))
    _save(model, tokenizer, out, ranks)
    if ranks.first:
        summary = {"settings": asdict(s), "parameters": sum(p.numel() for p in model.parameters()), "pages": len(pages)}
        summary |= {"demonstration_steps": len(demos), "vocabulary": len(tokenizer)}
        write_whole(out / "base.json", f"{json.dumps(summary, indent=1)}\n".encode())
        kept = out / "training.jsonl"
        before = kept.read_bytes() if kept.exists() else b""
        write_whole(kept, before + "".join(json.dumps(line) + "\n" for line in log).encode())


def _save(model: Any, tokenizer: Any, path: Path, ranks: Ranks) -> None:
    """Write each file whole, the weights last: a directory with weights is complete."""
    if ranks.first:
        make_directory(path)
        with disk_named(path), TemporaryDirectory(dir=path, prefix=".partial-") as made:
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            for file in sorted(Path(made).iterdir(), key=lambda file: file.suffix == ".safetensors"):
                write_whole(path / file.name, file.read_bytes())
    ranks.wait()


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
