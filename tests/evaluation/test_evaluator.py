"""Thresholds that the evaluator fits, and the one that it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.detectors import ROBUST, make_detector
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import METRICS
from tests.robust.studies import made_study


def scored(backend: str) -> Evaluator:
    """The robust R-Metric on a made-up study of that backend."""
    study, detector = made_study(backend), make_detector(ROBUST)
    scores = {ROBUST: np.concatenate([detector.score_run(run.observations) for run in study.runs])}
    records = len(scores[ROBUST])
    return Evaluator(study, {ROBUST: detector}, scores, np.full((3, records), np.nan), draws=50, jobs=1)


@pytest.mark.parametrize("rule", ["within_budget", "budgeted"])
def test_a_detector_keeps_the_threshold_that_was_fitted_to_such_runs(rule: str) -> None:
    own = make_detector(ROBUST).threshold
    real, simulated = (getattr(scored(backend), rule)(ROBUST) for backend in ("torch", "simulator"))
    assert real.threshold == own
    assert simulated.threshold != own


def test_one_score_is_that_of_the_summary() -> None:
    ev = scored("torch")
    counts = ev.counts(ROBUST, "strict")
    summary = ev.summary_of(counts, ev.halves.score)
    assert all(repr(ev.score_of(name, counts, ev.halves.score)) == repr(summary[name]) for name in METRICS)
