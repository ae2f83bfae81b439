"""Updates of the attention's QK form that use fewer and fewer directions."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


@register_detector("qk_entropy")
@dataclass(kw_only=True)
class QkEntropy(OwnPastDetector):
    """Fall of the logarithm of the spectral entropy of the update of W_QᵀW_K, of the head in which it is smallest.

    A healthy update is spread over many singular directions; errors that all point the same way pile up in a few. The
    effective rank is the exponential of the same sum, so it is not judged once more.

    **Deviation:** the source's rule for when a fall is an alarm is not known here; the deviation from the run's own
    past is this project's choice, as are its settings.
    """

    title = "QK update entropy"
    watched = {"qk_entropy": Usual(Alarming.FALLS, floor=0.2, logarithmic=True)}  # noqa: RUF012
    reads = tuple(watched)
    source = "Huang et al. 2026, arXiv 2606.28116 (low-precision attention)"
