from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from rmetric.measurements import OBSERVABLE
from rmetric.records import VALIDATION, Evaluations, Observations, Run, fresh_evaluations, held, reported_evaluations
from tests.helpers import any_observations, bits

NAN, INF = math.nan, math.inf


@pytest.mark.slow
@given(any_observations(tuple(OBSERVABLE), max_size=12))
def test_columns_and_single_observations_are_the_same_thing(observations: Observations) -> None:
    again = Observations.of(iter(observations))
    assert again.step.tolist() == observations.step.tolist()
    assert again.evaluated.tolist() == observations.evaluated.tolist()  # type: ignore[union-attr]
    for name in OBSERVABLE:
        assert bits(again[name]) == bits(observations[name]), name


def test_a_negative_infinity_in_a_column_is_measured_and_not_finite() -> None:
    observations = Observations(np.array([1, 2]), {"training_loss": np.array([-INF, 2.0])})
    assert observations["training_loss"].tolist() == [INF, 2.0]


def test_a_run_is_shown_in_a_few_lines() -> None:
    seen = Observations(np.arange(1, 511), {"training_loss": np.linspace(2.0, 1.0, 510)})
    assert repr(seen) == "<510 records, steps 1 to 510: training_loss>"
    assert len(repr(Run("run", {}, seen, events=[{"event": "ALERT"}] * 500))) < 200
    assert repr(Observations(np.array([]))) == "<0 records: >"


def test_a_column_that_was_never_measured_is_all_nan() -> None:
    observations = Observations(
        np.array([1, 2]), {"training_loss": np.array([1.0, NAN]), "lambda": np.array([NAN, NAN])}
    )
    assert np.isnan(observations["sigma_sq"]).tolist() == [True, True]
    assert [observations.has(name) for name in ("training_loss", "lambda", "sigma_sq")] == [True, False, False]


def test_a_misspelt_measurement_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="'loss' is not a measurement; known: training_loss"):
        Observations(np.array([1]))["loss"]


def test_a_column_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="'lambda' has 1 values for 2 steps"):
        Observations(np.array([1, 2]), {"lambda": np.array([1.0])})


def test_runs_can_be_joined_though_their_columns_differ() -> None:
    first = Observations(np.array([1]), {"training_loss": np.array([3.0])})
    later = Observations(np.array([2]), {"validation_loss": np.array([2.0])})
    joined = first + later
    assert joined.step.tolist() == [1, 2]
    assert bits(joined["training_loss"]) == bits([3.0, NAN])
    assert bits(joined["validation_loss"]) == bits([NAN, 2.0])
    assert joined.evaluated.tolist() == [False, True]  # type: ignore[union-attr]


def test_a_validation_loss_is_new_where_it_differs_or_comes_after_a_gap() -> None:
    losses = np.array([NAN, 3.0, 3.0, 2.0, NAN, 2.0, INF, INF, 1.0])
    assert fresh_evaluations(losses).tolist() == [False, True, False, True, False, True, True, False, True]
    assert fresh_evaluations(np.array([3.0, 2.0]), previous=3.0).tolist() == [False, True]
    assert fresh_evaluations(np.array([])).tolist() == []


def test_gaps_hold_the_value_before_them() -> None:
    assert bits(held(np.array([NAN, 1.0, NAN, NAN, INF, NAN]))) == bits([NAN, 1.0, 1.0, 1.0, INF, INF])
    assert held(np.array([NAN, 1.0]), previous=7.0).tolist() == [7.0, 1.0]


@pytest.mark.parametrize("step", [None, "soon", True, -1, 2.5, float("inf")])
def test_events_of_a_damaged_log_without_a_usable_step_are_no_crash(step: object) -> None:
    injected = {"event": "FAULT_INJECTED", "step": step}
    run = Run(
        "x",
        {"fault_injection": {"type": "LR_SPIKE"}},
        Observations(np.array([7])),
        [injected, {"event": "EXPERIMENT_FAILURE", "step": step}],
    )
    assert run.onset is None
    assert run.last_step == 7


def test_an_evaluation_without_a_usable_loss_is_passed_by() -> None:
    losses = [2.5, "x", None, True, [1.0], math.inf, np.float32(0.5), 3]
    events = [{"event": VALIDATION, "step": step, "validation_loss": loss} for step, loss in enumerate(losses)]
    steps, known = reported_evaluations([*events, {"event": VALIDATION, "step": 8, "non_finite": ["validation_loss"]}])
    assert steps.tolist() == [0, 5, 6, 7, 8]
    assert known.tolist() == [2.5, math.inf, 0.5, 3.0, math.inf]


def test_evaluations_are_the_same_however_a_log_is_read() -> None:
    losses = np.array([3.0, 3.0, 2.0, INF, INF, 1.0])
    records = Observations(np.arange(6), {"validation_loss": losses})
    events = [
        {"event": VALIDATION, "step": step, "validation_loss": loss}
        for step, loss in ((2, INF), (3, INF), (3, 9.0), (4, 1.0))
    ]
    whole, parts = Evaluations().extend(records, events), Evaluations()
    assert [points.tolist() for points in whole] == [[0, 2, 3, 4], [3.0, INF, INF, 1.0]]
    pieces = [
        parts.extend(records.rows(slice(at, at + 1)), [event for event in events if event["step"] == at])
        for at in range(6)
    ]
    assert [np.concatenate(points).tolist() for points in zip(*pieces, strict=True)] == [
        points.tolist() for points in whole
    ]


def test_a_fault_injection_that_is_no_object_reads_as_a_control() -> None:
    run = Run("x", {"fault_injection": "LR_SPIKE"}, Observations(np.array([7])))
    assert (run.fault, run.severity, run.onset) == ("NONE", "-", None)


@pytest.mark.parametrize(
    ("disturbance", "expected"), [(None, None), ({"type": "bad_batch", "step": 40}, 40), ("damaged", None), ({}, None)]
)
def test_the_step_of_a_disturbance(disturbance: object, expected: int | None) -> None:
    assert Run("x", {"disturbance": disturbance}, Observations(np.array([7]))).disturbed_at == expected
