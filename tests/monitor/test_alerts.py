"""Alerts: messages that say what was seen, where, and what to do."""

import math

import pytest

from rmetric.detectors import StreamingDetector, make_detector
from rmetric.measurements import Observation
from rmetric.monitor.alerts import GradientOutliers, alert_message

HEALTHY = {"training_loss": 2.5, "grad_norm": 1.0, "non_finite_count": 0.0, "uniform_gap": -3.0, "update_rms": 1e-3}


@pytest.mark.parametrize(
    ("changes", "outliers", "parts"),
    [
        (
            {"grad_norm": math.inf, "non_finite_count": 1.0},
            GradientOutliers(non_finite=("layers.0.q_proj.weight",)),
            ("layers.0.q_proj.weight is not finite", "the loss is still finite", "last checkpoint"),
        ),
        (
            {"training_loss": math.inf, "grad_norm": math.inf},
            GradientOutliers(),
            ("a gradient is not finite", "so is the loss"),
        ),
        ({"training_loss": math.inf}, GradientOutliers(), ("the loss is not finite", "batch of this step")),
        (
            {"grad_norm": 0.0, "uniform_gap": 0.0},
            GradientOutliers(),
            ("gradient norm is exactly 0", "ln(256)", "output projections"),
        ),
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
    message = alert_message(make_detector("numerics"), observation, 1.0, outliers, 256)  # type: ignore[arg-type]
    assert message.startswith("Step 7: ") and "broken numbers: 1, above 0" in message
    for part in parts:
        assert part in message


def test_an_alert_for_slow_steps_speaks_of_the_machine() -> None:
    detector = make_detector("r_metric_robust")
    assert isinstance(detector, StreamingDetector)
    for step in range(1, 90):
        observation = Observation(
            step, **{**HEALTHY, "step_time_s": 0.02 if step < 80 else 0.1, "hardware_events": 0.0}
        )
        score = detector.update(observation)
        if score > detector.threshold:
            break
    assert detector.cause == "step_time_s"
    message = alert_message(detector, observation, score, GradientOutliers(), 256)
    assert "step time 0.1 s" in message and "mostly for step_time_s" in message and "the machine" in message
    assert "learning rate" not in message


def test_many_names_are_counted() -> None:
    outliers = GradientOutliers(non_finite=tuple("abcde"))
    observation = Observation(1, grad_norm=math.inf, training_loss=1.0)
    assert "a, b, c and 2 more" in alert_message(make_detector("numerics"), observation, 1.0, outliers, None)  # type: ignore[arg-type]
