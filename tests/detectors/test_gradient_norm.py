from __future__ import annotations

import numpy as np
import pytest

from rmetric.detectors import GradientNorm, first_alert
from rmetric.measurements import Observation
from rmetric.records import Observations


@pytest.mark.parametrize(
    ("norm", "alerts"), [(99.9, False), (100.0, False), (np.nextafter(100.0, 101.0), True), (1e300, True)]
)
def test_the_limit_of_the_paper_is_a_norm_above_100(norm: float, alerts: bool) -> None:
    detector = GradientNorm()
    assert (detector.update(Observation(1, grad_norm=norm)) > detector.threshold) is alerts


def test_the_score_is_the_norm_itself_and_has_no_memory() -> None:
    norms = [3.0, 500.0, 3.0, 0.0]
    observations = Observations(np.arange(1, 5), {"grad_norm": np.array(norms)})
    assert GradientNorm().score_run(observations).tolist() == norms


def test_another_threshold_can_be_set() -> None:
    observations = Observations(np.arange(1, 4), {"grad_norm": np.array([1.0, 6.0, 200.0])})
    detector = GradientNorm(threshold=5.0)
    assert first_alert(observations.step, detector.score_run(observations), detector.threshold) == 2
