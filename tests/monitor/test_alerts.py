"""Alerts: messages that say what was seen, where, and what to do."""

import math
from collections.abc import Iterable

import numpy as np
import pytest

from rmetric.advice import CLIPPING, INPUTS, MODES, ON_SETTINGS, TRAINED
from rmetric.detectors import StreamingDetector, make_detector
from rmetric.detectors.numerics import Numerics
from rmetric.measurements import Observation
from rmetric.monitor.alerts import GradientOutliers, alert_message, explanation_of
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.detector_set import DetectorSet
from rmetric.monitor.loop_invariants import LoopInvariants
from rmetric.monitor.loop_invariants.batches import InputScale
from rmetric.monitor.step_numbers import UNMEASURED, StepNumbers


def message_of(
    detector: StreamingDetector, observation: Observation, score: float, outliers: GradientOutliers, vocabulary: int
) -> str:
    return alert_message(detector, observation, score, explanation_of(detector, observation, outliers, vocabulary))


def first_alert(records: Iterable[Observation]) -> tuple[StreamingDetector, Observation, str]:
    """The robust R-Metric at its first alert, the record of that, and the message."""
    detector = make_detector("r_metric_robust")
    seen, score = next((seen, score) for seen in records if (score := detector.update(seen)) > detector.threshold)
    return detector, seen, message_of(detector, seen, score, GradientOutliers(), 256)


def told_of(cause: str) -> StreamingDetector:
    """A detector whose latest score is mostly due to a measurement."""

    class OfOneCause(Numerics):
        @property
        def cause(self) -> str:
            return cause

    return OfOneCause()


HEALTHY = {"training_loss": 2.5, "grad_norm": 1.0, "non_finite_count": 0.0, "uniform_gap": -3.0, "update_rms": 1e-3}


@pytest.mark.parametrize(
    ("changes", "outliers", "parts"),
    [
        (
            {"grad_norm": math.inf, "non_finite_count": 1.0},
            GradientOutliers(non_finite=("layers.0.q_proj.weight",), tensors=12),
            ("layers.0.q_proj.weight is not finite (1 tensor of 12)", "the loss is still finite (2.5)", "skip it"),
        ),
        (
            {"training_loss": math.inf, "grad_norm": math.inf},
            GradientOutliers(),
            ("the loss is not finite; the norm of the whole gradient is not finite", "last checkpoint"),
        ),
        (
            {"training_loss": math.inf},
            GradientOutliers(),
            ("the loss is not finite", "a bad batch (look at the one of this step)"),
        ),
        (
            {"grad_norm": 0.0, "uniform_gap": 0.0},
            GradientOutliers(),
            ("gradient norm is exactly 0", "ln(256)", "a corrupted weight in the output layers", "last checkpoint"),
        ),
        ({"grad_norm": 0.0}, GradientOutliers(), ("gradient norm is exactly 0", "a loss scale so small", "checkpoint")),
        ({"uniform_gap": 1e-6}, GradientOutliers(), ("the loss is ln(256)",)),
        (
            {"grad_norm": 40.0},
            GradientOutliers(largest="lm_head.weight", growth=37.2),
            ("gradient norm 40", "lm_head.weight is 37.2 times its recent mean", "learning rate"),
        ),
    ],
)
def test_a_message_says_what_where_and_what_to_do(
    changes: dict[str, float], outliers: GradientOutliers, parts: tuple[str, ...]
) -> None:
    observation = Observation(7, **{**HEALTHY, **changes})
    message = message_of(make_detector("numerics"), observation, 1.0, outliers, 256)
    assert message.startswith("Step 7: ") and "(found by broken numbers)" in message
    assert "inf" not in message and "nan" not in message
    for part in parts:
        assert part in message


def test_an_alert_for_slow_steps_speaks_of_the_machine() -> None:
    detector, _, message = first_alert(
        Observation(step, **HEALTHY, step_time_s=0.02 if step < 80 else 0.1, hardware_events=0.0, lambda_=7200.0)
        for step in range(1, 90)
    )
    assert detector.cause == "step_time_s"
    assert "step time 0.1 s" in message and "mostly for step_time_s" in message and "the machine" in message
    assert "learning rate" not in message
    assert "hardware events" not in message and "λ" not in message  # slow steps alone make no rate of failures


