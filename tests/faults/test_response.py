"""When a fault begins to show: a broken forward pass in the onset's own record, what an update does in the next one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.faults.common import Pair, pair, response

AT_ONSET = 399  # column of the onset, step 400
FORWARD = ("RMS_NORM_ERROR", "GQA_MISMATCH", "EXPERT_FAILURE", "DATA_CORRUPTION")


def over_control(runs: Pair, signal: str, column: int) -> NDArray[np.float64]:
    """A signal over the control's, shape (runs,)."""
    return np.asarray(getattr(runs.faulty, signal)[:, column] / getattr(runs.control, signal)[:, column])


@pytest.mark.parametrize("name", FORWARD)
def test_a_broken_forward_pass_shows_in_the_onsets_own_batch(name: str) -> None:
    runs, fitted = pair(name, "high", runs=16), response(name, "high")
    assert fitted.loss_onset > 0.1
    lost = over_control(runs, "training_loss", AT_ONSET) - 1.0
    assert np.median(lost) == pytest.approx(fitted.loss_onset, rel=0.35)
    assert np.median(over_control(runs, "grad_norm", AT_ONSET)) == pytest.approx(fitted.grad_norm_onset, rel=0.1)


@pytest.mark.parametrize("name", FORWARD)
def test_the_held_out_loss_is_that_of_the_step_before(name: str) -> None:
    excess = pair(name, "high", runs=16).relative_excess
    assert not excess[:, AT_ONSET].any()
    assert (excess[:, AT_ONSET + 1] > 0.0).all()


@pytest.mark.parametrize("severity", ["low", "medium", "high"])
def test_an_update_shows_in_the_next_batch_and_not_in_its_own(severity: str) -> None:
    runs = pair("LR_SPIKE", severity, runs=16)
    assert np.array_equal(over_control(runs, "training_loss", AT_ONSET), np.ones(16))
    assert np.allclose(over_control(runs, "grad_norm", AT_ONSET), 1.0)
    assert (over_control(runs, "training_loss", AT_ONSET + 1) > 1.0).all()
    assert (over_control(runs, "grad_norm", AT_ONSET + 1) > 1.0).all()


def test_a_collapse_shows_in_the_onsets_own_batch() -> None:
    runs = pair("SILENT_DATA_CORRUPTION", "high", runs=16)
    nothing_left = math.log(32_000)
    ruined = runs.faulty.training_loss[:, AT_ONSET + 50] == nothing_left
    assert ruined.any()
    assert (runs.faulty.training_loss[ruined, AT_ONSET] == nothing_left).all()
    assert (runs.faulty.grad_norm[ruined, AT_ONSET] == 0.0).all()
    assert np.array_equal(runs.faulty.held_out[ruined, AT_ONSET], runs.control.held_out[ruined, AT_ONSET])
    assert (runs.faulty.held_out[ruined, AT_ONSET + 1] == nothing_left).all()
