from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair, response

ONSET = 200
"""Column of the onset."""


def test_a_bit_of_the_mantissa_changes_nothing_that_can_be_seen() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "low")
    assert np.abs(runs.relative_excess).max() < 0.01
    assert [outcome.kind for outcome in runs.outcomes] == ["recovered"] * 8


def test_flips_in_the_gradient_come_at_the_onset_and_then_at_their_rate() -> None:
    flips = disturbed(make_fault("SILENT_DATA_CORRUPTION", "medium"), runs=100).non_finite_gradients
    hit = flips[flips.any(axis=1)]
    assert len(hit) / 100 == pytest.approx(
        response("SILENT_DATA_CORRUPTION", "medium").non_finite_gradient_share, abs=0.15
    )
    assert (hit[:, ONSET] == 1.0).all()
    assert hit[:, ONSET + 1 :].mean() == pytest.approx(0.08, rel=0.1)


def test_a_step_with_a_broken_gradient_shows_and_the_loss_does_not() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "medium")
    broken = runs.faulty.non_finite_count > 0
    assert broken.any()
    assert np.isnan(runs.faulty.grad_norm[broken]).all()
    assert np.isfinite(runs.faulty.training_loss).all()
    assert np.isfinite(runs.faulty.sigma_sq).all()


def test_one_flip_in_a_weight_ruins_the_model_at_once() -> None:
    state = disturbed(make_fault("SILENT_DATA_CORRUPTION", "high"), runs=200)
    fitted = response("SILENT_DATA_CORRUPTION", "high")
    ruined = state.collapsed[:, ONSET] | state.non_finite_weights[:, ONSET + 1]
    assert ruined.mean() == pytest.approx(fitted.collapse_share + fitted.non_finite_share, abs=0.1)
    assert not state.collapsed[:, :ONSET].any()
    assert (state.collapsed[:, ONSET:] == state.collapsed[:, [ONSET]]).all()


def test_a_ruined_model_answers_every_token_alike() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "high", runs=16)
    loss = runs.faulty.training_loss[:, 450]
    ruined = loss == math.log(32_000)
    assert ruined.sum() > 3
    assert (runs.faulty.grad_norm[ruined, 400:] == 0.0).all()
    assert (runs.faulty.sigma_sq[ruined, 400:] == 0.0).all()
    failed = [runs.outcomes[row].failure_step for row in np.flatnonzero(ruined)]
    assert failed == [401] * int(ruined.sum())
