"""From a step's numbers to an observation: each signal alone, with values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from rmetric.measurements import Observation
from rmetric.monitor.estimators import TRAINING, VALIDATION, Estimators, LossDrift
from rmetric.monitor.hardware import HardwareReport
from rmetric.monitor.pending_step import ArrivedStep, unmeasured_step
from rmetric.monitor.since_record import SinceRecord
from rmetric.monitor.step_numbers import StepNumbers
from rmetric.monitor.transfer import DeviceTransfer, StepComputation


def step_numbers(norms: list[float], parts: list[float] | None = None, **scalars: float) -> StepNumbers:
    return StepNumbers(
        list(range(len(norms))), np.array(norms), np.array(parts or []), {"training_loss": 2.0, **scalars}
    )


def observe(
    estimators: Estimators,
    step: int,
    numbers: StepNumbers,
    *,
    step_time_s: float = 0.5,
    required: int | None = None,
    reports: Sequence[HardwareReport] = (),
) -> Observation:
    requiring = None if required is None else [True] * required
    pending = replace(
        unmeasured_step(step, step_time_s, SinceRecord()), dispersion_source="workers", requiring=requiring
    )
    return estimators.observe(ArrivedStep(pending, numbers, reports))


def test_the_global_norm_and_what_is_not_finite() -> None:
    estimators = Estimators(None)
    seen = observe(estimators, 1, step_numbers([3.0, 4.0]))
    assert (seen["grad_norm"], seen["non_finite_count"]) == (5.0, 0.0)
    seen = observe(estimators, 2, step_numbers([3.0, math.nan, math.inf]))
    assert (seen["grad_norm"], seen["non_finite_count"]) == (math.inf, 2.0)
    assert math.isnan(observe(estimators, 3, step_numbers([]))["grad_norm"])


def test_sigma_squared_of_parts_and_of_a_window() -> None:
    estimators = Estimators(None)
    assert observe(estimators, 1, step_numbers([1.0], [1.0, 1.0, 3.0, 3.0]))["sigma_sq"] == 1.0
    assert estimators.sources["sigma_sq"] == "workers"
    assert math.isnan(observe(estimators, 2, step_numbers([2.0]))["sigma_sq"])  # one norm has no variance
    assert observe(estimators, 3, step_numbers([4.0]))["sigma_sq"] == 1.0
    assert estimators.sources["sigma_sq"] == "window"
    assert observe(estimators, 4, step_numbers([1.0], [1.0, math.nan]))["sigma_sq"] == math.inf


def test_sigma_squared_is_kept_between_measurements_and_no_longer() -> None:
    estimators = Estimators(None, sigma_sq_every=3)
    observe(estimators, 1, step_numbers([1.0], [1.0, 1.0, 3.0, 3.0]))
    assert observe(estimators, 2, step_numbers([2.0]))["sigma_sq"] == 1.0
    assert observe(estimators, 3, step_numbers([math.nan]))["sigma_sq"] == math.inf  # never kept over what is broken
    assert estimators.sources["sigma_sq"] == "workers"
    assert math.isnan(observe(estimators, 4, step_numbers([2.0]))["sigma_sq"])  # two norms of a window are not there
    assert estimators.sources["sigma_sq"] == "window"


def test_lambda_shows_a_single_event() -> None:
    estimators = Estimators(None)
    observe(estimators, 1, step_numbers([1.0]), step_time_s=100.0)
    reports = [HardwareReport("gpu", "correctable", 0, "")]
    assert observe(estimators, 2, step_numbers([1.0]), reports=reports)["lambda"] == 36.0


def test_the_gap_to_the_uniform_loss() -> None:
    seen = observe(Estimators(256), 1, step_numbers([1.0], training_loss=math.log(256)))
    assert abs(seen["uniform_gap"]) < 1e-12
    assert math.isnan(observe(Estimators(None), 1, step_numbers([1.0]))["uniform_gap"])


def test_a_loss_that_is_not_finite_is_infinite() -> None:
    seen = observe(Estimators(256), 1, step_numbers([1.0], training_loss=math.nan))
    assert seen["training_loss"] == seen["delta_l"] == math.inf


@pytest.mark.parametrize(
    ("gradients", "required", "told"),
    [
        ([4, 3, 4, 2] * 50, [4] * 200, {1: 4.0}),  # experts
        ([4, 2] * 100, [4, 2] * 100, {1: 4.0}),  # two networks in turn
        ([4] * 50 + [2] * 31 + [4] * 50, [4] * 50 + [2] * 31 + [4] * 50, {1: 4.0}),
        ([4] * 50 + [2] * 32 + [4] * 50, [4] * 50 + [2] * 32 + [4] * 50, {1: 4.0, 82: 2.0, 83: 4.0}),
        ([4] * 132, [4] * 50 + [2] * 32 + [4] * 50, {1: 4.0, 82: 2.0, 83: 4.0}),  # zeros stay where layers are frozen
    ],
)
def test_how_many_parameters_are_trained_is_told_where_layers_were_frozen_and_not_where_gradients_come_and_go(
    gradients: list[int], required: list[int], told: dict[int, float]
) -> None:
    estimators, found = Estimators(None), {}
    for step, (present, needed) in enumerate(zip(gradients, required, strict=True), 1):
        seen = observe(estimators, step, step_numbers([1.0] * present), required=needed)
        if not math.isnan(seen["trained_parameters"]):
            found[step] = seen["trained_parameters"]
    assert found == told


def test_drift_changes_its_source_with_the_second_validation() -> None:
    drift = LossDrift()
    assert math.isnan(drift.update(4.0))
    assert drift.update(4.0) == 0.0 and drift.source == TRAINING
    drift.validation(3.0)
    assert drift.source == TRAINING
    drift.validation(2.5)
    assert drift.update(4.0) == -0.5 and drift.source == VALIDATION
    drift.validation(math.nan)
    assert drift.update(1.0) == math.inf


def test_a_packet_brings_every_number_back() -> None:
    scalars = {"a": torch.tensor(1.5), "nothing": None, "b": torch.tensor([2.5], dtype=torch.float64)}
    norms, parts = torch.tensor([3.0, math.inf]), torch.tensor([4.0, 5.0, 6.0])
    transfer = DeviceTransfer(StepComputation(gradients=[0, 3], norms=norms, parts=parts), scalars)
    numbers = transfer.read()
    assert (numbers.gradients, numbers.scalars) == ([0, 3], {"a": 1.5, "b": 2.5})
    assert (numbers.norms.tolist(), numbers.parts.tolist()) == ([3.0, math.inf], [4.0, 5.0, 6.0])


def test_a_packet_of_nothing_is_empty() -> None:
    numbers = DeviceTransfer(StepComputation(), {}).read()
    assert (len(numbers.norms), len(numbers.parts), numbers.scalars) == (0, 0, {})


def test_a_packet_is_not_changed_by_what_comes_after() -> None:
    norms = torch.tensor([1.0, 2.0])
    transfer = DeviceTransfer(StepComputation(gradients=[0, 1], norms=norms), {})
    norms.fill_(9.0)
    assert transfer.read().norms.tolist() == pytest.approx([1.0, 2.0])
