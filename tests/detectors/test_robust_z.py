"""The robust z-score: hand-computed values, outliers that do not raise their own bar, ramps that do not alarm."""

import math

import numpy as np
import pytest
from scipy.stats import median_abs_deviation

from rmetric.detectors import RobustZ
from rmetric.records import Observations
from rmetric.robust.reference import RobustReference


def reference(**changes: float) -> RobustReference:
    return RobustReference(**{"window": 16, "warm_up": 8, "floor": 1e-9, "clip": 5.0, **changes})  # type: ignore[arg-type]


def test_against_scipy_on_noise_without_outliers() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 0.5, size=200)
    ours = reference(clip=1e9)
    scores = [ours.update(value) for value in values.tolist()]
    for index in range(16, 200):
        window = values[index - 16 : index]
        expected = (values[index] - np.median(window)) / (1.4826 * median_abs_deviation(window))
        assert scores[index] == pytest.approx(expected)


def test_an_outlier_enters_clipped() -> None:
    ours = reference()
    for value in (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0):
        ours.update(value)
    first = ours.update(1e6)
    for _ in range(3):
        assert ours.update(1e6) > 0.2 * first  # a bar that followed the outliers would have risen by orders


def test_infinity_passes_and_leaves_no_trace() -> None:
    ours, twin = reference(), reference()
    for value in np.linspace(1.0, 2.0, 20).tolist():
        ours.update(value)
        twin.update(value)
    assert ours.update(math.inf) == math.inf
    assert math.isnan(ours.update(math.nan))
    assert ours.update(1.7) == twin.update(1.7)


def noisy(n: int, **columns: np.ndarray) -> Observations:
    rng = np.random.default_rng(1)
    healthy = {
        "training_loss": 2.0 + 3.0 * np.arange(1, n + 1) ** -0.5 + rng.normal(0.0, 0.05, n),
        "grad_norm": np.exp(rng.normal(0.0, 0.2, n)),
        "update_rms": 1e-3 * np.minimum(1.0, np.arange(1, n + 1) / 100.0) * np.exp(rng.normal(0.0, 0.05, n)),
    }
    return Observations(np.arange(1, n + 1), {**healthy, **columns})


def test_a_falling_loss_and_a_warm_up_do_not_alarm() -> None:
    detector = RobustZ()
    assert np.nanmax(detector.score_run(noisy(1000))) < detector.threshold


@pytest.mark.parametrize(
    ("name", "value"), [("training_loss", 4.0), ("grad_norm", 30.0), ("update_rms", 0.05), ("grad_norm", np.inf)]
)
def test_a_jump_of_any_signal_alarms_at_once(name: str, value: float) -> None:
    detector, column = RobustZ(), noisy(400)[name].copy()
    column[300] = value
    scores = detector.score_run(noisy(400, **{name: column}))
    assert scores[300] > detector.threshold
    assert np.nanmax(scores[:300]) < detector.threshold


def test_a_gradient_of_zero_is_left_to_the_detector_of_broken_numbers() -> None:
    column = noisy(400)["grad_norm"].copy()
    column[300] = 0.0
    assert RobustZ().score_run(noisy(400, grad_norm=column))[300] < RobustZ().threshold
