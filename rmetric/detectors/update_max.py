"""One entry of the parameters that moves much further than any did."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.detectors.base import register_detector
from rmetric.detectors.own_past import Alarming, OwnPastDetector, Usual


@register_detector("update_max")
@dataclass(kw_only=True)
class UpdateMax(OwnPastDetector):
    """Rise of the logarithm of the largest entry of the optimizer's update.

    One bad entry hardly moves the root mean square of a million, which ``update_rms_threshold`` looks at; it is the
    maximum.

    **Deviation:** the source compares the RMS of an update with a dynamic threshold; the maximum, and the deviation
    from the run's own past, are this project's choice.
    """

    title = "largest update"
    watched = {"update_max": Usual(Alarming.RISES, floor=0.1, logarithmic=True)}  # noqa: RUF012
    reads = tuple(watched)
    source = "Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726 (the size of an update)"
