"""Empirical cumulative distributions (PyOD's ECOD), fitted to the start of the run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors.base import register_detector
from rmetric.detectors.run_features import FittedToStart

if TYPE_CHECKING:
    from pyod.models.ecod import ECOD

BLOCK = 1024
"""Records that are judged at once, so that memory stays small."""


@register_detector("ecod", needs="pyod")
@dataclass(kw_only=True)
class Ecod(FittedToStart):
    """PyOD's ECOD of the run's first records, applied to what follows one record at a time.

    The sum over features (:class:`~rmetric.detectors.run_features.RunFeatures`) of −ln of the tail probability, in
    units of PyOD's own threshold for its default contamination of 0.1. A non-finite input scores ``+inf``.

    **Deviation:** ECOD ranks a record among the reference *and all records that it is asked about together*, so that a
    whole run would be judged with knowledge of its future. Here each record stands alone beside the reference: one
    call of PyOD judges many records at once, with the reference repeated beside each in columns of its own.
    """

    title = "ECOD (causal)"
    extra = "baselines"
    source = "Li et al. 2022, arXiv 2201.00382; PyOD"

    threshold: float = 1.0

    def _fit(self, samples: NDArray[np.float64]) -> ECOD:
        from pyod.models.ecod import ECOD  # seconds to import, and an optional package

        with _quiet():
            return ECOD().fit(samples)

    def _judge(self, model: ECOD, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        reference = model.X_train
        try:
            scores = [self._tails(model, reference, samples[i : i + BLOCK]) for i in range(0, len(samples), BLOCK)]
        finally:
            model.X_train = reference
        return np.concatenate(scores) / max(model.threshold_, 1e-12)

    @staticmethod
    def _tails(model: ECOD, reference: NDArray[np.float64], samples: NDArray[np.float64]) -> NDArray[np.float64]:
        model.X_train = np.tile(reference, len(samples))
        with _quiet():
            model.decision_function(samples.reshape(1, -1))
        return model.O[-1].reshape(samples.shape).sum(axis=1)


@contextmanager
def _quiet() -> Iterator[None]:
    """A feature that stands still has no skewness, which PyOD takes as none and scipy warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss occurred in moment calculation", RuntimeWarning)
        yield
