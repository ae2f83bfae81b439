"""One-class support vector machine, fitted to the start of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import register_detector
from rmetric.detectors.run_features import FittedToStart

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

SMALLEST = 1e-300
"""The kernel of a far outlier is 0 in double precision; its logarithm is to be finite."""


@register_detector("one_class_svm")
@dataclass(kw_only=True)
class OneClassSvm(FittedToStart):
    """scikit-learn's one-class SVM of the run's first records, applied to what follows.

    .. math:: s = \\ln \\rho - \\ln \\sum_i \\alpha_i k(x_i, x)

    where k is the radial basis function with scikit-learn's default width and ρ the offset of the fitted boundary: 0 on
    the boundary, positive outside. Features (:class:`~rmetric.detectors.run_features.RunFeatures`) are scaled by their
    median and interquartile range. A non-finite input scores ``+inf``.

    **Deviation:** scikit-learn's decision function is the difference of the two, which is the same boundary, but in
    which all that lies far outside looks alike. Its default ν of 0.5 would call half of the reference outliers; ν is
    0.01 here.
    """

    title = "one-class SVM (causal)"
    source = "Schölkopf et al. 2001; scikit-learn"

    threshold: float = 0.0
    nu: float = 0.01
    """Share of the reference that may lie outside, in (0, 1]."""

    def _fit(self, samples: NDArray[np.float64]) -> Pipeline:
        from sklearn.pipeline import make_pipeline  # a quarter of a second to import, and most runs do not need it
        from sklearn.preprocessing import RobustScaler
        from sklearn.svm import OneClassSVM

        return make_pipeline(RobustScaler(), OneClassSVM(nu=self.nu)).fit(samples)

    def _judge(self, model: Pipeline, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        inside = np.maximum(model.score_samples(samples), SMALLEST)
        return np.log(np.maximum(model[-1].offset_, SMALLEST)) - np.log(inside)
