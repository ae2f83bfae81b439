"""Change-point detectors on the training loss: ADWIN, CUSUM of median and MAD, Page–Hinkley."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmetric.detectors.base import OneMeasurementDetector, clipped, register_detector
from rmetric.detectors.features import CEILING
from rmetric.robust.reference import RobustReference

if TYPE_CHECKING:
    from river.drift import ADWIN, PageHinkley

FLOOR_NATS = 1e-6
"""Smallest scale of the CUSUM: a loss that stands still is not to be divided by 0."""


@register_detector("adwin")
@dataclass(kw_only=True)
class Adwin(OneMeasurementDetector):
    """Rise of the training loss where ADWIN finds that its mean has changed, in nats; 0 everywhere else.

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


@register_detector("mad_cusum")
@dataclass(kw_only=True)
class MadCusum(OneMeasurementDetector):
    """Page's two-sided CUSUM of the training loss, as post-mortem tools run it: the larger of both sums.

    .. math::
        z_t = (d_t - \\tilde{d}) / (1.4826 \\, MAD), \\quad
        S^+_t = \\max(0, S^+_{t-1} + z_t - k), \\quad S^-_t = \\max(0, S^-_{t-1} - z_t - k)

    where d is the loss minus what its level and trend had it be (Brown's double exponential smoothing), with median and
    MAD of the last ``window`` of them. A non-finite loss scores ``+inf`` and does not enter.

    **Deviation:** tools standardise the loss itself. A loss that is learned falls, and against its last 200 values the
    sums stay above h in nine of ten healthy records of the simulated study; hence the trend is removed. Tools start the
    sums again after an alarm; here they go on, so that the score says how much evidence there is, whatever the
    threshold. To keep one outlier from filling them for good, z is limited to ± ``clip``, and the loss enters level,
    trend and window limited likewise.
    """

    title = "median/MAD CUSUM (h = 5)"
    reads = ("training_loss",)
    source = (
        "Page 1954; k and h: Montgomery, Introduction to Statistical Quality Control; "
        "window and warm-up: trainscope 1.8.1, ChangePointDetector; trend: Brown 1959"
    )

    threshold: float = 5.0
    """h, in standard deviations."""
    slack: float = 0.5
    """k, in standard deviations: half the shift that is to be found."""
    window: int = 200
    """Deviations that are remembered."""
    warm_up: int = 30
    """Deviations before the first score."""
    memory: int = 10
    """Fading memory of level and trend, in records, more than 1: the fading factor is 2 / (memory + 1)."""
    clip: float = 10.0
    """Largest |z| that enters the sums."""
    _reference: RobustReference = field(init=False, repr=False)
    _mean: float = field(init=False, repr=False, default=math.nan)
    _mean_of_mean: float = field(init=False, repr=False, default=math.nan)
    _above: float = field(init=False, repr=False, default=0.0)
    _below: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        self._reference = RobustReference(window=self.window, warm_up=self.warm_up, floor=FLOOR_NATS, clip=self.clip)

    def _next(self, loss: float) -> float:
        if not math.isfinite(loss):
            return loss
        loss = clipped(loss)
        if math.isnan(self._mean):
            self._mean = self._mean_of_mean = loss
            return math.nan
        z = self._standardised(loss)
        if math.isnan(z):
            return math.nan
        self._above = max(0.0, self._above + z - self.slack)
        self._below = max(0.0, self._below - z - self.slack)
        return max(self._above, self._below)

    def _standardised(self, loss: float) -> float:
        """z of the next loss, limited; NaN during the warm-up."""
        fading = 2.0 / (self.memory + 1)
        lag = self._mean - self._mean_of_mean
        expected = self._mean + lag + fading / (1.0 - fading) * lag
        deviation = loss - expected
        z = self._reference.update(deviation)
        if abs(z) > self.clip:
            deviation *= self.clip / abs(z)
            z = math.copysign(self.clip, z)
        self._mean += fading * (expected + deviation - self._mean)
        self._mean_of_mean += fading * (self._mean - self._mean_of_mean)
        return z


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
