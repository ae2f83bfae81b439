"""Isolation Forest, as the paper's baseline applies it and in a version that could be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import Detector, register_detector
from rmetric.detectors.novelty import CEILING, FittedToStart
from rmetric.records import Observations

if TYPE_CHECKING:
    from sklearn.ensemble import IsolationForest


@register_detector("isolation_forest")
@dataclass(kw_only=True)
class WholeRunIsolationForest(Detector):
    """Isolation Forest fitted to all validation losses of the run that it then judges, the future included.

    The score is scikit-learn's anomaly score, in (0, 1], held between evaluations. A non-finite loss scores 1, the
    highest score there is, and the forest is not fitted to it. Not causal: no operator could have had it. It is here
    because the paper compares with it.

    **Deviation:** the authors' ``contamination`` is not published; scikit-learn's default threshold 0.5 is used.
    """

    title = "Isolation Forest (whole run)"
    reads = ("validation_loss",)
    causal = False
    source = "Liu, Ting, Zhou 2008; applied as in Fatima 2025 (baseline)"

    threshold: float = 0.5
    trees: int = 100

    def score_run(self, observations: Observations) -> NDArray[np.float64]:
        assert observations.evaluated is not None
        losses = observations["validation_loss"]
        evaluated = observations.evaluated & ~np.isnan(losses)
        losses = losses[evaluated]
        anomaly = np.where(np.isinf(losses), 1.0, np.nan)
        usual = np.isfinite(losses)
        if usual.sum() >= 2:
            samples = np.clip(losses[usual], -CEILING, CEILING)[:, None]
            anomaly[usual] = -_fitted(samples, self.trees).score_samples(samples)
        return np.append(np.nan, anomaly)[np.cumsum(evaluated)]


@register_detector("isolation_forest_causal")
@dataclass(kw_only=True)
class CausalIsolationForest(FittedToStart):
    """Isolation Forest fitted once, to the first part of the run, and applied to what follows.

    The score is scikit-learn's anomaly score of :class:`~rmetric.detectors.novelty.RunFeatures`, in (0, 1]. A
    non-finite input scores 1, the highest score there is.
    """

    title = "Isolation Forest (causal)"
    source = "Liu, Ting, Zhou 2008"
    highest = 1.0

    threshold: float = 0.7
    trees: int = 25

    def _fit(self, samples: NDArray[np.float64]) -> IsolationForest:
        return _fitted(samples, self.trees)

    def _judge(self, model: IsolationForest, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        return -model.score_samples(samples)


def _fitted(samples: NDArray[np.float64], trees: int) -> IsolationForest:
    from sklearn.ensemble import IsolationForest  # a quarter of a second to import, and most runs do not need it

    return IsolationForest(n_estimators=trees, random_state=0).fit(samples)
