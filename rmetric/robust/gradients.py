"""σ² of the robust R-Metric: size of gradients and updates, and numbers that no healthy step has."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import Observation, reader
from rmetric.robust.context import RATE_FACTOR
from rmetric.robust.reference import (
    CLIP,
    LEVEL_RECORDS,
    Held,
    Level,
    RobustReference,
    RobustTrend,
    SortedWindow,
    UpperReference,
    logarithm,
)

GRADIENT_FLOOR = 0.2
"""Smallest scale of the log gradient norm: where norms hardly scatter, a lasting rise by a tenth is many scales and
means nothing."""
GRADIENT_GROWTH = 0.5
"""Power of the step number with which a healthy gradient norm may rise: it does so at the beginning of many runs, by
up to a factor of three in the first hundred steps."""
UPDATE_FLOOR = 0.1
"""The same of the log update. An optimizer that averages gradients makes updates so smooth, and so slowly wandering,
that their own MAD would take every change of the schedule for a shock."""
FADES = 0.35
"""Fall of the log update over eight records, beyond its rate's, from which on they are the echo of one: an average of
gradients that forgets a tenth in a step, as Adam's and most momenta do, falls by 0.74, one that forgets a twentieth by
0.36."""
AGREEMENT_FLOOR, AGREEMENT_RECORDS = 0.1, 4
"""Smallest scale of the agreement of gradients, a cosine, and records that must all lie above the past: a phase of fast
learning makes one or two agree."""
PLATEAU_RECORDS = 5
"""Updates whose median is a size that the run has had, and not one outlier."""
ZEROS = 3
"""Sizes of exactly 0 in a row that are no accident, by 1 + those of the longest stretch before, after which it went on.
A loss scaler leaves out a step now and then; the state DEAD has the same rule."""
EXPLAINED_PER_NAT = 0.6
"""Rise of the log gradient norm that a nat of loss explains, at most: the bad batches of the study's fit half (half of
their rows are random bytes) raised it by 0.36 to 0.62 for each nat that they raised the loss."""
EXPLAINED_NATS = 3.0
"""Nats of loss that explain something, at most: those bad batches had 2.4 to 3.4. However wrong its answers are, the
gradient of a cross-entropy is bounded."""


class Zeros:
    """Detects a size that has become exactly 0, for much longer than it ever was before.

    Nothing arrives any more then. A learning rate that warms up begins with updates of 0, and some losses (a margin, a
    reward that all samples share) have no gradient now and then.

    >>> zeros = Zeros(warm_up=2)
    >>> [zeros.update(size) for size in (0.0, 1.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0)]
    [False, False, False, False, False, False, True, True]
    """

    def __init__(self, warm_up: int) -> None:
        self._warm_up, self._sizes, self._zeros, self._longest = warm_up, 0, 0, 0

    def update(self, size: float) -> bool:
        """Whether sizes have become zero with the next one; NaN is left out."""
        if size > 0.0:
            self._sizes += 1
            self._longest = max(self._longest, self._zeros)
            self._zeros = 0
        elif size == 0.0 and self._sizes >= self._warm_up:
            self._zeros += 1
        return self._zeros >= ZEROS * (1 + self._longest)

    def extend(self, sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The same of each of the next sizes, shape (n,)."""
        if self._zeros == 0 and not (sizes == 0.0).any():  # as in most runs
            self._sizes += int((sizes > 0.0).sum())
            return np.zeros(len(sizes), dtype=bool)
        return np.array([self.update(size) for size in sizes.tolist()], dtype=bool)


class Fading:
    """Detects logarithms of which the last is much smaller than the first of so many: what once leapt and dies away.

    >>> fading = Fading()
    >>> [fading.update(5.0 - 0.1 * record) for record in range(9)][6:]
    [False, True, True]
    """

    def __init__(self, records: int = LEVEL_RECORDS, by: float = FADES) -> None:
        self.recent: deque[float] = deque(maxlen=records)
        self.by = by

    def update(self, value: float) -> bool:
        """Whether the last logarithms fade with the next one; one that is not finite is left out."""
        if not math.isfinite(value):
            return False
        self.recent.append(value)
        return len(self.recent) == self.recent.maxlen and self.recent[-1] <= self.recent[0] - self.by


