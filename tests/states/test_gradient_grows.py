"""GRADIENT_GROWS: without end, and not one that has stopped."""

from __future__ import annotations

import numpy as np

from rmetric.states import states_of
from tests.states.common import RECORDS, names, normal, observed


def test_a_gradient_that_grows_without_end_and_one_that_has_stopped() -> None:
    steps = np.arange(RECORDS)
    growing = np.exp(steps / 50.0 + 0.3 * normal(1))
    (state,) = states_of(observed(grad_norm=growing))
    assert state.name == "GRADIENT_GROWS"
    assert 201 <= state.since <= 260
    broke = np.exp(np.maximum(steps - 300, 0) / 20.0 + 0.3 * normal(1))
    (late,) = states_of(observed(grad_norm=broke))
    assert 290 <= late.since <= 330
    stopped = np.exp(np.minimum(steps, 250) / 50.0 + 0.3 * normal(1))
    assert names(observed(grad_norm=stopped)) == []
