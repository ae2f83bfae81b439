"""Adaptive windowing (river's ADWIN) on the training loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmetric.detectors.base import OneMeasurementDetector, register_detector
from rmetric.detectors.run_features import CEILING, clipped

if TYPE_CHECKING:
    from river.drift import ADWIN


@register_detector("adwin")
@dataclass(kw_only=True)
class Adwin(OneMeasurementDetector):
    """By how much the training loss rose where ADWIN finds that its mean has changed, in nats; 0 everywhere else.

    The score is the mean of the part of its window that ADWIN keeps, minus that of the part that it forgets. The
    parameters are river's defaults; it looks every 32 records. A non-finite loss scores ``+inf`` and does not enter.

    **Deviation:** ADWIN answers yes or no, and a loss that falls is a change, too. Only a rise alerts here.
    """

    title = "ADWIN (loss rises)"
    reads = ("training_loss",)
    source = "Bifet, Gavaldà 2007; river"

    threshold: float = 0.0
    delta: float = 0.002
    """Significance of a change."""
    clock: int = 32
    """Records from one look to the next; nothing is said before the first."""
    _adwin: ADWIN = field(init=False, repr=False)
    _seen: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        from river.drift import ADWIN  # two seconds to import; most runs do not need it

        self._adwin = ADWIN(delta=self.delta, clock=self.clock)

    def _next(self, loss: float) -> float:
        if not math.isfinite(loss):
            return loss
        adwin, loss = self._adwin, clipped(loss, CEILING)
        width, total = adwin.width + 1, adwin.total + loss
        adwin.update(loss)
        self._seen += 1
        if self._seen < self.clock:
            return math.nan
        if not adwin.drift_detected:
            return 0.0
        return adwin.estimation - (total - adwin.total) / (width - adwin.width)
