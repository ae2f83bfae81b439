"""Where a fault begins to show: in the record that first differs visibly from the twin's, and not before."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.truth import Truth
from rmetric.evaluation.visibility import first_sign, visible_from
from rmetric.records import Observations, Run
from tests.evaluation.builders import build_run

STEPS, ONSET, FAILURE = range(1, 201), 120, 150
NOISE = 0.01 * np.random.default_rng(0).normal(size=200)


def columns(**changes: tuple[int, float]) -> dict[str, np.ndarray]:
    """Healthy measurements, or ones that are something else from a step on."""
    healthy = {
        "training_loss": 2.0 + NOISE,
        "grad_norm": 1.0 + NOISE,
        "step_time_s": 0.02 + 0.1 * NOISE,
        "hardware_events": np.zeros(200),
    }
    for name, (step, value) in changes.items():
        healthy[name] = healthy[name].copy()
        healthy[name][step - 1 :] = value
    return healthy


def runs(**changes: tuple[int, float]) -> list[Run]:
    twin = build_run(STEPS, name="twin", columns=columns())
    own = {name: values[:FAILURE] for name, values in columns(**changes).items()}
    failed = build_run(range(1, FAILURE + 1), name="failed", onset=ONSET, failure=FAILURE, columns=own, twin="twin")
    return [twin, failed]


def first(both: list[Run], incidents: int = 1, scales: float = 1.0) -> int | None:
    """Step of the one record that shows the fault."""
    timeline = Timeline.of(both)
    found = np.flatnonzero(visible_from(timeline, both, incidents, scales))
    assert len(found) <= 1 and not (timeline.run[found] == 0).any()
    return int(timeline.step[found[0]]) if len(found) else None


@pytest.mark.parametrize(
    "change",
    [
        {"training_loss": (130, 2.5)},
        {"training_loss": (130, np.inf)},
        {"grad_norm": (130, 0.0)},
        {"grad_norm": (130, np.inf)},
        {"hardware_events": (130, 1.0)},
        {"step_time_s": (130, 0.04)},
    ],
)
def test_a_fault_shows_where_its_run_leaves_the_twin(change: dict[str, tuple[int, float]]) -> None:
    assert first(runs(**change)) == 130


def test_what_is_lost_in_the_noise_or_lies_before_the_onset_does_not_show() -> None:
    assert first(runs()) is None
    both = runs()
    both[1].observations.columns["training_loss"][ONSET:] += 0.004
    assert first(both) is None
    both[1].observations.columns["hardware_events"][50] = 1.0
    assert first(both) is None


def test_who_waits_for_more_than_noise_sees_it_where_it_is_that_large() -> None:
    both = runs()
    loss = both[1].observations.columns["training_loss"]
    loss[124:] += 0.02
    loss[134:] += 0.06
    assert (first(both), first(both, scales=4.0)) == (125, 135)


def test_one_incident_may_be_any_machine_s_and_the_second_is_not() -> None:
    both = runs()
    both[1].observations.columns["hardware_events"][[50, 124, 134]] = 1.0
    assert (first(both), first(both, incidents=2)) == (125, 135)
    both[1].observations.columns["step_time_s"][129] = 0.04
    assert first(both, incidents=2) == 130
    both[1].observations.columns["step_time_s"][127] = 0.2
    assert first(both, incidents=2) == 128


def test_what_no_machine_does_needs_no_second_sign() -> None:
    assert first(runs(training_loss=(130, 2.5)), incidents=2) == 130


def test_logs_without_step_times_are_judged_by_the_rest() -> None:
    twin = Observations(np.arange(1, 201), {"training_loss": 2.0 + NOISE})
    loss = np.where(twin.step >= 130, 2.5, twin["training_loss"])
    truth = Truth("failed", onset=ONSET, failure_step=FAILURE, horizon=200)
    assert first_sign(Observations(twin.step, {"training_loss": loss}), twin, truth) == 129
    assert first_sign(twin, twin, truth) is None


def test_without_a_twin_nothing_can_be_said() -> None:
    assert first(runs(training_loss=(130, 2.5))[1:]) is None
