"""A checkpoint as strangers make them: its tokens cross words, tokenizer and template both put a beginning token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXTS = ["Action: click the button", "Action: scroll down", "OBSERVATION: link Blue Harbor [3]", "COMMANDS: CLICK [3]"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def crossing_tokenizer(template: str | None = TEMPLATE) -> Any:
    """Byte-level BPE over whole texts, so that a token may hold the end of a prompt and the beginning of an answer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 9, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>", chat_template=template
    )


def foreign_checkpoint(path: Path, *, template: str | None = TEMPLATE, gpt2: bool = False, seed: int = 0) -> Path:
    """A random model under `crossing_tokenizer`, whose pad token is its end token; gpt2: learned positions, no RoPE."""
    tokenizer = crossing_tokenizer(template)
    torch.manual_seed(seed)
    shared: dict[str, Any] = {"vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    shared |= {"max_position_embeddings": 1024, "initializer_range": 0.2}
    model: Any
    if gpt2:
        model = GPT2LMHeadModel(GPT2Config(**shared, n_embd=32, n_layer=2, n_head=4))
    else:
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        model = LlamaForCausalLM(LlamaConfig(**shared, **sizes, num_key_value_heads=2))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
