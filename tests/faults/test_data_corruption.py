from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import SEVERITIES
from tests.faults.common import pair, response


@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_training_loss_rises_at_once(severity: str) -> None:
    runs = pair("DATA_CORRUPTION", severity)
    rise = (runs.faulty.training_loss / runs.control.training_loss - 1.0)[:, 399:409].mean()
    assert rise > 0.8 * response("DATA_CORRUPTION", severity).batch_loss > 0.0


def test_the_more_tokens_the_more_both_losses_rise() -> None:
    many = [pair("DATA_CORRUPTION", severity, runs=16) for severity in SEVERITIES]
    for excess in (
        [np.mean((runs.faulty.training_loss / runs.control.training_loss)[:, 399:]) for runs in many],
        [runs.median_excess(901, 1200) for runs in many],
    ):
        assert excess == sorted(excess)


def test_the_held_out_loss_settles_at_the_fitted_floor() -> None:
    runs = pair("DATA_CORRUPTION", "high", steps=2500, runs=16)
    assert runs.median_excess(2401, 2500) == pytest.approx(response("DATA_CORRUPTION", "high").floor, rel=0.35)
