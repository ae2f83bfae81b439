from __future__ import annotations

import numpy as np
import pytest

from rmetric.detectors import DeltaLOnly, LambdaOnly, SigmaSqOnly
from rmetric.detectors.paper_baselines import SingleSignal
from rmetric.metric import SlidingRange
from rmetric.records import Observations
from tests.helpers import bits, healthy_observations

SIGNALS = [(LambdaOnly, "lambda"), (SigmaSqOnly, "sigma_sq"), (DeltaLOnly, "delta_l")]


@pytest.mark.parametrize(("detector", "column"), SIGNALS)
def test_the_score_is_its_own_normalised_signal(detector: type[SingleSignal], column: str) -> None:
    observations = healthy_observations()
    assert detector().reads == (column,)
    assert bits(detector().score_run(observations)) == bits(SlidingRange(1000).extend(observations[column]))


@pytest.mark.parametrize(("detector", "column"), SIGNALS)
def test_the_window_is_its_own_too(detector: type[SingleSignal], column: str) -> None:
    observations = Observations(np.arange(1, 5), {column: np.array([0.0, 8.0, 6.0, 7.0])})
    assert detector(window=2).score_run(observations).tolist() == [0.0, 1.0, 0.0, 1.0]
    assert detector().score_run(observations).tolist() == [0.0, 1.0, 0.75, 0.875]
    assert detector().threshold == 0.57
