"""Tokens drawn on an accelerator, against float64."""

from __future__ import annotations

import numpy as np
import torch

from agentq.policies import decoding


def test_torch_draws_from_the_whole_distribution_and_tells_log_probabilities_at_temperature_one() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4, 60))
    temperatures, uniforms = np.array([0.0, 0.5, 1.0, 2.0]), rng.random((4, 500))
    given = (torch.from_numpy(x) for x in (logits, logits, uniforms, temperatures))
    tokens, logps = (x.numpy() for x in decoding.draw(*given))
    every = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(logps, np.take_along_axis(every, tokens, axis=1), atol=1e-6)
    assert (tokens[0] == logits[0].argmax()).all()
    for row, temperature, drawn, us in zip(logits, temperatures, tokens, uniforms, strict=True):
        if temperature:
            shares = np.exp(row / temperature) / np.exp(row / temperature).sum()
            after = np.cumsum(shares)
            assert (after[drawn] >= us - 1e-6).all() and (after[drawn] - shares[drawn] <= us + 1e-6).all()
