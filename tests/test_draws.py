"""Tokens drawn on an accelerator, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agentq import _core
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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "all -inf"])
@pytest.mark.parametrize("masked", [False, True])
def test_logits_that_are_not_finite_draw_a_token_of_the_vocabulary_with_an_unknown_log_probability(
    temperature: float, bad: float, masked: bool
) -> None:
    """NaN would otherwise make searchsorted return V, which a GPU's gather reads out of bounds."""
    good = np.random.default_rng(0).standard_normal((2, 33)).astype(np.float32)
    good[0, 9] = -np.inf  # one forbidden token is no fault
    logits = good.copy()
    logits[1, slice(None) if bad == -np.inf else 5] = bad
    allowed = np.where(np.arange(33) == 5, -np.inf, logits).astype(np.float32) if masked else logits
    uniforms, temperatures = np.array([[0.0, 0.5, 1 - 2**-30]] * 2), np.full(2, temperature)
    given = [torch.from_numpy(x) for x in (logits, allowed, uniforms)]
    on_gpu = decoding.draw(*given, torch.from_numpy(temperatures).float())
    for tokens, logps in (_core.draw_tokens(logits, allowed, uniforms, temperatures), (x.numpy() for x in on_gpu)):
        assert tokens.min() >= 0 and tokens.max() < 33
        assert np.isfinite(logps[0]).all() and np.isnan(logps[1]).all()
