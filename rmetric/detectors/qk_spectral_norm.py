"""Updates of the attention's QK form that grow."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


@register_detector("qk_spectral_norm")
@dataclass(kw_only=True)
class QkSpectralNorm(OwnPastDetector):
    """Rise of the logarithm of the spectral norm of the update of W_QᵀW_K, of the head in which it is largest.

    **Deviation:** the source watches the spectral norm of the weights, which grows as low-rank errors add up; that of
    the update is not diluted by the energy of the initialisation. The rule is this project's choice.
    """

    title = "QK update norm"
    watched = {"qk_spectral_norm": Usual(Alarming.RISES, floor=0.1, logarithmic=True)}  # noqa: RUF012
    reads = tuple(watched)
    source = "Qiu, Yao 2025, arXiv 2510.04212; Huang et al. 2026, arXiv 2606.28116"
