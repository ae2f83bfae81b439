"""A loop that cannot, or does not, leave out the updates that the monitor refuses is told so."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from rmetric import read_run
from rmetric.detectors import make_detector
from rmetric.detectors.r_metric import RobustRMetricDetector
from rmetric.measurements import Observation
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.remarks import WORDS
from rmetric.monitor.repair import RecomputeStep, SkipUpdate
from tests.monitor.common import events_of, small_loss, small_training

BROKEN = 6


@pytest.mark.parametrize("options", [{"policy": SkipUpdate}, {"sync": True}], ids=["policy", "sync"])
@pytest.mark.parametrize("heeds", ["yes", "clears the gradients", "no"])
def test_an_answer_that_is_ignored_is_told_once(options: Any, heeds: str, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = small_training()
    options = {name: value() if callable(value) else value for name, value in options.items()}
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        TrainingMonitor(model, optimizer, hardware=False, announce=False, **options) as monitor,
    ):
        for step in range(1, 10):
            optimizer.zero_grad()
            loss = small_loss(model, step) * (math.nan if step == BROKEN else 1.0)
            loss.backward()
            proceed = monitor.step(loss)
            if not proceed and heeds == "clears the gradients":
                optimizer.zero_grad()
            if proceed or heeds != "yes":
                optimizer.step()
    assert caplog.messages == ([WORDS["answer ignored"]] if heeds == "no" else [])


@pytest.mark.parametrize("inside", [False, True])
def test_no_policy_acts_where_a_closure_makes_the_update_before_it_is_asked(
    inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """``inside``: the closure asks, in time, and takes the gradients away; it skips the second batch."""
    model, optimizer = small_training()
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        TrainingMonitor(
            model, optimizer, hardware=False, announce=False, policy=[RecomputeStep(), SkipUpdate()]
        ) as monitor,
    ):
        for step in range(1, 10):

            def compute(step: int = step) -> Tensor:
                optimizer.zero_grad()
                loss = small_loss(model, step) * (math.nan if step == BROKEN else 1.0)
                loss.backward()
                return loss.detach()

            def closure(compute: Any = compute, step: int = step) -> Tensor:
                loss: Tensor = compute()
                if inside and (step == 2 or not monitor.step(loss, recompute=compute)):
                    optimizer.zero_grad()
                return loss

            loss = optimizer.step(closure)
            if not inside:
                assert monitor.step(loss, recompute=compute)
    assert [(repair.step, repair.verdict) for repair in monitor.repairs] == (
        [(BROKEN - 1, "agrees"), (BROKEN - 1, "skipped")] if inside else []
    )
    assert caplog.messages == ([] if inside else [WORDS["update first"]])


@pytest.mark.parametrize("row", [1, 3, 4, 12])
def test_updates_that_were_left_out_are_no_cause_of_an_alert(row: int, tmp_path: Path) -> None:
    """Neither their size of 0 in the records after, nor what is left there of numbers that were not finite."""
    model, optimizer = small_training()
    log, scores, broken = tmp_path / "run.jsonl", [], range(150, 150 + row)

    class Noting(RobustRMetricDetector):
        def update(self, observation: Observation) -> float:
            scores.append(super().update(observation))
            return scores[-1]

    options = {"detectors": ["numerics", Noting()], "hardware": False, "announce": False, "sync": True}
    with TrainingMonitor(model, optimizer, log=log, **options) as monitor:
        for step in range(1, 200):
            optimizer.zero_grad()
            loss = small_loss(model, step) * (math.nan if step in broken else 1.0)
            loss.backward()
            if monitor.step(loss):
                optimizer.step()
    assert [alert["cause"] for alert in events_of(log, "ALERT")] == ["not_finite", "not_finite"]
    run = read_run(log)
    unmeasured = run.observations.step[np.isnan(run.observations["update_rms"])]
    assert unmeasured.tolist() == [1, *(step + 1 for step in broken)]
    assert make_detector("r_metric_robust").score_run(run.observations).tolist() == scores
