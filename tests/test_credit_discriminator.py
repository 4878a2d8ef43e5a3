"""Discriminator rewards by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from agentq.credit.discriminator import discriminator_rewards

LOGITS = [log(3), 0.0, -log(3)]  # D = 3/4, 1/2, 1/4


def test_discriminator_rewards_by_hand() -> None:
    assert discriminator_rewards(LOGITS, form="log_d").tolist() == pytest.approx([log(0.75), log(0.5), log(0.25)])
    assert discriminator_rewards(LOGITS, form="gail").tolist() == pytest.approx([-log(0.25), -log(0.5), -log(0.75)])
    assert discriminator_rewards(LOGITS, form="airl").tolist() == pytest.approx([log(3), 0, -log(3)])


def test_discriminator_rewards_of_a_saturated_discriminator_are_bounded() -> None:
    logits = [1e4, -1e4, np.inf, -np.inf]
    assert discriminator_rewards(logits, form="airl").tolist() == [5, -5, 5, -5]
    assert discriminator_rewards(logits, form="log_d", limit=2)[1] == pytest.approx(-2 - log(1 + np.exp(-2)))
    assert discriminator_rewards(logits, form="gail", limit=0.5)[0] == pytest.approx(0.5 + log(1 + np.exp(-0.5)))


@pytest.mark.parametrize(
    ("logits", "change", "message"),
    [
        ([0.0], {"form": "logit"}, "form must be 'log_d', 'gail' or 'airl'; got 'logit'"),
        ([0.0], {"limit": 0}, "limit must be greater than 0; got 0"),
        ([np.nan], {}, "logits must be numbers; got nan"),
    ],
)
def test_discriminator_rewards_refuse_wrong_arguments(logits: list, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        discriminator_rewards(logits, **({"form": "gail"} | change))