def test_a_machine_that_reports_events_is_told_of_with_its_rate() -> None:
    detector = told_of("hardware_events")
    seen = Observation(7, **HEALTHY, step_time_s=0.02, hardware_events=2.0, event_worker=3.0, lambda_=720.0)
    message = message_of(detector, seen, 1.0, GradientOutliers(), 256)
    assert "hardware events in it 2, most of them of worker 3, λ 720 an hour, slow steps counted" in message


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (
            {"learning_rate": 0.0},
            "RMS of the last update 0, learning rate of the next 0 (found by broken numbers). The learning rate is 0",
        ),
        ({"learning_rate": 0.1}, "an optimizer without the model's parameters"),
        ({}, "an optimizer without the model's parameters"),
    ],
)
def test_weights_that_stand_still_are_not_a_matter_of_the_batch(rate: dict[str, float], told: str) -> None:
    still = Observation(7, **{**HEALTHY, "update_rms": 0.0, **rate})
    message = message_of(make_detector("numerics"), still, 1.0, GradientOutliers(), 256)
    assert told in message and "batch of this step" not in message
    assert ("at the end of a schedule" in message) == (rate == {})


def test_a_leap_of_the_learning_rate_is_told_apart_from_the_update_before_it() -> None:
    detector = told_of("update_rms")
    leap = Observation(7, **{**HEALTHY, "update_rms": 1e-4, "learning_rate": 0.3})
    message = message_of(detector, leap, 3.0, GradientOutliers(), 256)
    assert "RMS of the last update 0.0001, learning rate of the next 0.3 (" in message


@pytest.mark.parametrize(
    ("setting", "cause", "of_others"),
    [
        ("momentum", "resumed with other settings", "evaluation mode"),
        (MODES, "left in evaluation mode", "other settings"),
        (CLIPPING, "clipped before they are unscaled", "evaluation mode"),
        ("the state of batch norm's running statistics", "a momentum of batch norm", "clip"),
        ("the content of a batch's targets", "no longer shuffled", "evaluation mode"),
    ],
)
def test_causes_of_a_change_are_those_of_what_has_changed(setting: str, cause: str, of_others: str) -> None:
    detector = told_of("settings_changed")
    explanation = explanation_of(
        detector, Observation(7, **HEALTHY), GradientOutliers(), 256, [SettingChange(setting, "a", "b")]
    )
    assert explanation.seen == [f"{setting} changed from a to b"]
    assert cause in explanation.advice and of_others not in explanation.advice
    assert explanation.advice.endswith("if the change is meant, nothing has to be done.")


def test_all_that_a_monitor_says_has_changed_has_an_advice_of_its_own() -> None:
    broken = LoopInvariants()._invariants
    assert {MODES, *(invariant.change().setting for invariant in broken if not isinstance(invariant, InputScale))} | {
        INPUTS,
        TRAINED,
    } == {*ON_SETTINGS}


@pytest.mark.parametrize(("moved", "told"), [(True, "monitor.planned"), (False, "Compare learning rate and batch")])
def test_weights_that_something_else_has_moved_are_not_a_matter_of_the_batch(moved: bool, told: str) -> None:
    detector = make_detector("r_metric_robust")
    rng = np.random.default_rng(0)
    for step in range(1, 120):  # the weights are moved for the 119th step, by more than all updates before
        size = 1.0 if step == 119 else 1e-3 * float(np.exp(0.05 * rng.standard_normal()))
        observation = Observation(step, **{**HEALTHY, "update_rms": size}, learning_rate=1e-3)
        detector.update(observation)
    assert detector.cause == "update_rms"
    found = explanation_of(detector, observation, GradientOutliers(), None, moved_elsewhere=moved)
    assert found.cause == "off_course"
    assert told in found.advice


