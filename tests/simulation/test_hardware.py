from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rmetric.faults import HardwareEvent
from rmetric.simulation.hardware import (
    CORRECTABLE,
    CORRECTABLE_PER_FATAL,
    INTERRUPTIONS,
    RESTART_STALL_S,
    hazard_per_gpu_hour,
    healthy_events,
    restart_stalls_s,
)
from rmetric.streams import RunStreams

RUNS, STEPS, WORKERS, STEP_TIME_S = 300, 5000, 8, 5.0
GPU_HOURS = STEPS * STEP_TIME_S / 3600 * WORKERS


@pytest.fixture(scope="module")
def events() -> list[list[HardwareEvent]]:
    return healthy_events(RunStreams(tuple(range(RUNS)), STEPS), WORKERS, STEP_TIME_S)


def test_the_table_of_interruptions() -> None:
    assert sum(INTERRUPTIONS.values()) == 419
    assert len(INTERRUPTIONS) == 18
    assert (INTERRUPTIONS["Faulty GPU"], INTERRUPTIONS["GPU HBM3 memory"], INTERRUPTIONS["Silent data corruption"]) == (
        148,
        72,
        6,
    )


def test_one_interruption_in_50_700_gpu_hours() -> None:
    hazard = sum(hazard_per_gpu_hour(component) for component in INTERRUPTIONS)
    assert 1 / hazard == pytest.approx(50_700, rel=1e-3)
    assert hazard_per_gpu_hour("NIC") == pytest.approx(7 / (54 * 24 * 16_384), rel=1e-12)


def test_correctable_components_are_in_the_table() -> None:
    assert set(CORRECTABLE) <= set(INTERRUPTIONS)


@pytest.mark.parametrize("component", CORRECTABLE)
def test_correctable_events_come_at_their_rate(events: list[list[HardwareEvent]], component: str) -> None:
    expected = hazard_per_gpu_hour(component) * CORRECTABLE_PER_FATAL * GPU_HOURS * RUNS
    found = sum(event.component == component and event.kind == "correctable" for run in events for event in run)
    assert abs(found - expected) < 4 * np.sqrt(expected)


def test_numbers_of_events_are_poisson(events: list[list[HardwareEvent]]) -> None:
    counts = np.array([len(run) for run in events])
    # Index of dispersion of a Poisson sample: chi-square with RUNS - 1 degrees of freedom.
    dispersion = counts.var(ddof=1) / counts.mean() * (RUNS - 1)
    assert 0.001 < stats.chi2(RUNS - 1).cdf(dispersion) < 0.999


def test_fatal_events_are_rare(events: list[list[HardwareEvent]]) -> None:
    expected = 419 / (54 * 24 * 16_384) * GPU_HOURS * RUNS  # a third of an event in all
    fatal = sum(event.kind == "fatal" for run in events for event in run)
    assert stats.poisson(expected).sf(fatal - 1) > 1e-3


@pytest.mark.long
def test_fatal_events_come_at_their_rate_on_a_large_cluster() -> None:
    workers = 16_384
    runs = healthy_events(RunStreams(tuple(range(20)), 20_000), workers, STEP_TIME_S)
    expected = 20_000 * STEP_TIME_S / 3600 * workers / 50_700 * 20
    found = sum(event.kind == "fatal" for run in runs for event in run)
    assert abs(found - expected) < 4 * np.sqrt(expected)


def test_events_are_uniform_over_steps_and_workers(events: list[list[HardwareEvent]]) -> None:
    steps = np.array([event.step for run in events for event in run])
    workers = np.bincount([event.worker for run in events for event in run], minlength=WORKERS)
    assert 1 <= steps.min() <= steps.max() <= STEPS
    assert stats.kstest(steps / STEPS, "uniform").pvalue > 1e-3
    assert len(workers) == WORKERS
    assert stats.chisquare(workers).pvalue > 1e-3


def test_events_come_in_order(events: list[list[HardwareEvent]]) -> None:
    assert all(run == sorted(run, key=lambda event: event.step) for run in events)
    assert len({len(run) for run in events}) > 3


def test_a_fatal_event_stalls_its_own_step_of_its_own_run() -> None:
    runs = [
        [HardwareEvent(3, "NIC", 0, "correctable"), HardwareEvent(5, "Faulty GPU", 1, "fatal")],
        [HardwareEvent(5, "CPU", 2, "fatal"), HardwareEvent(5, "NIC", 2, "fatal"), HardwareEvent(1, "SSD", 0, "fatal")],
        [],
    ]
    stalls = restart_stalls_s(runs, steps=5)
    assert stalls.tolist() == [
        [0, 0, 0, 0, RESTART_STALL_S], [RESTART_STALL_S, 0, 0, 0, 2 * RESTART_STALL_S], [0, 0, 0, 0, 0],
    ]  # fmt: skip
