"""Page–Hinkley test (river's) on the training loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmetric.detectors.base import OneMeasurementDetector, register_detector
from rmetric.detectors.run_features import CEILING, clipped

if TYPE_CHECKING:
    from river.drift import PageHinkley


@register_detector("page_hinkley")
@dataclass(kw_only=True)
class PageHinkleyTest(OneMeasurementDetector):
    """The test's statistic for a rise of the training loss, in nats: how far the sum is above its lowest value.

    .. math:: S_t = \\alpha S_{t-1} + L_t - \\bar{L}_t - \\delta, \\quad s_t = S_t - \\min_{i \\le t} S_i

    with the mean of all losses since the last alarm, after which the test starts again. The parameters are river's
    defaults. A non-finite loss scores ``+inf`` and does not enter.

    **Deviation:** river's default looks for a change in either direction; a falling loss is no alarm here.
    """

    title = "Page–Hinkley (loss rises)"
    reads = ("training_loss",)
    source = "Page 1954; river"

    threshold: float = 50.0
    delta: float = 0.005
    """Rise a record that is let pass, nats."""
    alpha: float = 0.9999
    """Weight of the past in the sum."""
    min_records: int = 30
    """Records before the first score."""
    _test: PageHinkley = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from river.drift import PageHinkley  # two seconds to import; most runs do not need it

        self._test = PageHinkley(
            min_instances=self.min_records, delta=self.delta, threshold=self.threshold, alpha=self.alpha, mode="up"
        )

    def _next(self, loss: float) -> float:
        if not math.isfinite(loss):
            return loss
        test = self._test
        test.update(clipped(loss, CEILING))
        if test._x_mean.n < self.min_records:
            return math.nan
        return test._sum_increase - test._min_increase  # river exposes yes or no only