def test_a_machine_that_stays_slow_hides_no_other_cause() -> None:
    detectors = DetectorSet(["r_metric_robust"], None)
    noise = np.random.default_rng(0).normal(size=200)
    told = {}
    for step in range(1, 200):
        loss = 2.0 + 0.01 * noise[step] + 3.0 * (step >= 130)
        seen = Observation(step, training_loss=loss, step_time_s=1.0 + 4.0 * (step >= 100))
        told |= {alert.step: alert.cause for alert in detectors.update(seen, UNMEASURED).news}
    assert [*told.values()] == ["machine", "off_course"]
    slow, broken = told
    assert 100 < slow < 110 and 130 <= broken < 135


def test_an_alert_for_gradients_that_repeat_speaks_of_batches() -> None:
    rng = np.random.default_rng(0)
    detector, seen, message = first_alert(
        Observation(step, **HEALTHY, grad_agreement=rng.normal(0.1, 0.05) if step < 80 else 0.9)
        for step in range(1, 90)
    )
    assert detector.cause == "grad_agreement" and 80 < seen.step < 84
    assert "agreement 0.9 of 1" in message and "the same batch again and again" in message
    assert "learning rate" not in message


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("cde", "3 of 5 gradients are not finite, in the model's order from c to e"),
        ("abcde", "all 5 gradients are not finite, in the model's order from a to e"),
    ],
)
def test_many_broken_gradients_are_counted_and_the_first_and_last_are_named(broken: str, said: str) -> None:
    outliers = GradientOutliers(non_finite=tuple(broken), tensors=5)
    observation = Observation(1, grad_norm=math.inf, training_loss=1.0)
    assert said in message_of(make_detector("numerics"), observation, math.inf, outliers, 256)


def test_where_the_loss_is_not_finite_the_learning_rate_comes_first_and_the_memory_last() -> None:
    observation = Observation(1, grad_norm=math.inf, training_loss=math.inf, learning_rate=0.5)
    message = message_of(make_detector("numerics"), observation, math.inf, GradientOutliers(), 256)
    causes = ("learning rate that is too high (it is 0.5)", "overflow", "bad batch", "memory")
    assert sorted(causes, key=message.index) == list(causes)
    assert "test the device" not in message


@pytest.mark.parametrize(("loss", "action"), [(math.inf, "last checkpoint"), (2.5, "Do not make this update")])
@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_a_batch_that_is_seen_to_be_broken_is_the_cause(scale: float, loss: float, action: str) -> None:
    observation = Observation(1, grad_norm=math.inf, training_loss=loss, non_finite_count=1.0, learning_rate=0.5)
    numbers = StepNumbers([0], np.array([math.inf]), np.array([]), {"input_scale": scale}, ["weight"])
    [alert] = DetectorSet(["numerics"], 256).update(observation, numbers).alerts
    assert "inputs of its batch are not finite" in alert.message
    assert action in alert.message and "Leave this batch out" in alert.message and "learning rate" not in alert.message


def test_an_alert_for_hardware_names_the_worker() -> None:
    ails, well = {"hardware_events": 1.0, "event_worker": 3.0}, {"hardware_events": 0.0}
    _, seen, message = first_alert(
        Observation(step, **HEALTHY, step_time_s=0.02, lambda_=0.0, **(ails if step in range(150, 157, 2) else well))
        for step in range(1, 200)
    )
    assert f"Step {seen.step}: " in message and 150 <= seen.step <= 156
    assert "most of them of worker 3" in message


@pytest.mark.parametrize("left_out", [(), (101, 102)])
def test_batches_that_pass_do_not_hide_that_nothing_is_learned_any_more(left_out: tuple[int, ...]) -> None:
    """Nor are they told to be that where a loss scaler leaves out their updates."""
    detectors = DetectorSet(["r_metric_robust"], None)
    rng = np.random.default_rng(0)
    told = []
    for step in range(1, 200):
        loss = 2.0 + 0.01 * rng.normal() + 3.0 * (100 <= step < 104)
        update = 1e-3 * math.exp(0.05 * rng.normal()) * (step < 130 and step not in left_out)
        seen = Observation(step, training_loss=loss, update_rms=update, learning_rate=1e-3)
        told += [(alert.cause, alert.step < 130) for alert in detectors.update(seen, UNMEASURED).news]
    assert told == [("off_course", True), ("no_update", False)]
