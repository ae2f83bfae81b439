from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair

SHARES = [("low", 0.03), ("medium", 0.09), ("high", 0.35)]


@pytest.mark.parametrize(("severity", "share"), SHARES)
def test_the_layers_lose_what_they_had_learned_and_some_stays_lost(severity: str, share: float) -> None:
    excess = pair("GQA_MISMATCH", severity, runs=16, architecture="llama-3-8b").relative_excess
    assert np.median(excess[:, -100:]) == pytest.approx(0.9 * share, rel=0.3)
    assert excess[:, 404].max() < 0.25 * np.median(excess[:, -100:])  # not at once
    assert np.median(excess[:, 519]) > 0.4 * np.median(excess[:, -100:])  # but within some hundred steps


def test_gradients_are_larger_and_disagree_more() -> None:
    state = disturbed(make_fault("GQA_MISMATCH", "high"))
    assert np.allclose(state.gradient_noise_factor[:, 200:], 1.35)
    assert np.allclose(state.worker_gradient_factor[:, 200:], 1.175)


def test_the_authors_flag_is_up_from_the_onset_on() -> None:
    reported = disturbed(make_fault("GQA_MISMATCH")).reported
    assert (reported["force_gqa_mismatch"][:, 200:] == 1.0).all()
    assert not reported["force_rms_norm_error"].any()
