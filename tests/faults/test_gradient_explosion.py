from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair, response

SEVERITIES = [("low", 10.0, 40), ("medium", 100.0, 40), ("high", 1000.0, 10)]


@pytest.mark.parametrize(("severity", "scale", "ramp"), SEVERITIES)
def test_the_norm_ramps_to_the_fitted_factor(severity: str, scale: float, ramp: int) -> None:
    factor = disturbed(make_fault("GRADIENT_EXPLOSION", severity)).gradient_factor
    final = response("GRADIENT_EXPLOSION", severity).grad_norm_lasting
    grown = (scale ** (np.arange(1, ramp + 1) / ramp) - 1.0) / (scale - 1.0)
    assert np.allclose(factor[:, 200 : 200 + ramp], 1.0 + (final - 1.0) * grown, rtol=1e-6)
    assert np.allclose(factor[:, 200 + ramp : 300], final, rtol=1e-6)


def test_the_larger_the_scale_the_larger_the_norm() -> None:
    final = [response("GRADIENT_EXPLOSION", severity).grad_norm_lasting for severity, _, _ in SEVERITIES]
    assert 1.0 < final[0] < final[1] < final[2]


def test_the_low_severity_ends_after_a_hundred_steps_and_the_others_never() -> None:
    low, medium = (disturbed(make_fault("GRADIENT_EXPLOSION", severity)) for severity in ("low", "medium"))
    assert (low.gradient_factor[:, 299] > 2.0).all()
    assert (low.gradient_factor[:, 300:] == 1.0).all()
    assert (medium.gradient_factor[:, 300:] > 10.0).all()


def test_the_logged_norm_explodes_and_the_update_does_not() -> None:
    runs = pair("GRADIENT_EXPLOSION", "medium")
    assert np.median(runs.faulty.grad_norm[:, 450:] / runs.control.grad_norm[:, 450:]) > 10.0
    assert (runs.faulty.update_rms[:, 450:] / runs.control.update_rms[:, 450:]).max() < 3.0


def test_training_heals_a_short_one() -> None:
    runs = pair("GRADIENT_EXPLOSION", "low")
    assert runs.faulty.cleared == [500] * 8
    assert "failed" not in {outcome.kind for outcome in runs.outcomes}
