"""The features that several detectors share, and the reference at the start of a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.detectors import CausalIsolationForest, OneClassSvm, StreamingDetector
from rmetric.detectors.base import clipped
from rmetric.detectors.features import RunFeatures
from rmetric.measurements import Observation
from rmetric.records import Observations
from tests.helpers import healthy_observations


def test_the_features_by_hand() -> None:
    features = RunFeatures()
    first = features.update(Observation(1, training_loss=4.0, sigma_sq=1.0, delta_l=-0.5))
    assert math.isnan(first[0])
    second = features.update(Observation(2, training_loss=5.0, sigma_sq=math.e, delta_l=1.0))
    assert second == pytest.approx([0.2, 0.2, 1.0])
    assert features.update(Observation(3, training_loss=4.0)) == pytest.approx([-0.25, 0.25, 1.0])  # latest known
    assert features.update(Observation(4, training_loss=math.nan)) == [math.inf]  # measured, not finite
    assert math.isnan(features.update(Observation(5, training_loss=4.0))[0])  # no change to an infinite loss
    assert features.update(Observation(6, training_loss=4.0))[0] == 0.0


def test_clipping_keeps_what_was_not_measured() -> None:
    assert [clipped(-9.0, 2.0), clipped(9.0, 2.0), clipped(1.5, 2.0), clipped(math.inf, 2.0)] == [-2.0, 2.0, 1.5, 2.0]
    assert math.isnan(clipped(math.nan))


@pytest.mark.parametrize("detector", [CausalIsolationForest, OneClassSvm])
def test_a_log_with_a_record_every_step_is_judged_after_150_records(detector: type[StreamingDetector]) -> None:
    observations = healthy_observations()
    observations = Observations(np.arange(1, 401), observations.columns)
    scores = detector().score_run(observations)  # type: ignore[call-arg]
    # The first record has no change to the one before it and is not counted.
    assert np.isnan(scores[:151]).all()
    assert np.isfinite(scores[151:]).all()