class Update:
    """The next update, as its learning rate announces it, over the largest that the run is used to.

    A monitor measures an update when it has been made. The learning rate of the next one is known before: it is taken
    to be as many times larger than the last as the learning rate is. A step is a quarter of the warning time where a
    learning rate breaks a run.

    A restart of the schedule returns to sizes that the run has had, and is meant to; so the present level counts or the
    largest level of the run so far, whichever is larger.

    >>> from itertools import pairwise
    >>> update = Update(window=16, warm_up=8)
    >>> rates = [0.1] * 11 + [0.01, 0.1, 1.0]
    >>> scores = [update.update(1e-3, before, rate) for before, rate in pairwise(rates)]
    >>> scores[7], scores[8], [round(score) for score in scores[10:]]
    (nan, 0.0, [0, 23, 23])
    """

    def __init__(self, window: int, warm_up: int) -> None:
        self.sizes = RobustReference(window=window, warm_up=warm_up, floor=UPDATE_FLOOR, clip=CLIP)
        """ln of the updates."""
        self.recent = SortedWindow(PLATEAU_RECORDS)
        """The last of these, clipped."""
        self.largest = -math.inf
        """Largest median that the recent ones have had."""

    def update(self, rms: float, before: float, rate: float) -> float:
        """z of the next update over the level; NaN for one that was not measured and during the warm-up.

        ``before`` is the learning rate that the last update was made with, ``rate`` that of the next.
        """
        size = logarithm(rms)
        growth = logarithm(rate) - logarithm(before)
        z = self.sizes.update(size)
        if not math.isfinite(z):
            if math.isfinite(size):
                self._remember(size)
            return z
        middle, scale = self.sizes.middle, self.sizes.scale
        announced = size + (growth if growth > 0.0 else 0.0) - max(self.largest, middle)
        self._remember(min(max(size, middle - CLIP * scale), middle + CLIP * scale))
        return announced / scale

    def _remember(self, size: float) -> None:
        self.recent.add(size)
        if len(self.recent) == PLATEAU_RECORDS:
            self.largest = max(self.largest, self.recent.middle)


