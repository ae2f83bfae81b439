"""Outcomes of flips, judged from records and held-out losses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.records import Observations
from studies.sdc.outcome import FlipEffect, flip_effect

ONSET, END = 60, 79
STEPS = np.arange(1, END + 1)
TWIN_HELD_OUT = {60: 3.0, 65: 2.9, 70: 2.8, 75: 2.7}


def _records(**changes: tuple[slice, float]) -> Observations:
    """A healthy run of 79 steps, with changed values from an index on."""
    columns = {
        "training_loss": np.full(END, 3.0),
        "grad_norm": np.full(END, 1.0),
        "uniform_gap": np.full(END, -2.5),
        "non_finite_count": np.zeros(END),
    }
    for name, (where, value) in changes.items():
        columns[name][where] = value
    return Observations(STEPS, columns)


def _judged(
    own: Observations, held_out: dict[int, float] | None = None, logit: float = 1.0, distance: float = 0.5
) -> FlipEffect:
    held_out = TWIN_HELD_OUT if held_out is None else held_out
    return flip_effect(
        own, _records(), held_out, TWIN_HELD_OUT, onset=ONSET, end=END, logit_factor=logit, weights_distance=distance
    )


FAULTY, LATER = slice(ONSET - 1, ONSET), slice(ONSET + 3, None)


@pytest.mark.parametrize(
    ("own", "outcome"),
    [
        (_records(), "benign"),
        (_records(training_loss=(FAULTY, 3.1)), "benign"),
        (_records(training_loss=(FAULTY, 3.2)), "spike"),
        (_records(grad_norm=(FAULTY, 1.9)), "benign"),
        (_records(grad_norm=(FAULTY, 2.1)), "spike"),
        (_records(grad_norm=(FAULTY, math.inf)), "spike"),
        (_records(non_finite_count=(FAULTY, 3.0)), "spike"),
        (_records(training_loss=(LATER, math.inf)), "non_finite"),
        (_records(grad_norm=(LATER, 0.0)), "dead"),
        (_records(grad_norm=(LATER, math.inf)), "dead"),
        (_records(uniform_gap=(LATER, 0.0)), "dead"),
        (_records(grad_norm=(slice(-3, None), 0.0)), "benign"),
    ],
)
def test_outcomes_follow_from_the_records(own: Observations, outcome: str) -> None:
    assert _judged(own).outcome == outcome


def test_what_happened_before_the_flip_counts_for_nothing() -> None:
    assert _judged(_records(training_loss=(slice(0, 50), 9.0))).outcome == "benign"


@pytest.mark.parametrize(
    ("change", "outcome"),
    [({75: 2.8}, "benign"), ({75: 2.9}, "diverged"), ({65: 3.2}, "spike"), ({75: math.nan}, "non_finite")],
)
def test_the_held_out_loss_decides_between_spike_and_divergence(change: dict[int, float], outcome: str) -> None:
    assert _judged(_records(), TWIN_HELD_OUT | change).outcome == outcome


def test_excesses_are_relative_to_the_twin() -> None:
    judged = _judged(_records(), TWIN_HELD_OUT | {65: 2.9 * 1.5, 75: 2.7 * 1.2})
    assert judged.largest_excess == pytest.approx(0.5)
    assert judged.end_excess == pytest.approx(0.2)


@pytest.mark.parametrize("held_out", [{60: 3.0}, {}])
def test_a_run_that_ended_early_is_infinitely_worse(held_out: dict[int, float]) -> None:
    ended = _records(training_loss=(LATER, math.inf))
    judged = _judged(ended, held_out, distance=math.nan)
    assert judged.end_excess == judged.largest_excess == math.inf
    assert judged.harmful


def test_a_spike_that_changes_no_weight_does_no_harm() -> None:
    assert _judged(_records(), logit=1e19, distance=0.0).outcome == "spike"
    assert not _judged(_records(), logit=1e19, distance=0.0).harmful
    assert not _judged(_records(grad_norm=(FAULTY, 2.1)), distance=0.005).harmful
    assert _judged(_records(grad_norm=(FAULTY, 2.1)), distance=0.2).harmful
    assert not _judged(_records(), distance=0.2).harmful


def test_a_wrong_reading_in_the_faulty_step_alone_does_no_harm() -> None:
    faulty, later = _judged(_records(training_loss=(FAULTY, 3.5))), _judged(_records(training_loss=(LATER, 3.5)))
    assert (faulty.outcome, faulty.harmful) == ("spike", False)
    assert (later.outcome, later.harmful) == ("spike", True)
    assert faulty.later_loss_excess == 0.0
    assert not _judged(_records(), logit=1e19).harmful
    assert _judged(_records(grad_norm=(FAULTY, math.inf))).harmful
    assert _judged(_records(), TWIN_HELD_OUT | {65: 3.2}).harmful
