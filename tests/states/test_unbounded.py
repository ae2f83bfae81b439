"""UNBOUNDED: a loss without a lower bound, and losses that may be negative."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.diagnosis import diagnose
from rmetric.states import states_of
from tests.states.common import FALLING, RECORDS, names, normal, observed

AT = np.arange(RECORDS)


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_loss_that_falls_below_zero_for_ever_is_an_error_of_its_own(evaluated: bool) -> None:
    loss = FALLING - np.where(AT > 200, 10.0 ** ((AT - 200) / 20.0), 0.0)
    held_out = np.where(AT % 20 == 0, np.where(AT > 200, 10.0 ** ((AT - 200) / 25.0), FALLING), np.nan)
    columns = {"training_loss": loss} | ({"validation_loss": held_out} if evaluated else {})
    (state,) = states_of(observed(**columns))
    assert state.name == "UNBOUNDED" and 200 < state.since < 230
    (finding,) = diagnose(observed(**columns)).findings
    assert (finding.name, finding.severity) == ("UNBOUNDED", "error")


@pytest.mark.parametrize(
    ("leaps", "told"), [(AT > 380, True), ((AT >= 280) & (AT % 2 == 0), True), ((AT > 300) & (AT < 380), False)]
)
def test_a_loss_that_leaps_a_millionfold_below_zero_need_not_fall_on(leaps: np.ndarray, told: bool) -> None:
    states = states_of(observed(training_loss=np.where(leaps, -3e34, FALLING)))
    found = [(state.name, state.since) for state in states if state.name == "UNBOUNDED"]
    assert found == ([("UNBOUNDED", 1 + int(leaps.argmax()))] if told else [])


def test_a_loss_that_falls_through_zero_may_leap_as_well() -> None:
    assert "UNBOUNDED" in names(observed(training_loss=np.where(AT > 380, -3e34, FALLING - 2.0)))


@pytest.mark.parametrize(
    "loss",
    [
        FALLING - 6.0,
        0.01 * normal(),
        100.0 / (1.0 + AT) - 50.0,
        np.where(AT < 200, 0.0, -1.0),
        np.where(AT < 200, 1e-3, -3.0) * (1.0 + 0.1 * normal()),
        np.where(AT < 200, 1e-9 * normal(), -0.01 * (1.0 + 0.1 * normal(1))),
    ],
    ids=[
        "a log-density",
        "a policy gradient",
        "a log-density that falls far",
        "nothing at first",
        "small at first",
        "rounding errors at first",
    ],
)
def test_a_loss_may_be_below_zero(loss: np.ndarray) -> None:
    assert "UNBOUNDED" not in names(observed(training_loss=loss))
