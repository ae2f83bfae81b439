"""PyOD's ECOD, one record at a time; here where pyod is installed (extra ``baselines``)."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from rmetric.detectors import DETECTORS, make_detector
from rmetric.detectors.features import RunFeatures
from rmetric.records import Observations
from tests.helpers import bits, healthy_observations


def test_without_pyod_it_is_not_registered() -> None:
    code = "import sys; sys.modules['pyod'] = None; from rmetric.detectors import DETECTORS; print(*DETECTORS)"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ecod" not in names
    assert "one_class_svm" in names


def test_each_record_is_judged_as_pyod_judges_it_alone() -> None:
    models = pytest.importorskip("pyod.models.ecod", reason="needs the extra 'baselines'")
    observations = healthy_observations(200)
    features = RunFeatures()
    rows = np.array([features.update(observation) for observation in observations])
    theirs = models.ECOD().fit(rows[25:100])
    expected = [theirs.decision_function(row[None])[0] / theirs.threshold_ for row in rows[100:]]
    scores = make_detector("ecod").score_run(observations)
    assert np.isnan(scores[:100]).all()
    assert scores[100:] == pytest.approx(expected)
    assert "ecod" in DETECTORS


def test_the_future_of_a_long_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyod", reason="needs the extra 'baselines'")
    observations = healthy_observations()
    ecod = make_detector("ecod")
    expected = ecod.score_run(observations)
    monkeypatch.setattr("rmetric.detectors.novelty.ECOD_BLOCK", 7)
    assert bits(ecod.score_run(observations)) == bits(expected)
    observations["sigma_sq"][300:] *= 50.0
    wild = ecod.score_run(Observations(observations.step, observations.columns))
    assert bits(wild[:300]) == bits(expected[:300])
    assert wild[300:].mean() > expected[300:].mean()
