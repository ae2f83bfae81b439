from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair


def test_an_excess_too_small_to_be_seen_grows_until_it_is_not() -> None:
    excess = pair(
        "RMS_NORM_ERROR", "medium", runs=16, steps=2500, onset=1000, architecture="llama-3-8b"
    ).relative_excess
    assert np.median(np.abs(excess[:, 1000:1050])) < 0.002
    ends_high = np.isnan(excess[:, -1]) | (excess[:, -1] > 0.05)
    assert ends_high.mean() > 0.9
    first = np.where(np.isnan(excess) | (excess > 0.05), np.arange(2500), 2500).min(axis=1)
    assert np.median(first - 999) > 100


def test_the_stronger_the_error_the_shorter_the_incubation() -> None:
    incubation = []
    for severity in ("low", "medium", "high"):
        excess = pair("RMS_NORM_ERROR", severity, runs=16, steps=2500, onset=800).relative_excess
        incubation.append(np.median(np.where(np.isnan(excess) | (excess > 0.05), np.arange(2500), 2500).min(axis=1)))
    assert incubation[0] > incubation[1] > incubation[2]


@pytest.mark.parametrize(("severity", "rate"), [("low", 0.03), ("medium", 0.07), ("high", 0.15)])
def test_growth_and_gradients_follow_the_rate(severity: str, rate: float) -> None:
    state = disturbed(make_fault("RMS_NORM_ERROR", severity), runs=100)
    assert (np.ptp(state.growth[:, 200:], axis=1) == 0.0).all()
    assert np.median(state.growth[:, 200]) == pytest.approx(rate, rel=0.08)
    assert np.allclose(state.worker_gradient_factor[:, 200:], 1.0 + 2.0 * rate)


def test_the_authors_flag_is_up_from_the_onset_on() -> None:
    reported = disturbed(make_fault("RMS_NORM_ERROR")).reported
    assert (reported["force_rms_norm_error"][:, 200:] == 1.0).all()
    assert not reported["force_gqa_mismatch"].any()
