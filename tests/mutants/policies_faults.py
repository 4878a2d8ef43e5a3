"""Faults in python/agentq/policies/."""

from __future__ import annotations

from tests.mutants.fault import Lines, faults_of

LINES: Lines = {
    ("policies/weights.py", "test_traps"): [
        ('MODEL_FILES = (".safetensors", ', "MODEL_FILES = ("),
        ("if file.suffix in MODEL_FILES:", "if True:"),
    ],
    ("policies/renderer.py", "test_traps"): [
        ('add_special_tokens=False, verbose=False)["input_ids"]\n        return',
         'verbose=False)["input_ids"]\n        return'),
        ('add_special_tokens=False, verbose=False)["input_ids"]\n        else',
         'verbose=False)["input_ids"]\n        else'),
    ],
    ("policies/decoding.py", "test_traps"): [
        ("torch.log_softmax(logits, dim=-1)",
         "torch.log_softmax(logits / torch.where(warm, temperatures[:, None], 1.0), dim=-1)"),
        ("torch.softmax(allowed / ",
         "torch.softmax(allowed.where(allowed >= allowed.topk(20)[0][..., -1:], -torch.inf) / "),
    ],
    ("policies/columns.py", "test_architectures"): [
        ("windowed = (behind >= 0)", "windowed = (behind > 0)"),
        ("last += range(at, len(ids))", "last += [at] * len(growth.tokens)"),
    ],
}  # fmt: skip

FAULTS = faults_of("python/agentq", LINES)