class GradientEvidence:
    """Statistics of σ²: gradient norm and update, each a logarithm; broken arithmetic.

    ``non_finite_count`` is infinite in a record with a gradient that is not finite, ``settings_changed`` in one with a
    setting that changed, unless a change was announced. A gradient norm or an update that has become exactly 0 is
    infinite too (:class:`Zeros`), unless the loss is 0 as well: a margin that all examples keep leaves nothing to
    learn. An update may be that of the record before, as a monitor measures it, or of its own.

    One high gradient norm is no evidence: healthy runs of translation models have tenfold ones now and then. Eight that
    are high on average are, unless the loss makes new lows, as where a model leaves a plateau; or one
    together with its loss: ``unexplained`` tells a broken model from a bad batch in one
    record. A bad batch raises the loss, and the gradient by what such a loss explains; a healthy gradient that stands
    out leaves the loss where it was; a model that breaks raises the loss, and the gradient by more. It is the smaller
    one of both excesses: of the loss in nats, and of the log gradient norm without what the loss explains. For a loss
    that is no cross-entropy it says less: where losses of very different size come in turn, a large one with its
    gradient, the third time that it comes, is an alarm.

    Updates that stay above what their learning rate explains (``update_rms.held``) come of a missing ``zero_grad``, of
    weights that rot, of a decay that is too large, mostly before the loss moves by more than its noise. It takes eight
    in a row that do not fade, because an optimizer averages gradients: a bad batch stays in several updates. Updates
    settle for long after a start, so that nothing is judged before the window is full.

    Batches differ, and so do their gradients. Where four in a row agree with those before by more than they used to,
    the batches do not differ any more, or something else than them makes the gradient: one that is not cleared, an old
    copy of the weights, an error that all batches share. Mostly the loss does not tell. A cosine below 0, as in a
    valley that is crossed to and fro, is no agreement, even if those before were lower.

    Neither is evidence where the learning rate has come down to a third or less within a window, by a step of its
    schedule or smoothly: smaller steps leap to and fro less, so that gradients agree, and updates become larger for
    their rate.
    """

    statistics = (
        "non_finite_count.jump",
        "settings_changed.jump",
        "grad_norm.level",
        "grad_norm.unexplained",
        "grad_agreement.held",
        "update_rms.jump",
        "update_rms.held",
    )
    reads = (
        "non_finite_count",
        "settings_changed",
        "grad_norm",
        "training_loss",
        "grad_agreement",
        "update_rms",
        "learning_rate",
    )
    _read = staticmethod(reader(reads))

    def __init__(self, window: int, warm_up: int, after: int, zeros: tuple[Zeros, Zeros] | None = None) -> None:
        self.after = after
        """Step after which the run, or what it does since it was changed, began."""
        self.norm = RobustTrend(window=window, warm_up=warm_up, floor=GRADIENT_FLOOR, growth=GRADIENT_GROWTH)
        """Course of ln(gradient norm)."""
        self.level = Level()
        """How far the last eight of these lay above it, in scales."""
        self.sizes = Update(window, warm_up)
        """Sizes of updates, as their learning rates announce them."""
        self.rate = self.log_rate = math.nan
        """The latest learning rate and its logarithm; NaN before any."""
        self.ratio = RobustReference(window=window, warm_up=window, floor=UPDATE_FLOOR, clip=CLIP)
        """ln of the update over its learning rate."""
        self.larger = Held(LEVEL_RECORDS)
        """How far the last of these ratios all lay above those before."""
        self.agreement = UpperReference(window=window, warm_up=warm_up, floor=AGREEMENT_FLOOR, clip=CLIP)
        """Cosine of a gradient and the one before."""
        self.agreeing = Held(AGREEMENT_RECORDS)
        """How far the last of these cosines all lay above those before."""
        self.fading, self.slowing = Fading(), Fading(window, math.log(RATE_FACTOR))
        """Whether updates fade for their rate, and whether the learning rate has come down."""
        self.zero_norms, self.zero_updates = zeros or (Zeros(warm_up), Zeros(warm_up))
        """Whether gradient norms and updates have become exactly 0."""
        self.all_learned = False
        """Whether the latest loss was 0."""

    @property
    def zeros(self) -> tuple[Zeros, Zeros]:
        """What is known of norms and updates of 0, for what comes after this."""
        return self.zero_norms, self.zero_updates

    def update(self, observation: Observation, loss_excess: float, *, new_lows: bool) -> tuple[float, ...]:
        """The statistics of the next record, whose loss lies so far above its course, in nats.

        ``new_lows``: whether the model learns more than it ever did (:class:`~rmetric.robust.context.NewLows`).
        """
        broken, changed, norm, loss, agreement, update, rate = self._read(observation)
        if observation.announced:
            changed = math.nan
        broken, changed = math.inf if broken > 0.0 else broken, math.inf if changed > 0.0 else changed
        level = self.level.update(self.norm.update(observation.step - self.after, logarithm(norm)))
        unexplained = _unexplained(loss_excess, self.norm.excess)
        before, log_before = self.rate, self.log_rate
        if rate == rate:
            self.rate, self.log_rate = rate, logarithm(rate)
        jump = self.sizes.update(update, before, rate)
        held, agreeing = self._steps(logarithm(update) - log_before, agreement)
        if new_lows:
            level, agreeing, held = _without_rise(level, agreeing, held)
        learned_before, self.all_learned = self.all_learned, loss == 0.0
        solved = update == 0.0 and (self.all_learned or learned_before)
        if self.zero_norms.update(math.nan if self.all_learned else norm):
            level = math.inf
        if self.zero_updates.update(math.nan if solved else update):
            jump = math.inf
        return broken, changed, level, unexplained, agreeing, jump, held

    def _steps(self, ratio: float, agreement: float) -> tuple[float, float]:
        """Evidence of how steps follow one another: updates that stay large, gradients that agree."""
        held = self.larger.update(self.ratio.update(ratio))
        agrees = self.agreement.update(agreement)
        agreeing = self.agreeing.update(min(agrees, 0.0) if agreement <= 0.0 else agrees)
        fading, slowing = self.fading.update(ratio), self.slowing.update(self.log_rate)
        if fading or slowing:  # the echo of one gradient, or smaller steps
            held, agreeing = _without_rise(held, agreeing)
        return held, agreeing


def _without_rise(*statistics: float) -> tuple[float, ...]:
    """The same, and 0 for each that is high."""
    return tuple(0.0 if z > 0.0 else z for z in statistics)


def _unexplained(loss_nats: float, log_norm: float) -> float:
    """The smaller excess, that of the norm without what the loss explains; NaN where one cannot be judged."""
    known = math.isfinite(loss_nats) and math.isfinite(log_norm)
    return min(loss_nats, log_norm - EXPLAINED_PER_NAT * min(loss_nats, EXPLAINED_NATS)) if known else math.nan
