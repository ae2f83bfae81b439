"""Test whether a step is suspicious."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmetric.monitor.step_numbers import StepNumbers
from rmetric.robust.loss import LEARNED_NATS, UNIFORM_NATS


@dataclass(frozen=True)
class Alarm:
    """Reasons why a step is suspicious."""

    reasons: tuple[str, ...]
    tensors: tuple[str, ...] = ()
    """Parameters whose gradients stand out."""
    certain: bool = False
    """True if no healthy step has such numbers."""
    falls: bool = False
    """True if all that is unusual is unusually low."""
    left_to_scaler: bool = False
    """True if the gradient scaler leaves the update out as part of its work: worth another computation, and no more."""


@dataclass(kw_only=True)
class Suspicion:
    r"""Numbers that no healthy step has, and numbers far from those of the last steps.

    Certain signs: a loss or a gradient that is not finite; a buffer that has got a NaN, or its first +inf (one
    activation spoils the running statistics of batch normalisation, and no later batch mends them); a gradient norm of
    exactly 0 with a loss that is not; a loss of exactly ln(vocabulary) from a model that had learned more. With a
    gradient scaler (``patience``) a few steps in a row whose loss alone is finite are not certain: it finds its scale
    that way.

    Unusual: for x = the logarithm of the norm of each tensor's gradient, of the whole gradient, of the largest worker's
    (or micro-batch's) gradient, and for the loss itself, with m an exponentially weighted mean and s the exponentially
    weighted mean of \|x − m\| over the accepted steps,

    .. math:: |x_t - m_{t-1}| > \max(k_{t-1} s_{t-1}, \text{least})

    (of the loss only what lies above). A value enters m and s limited to m ± 3 s, so that an outlier hardly raises its
    own bar, and a new level is learned within some twenty steps. Where all move fast, in the first steps and in the
    warm-up of a learning rate, s is as large as the steps are.

    Healthy gradients have heavy tails, some tensors' more than others'. So each x has its own factor k, from
    ``threshold`` on: what was unusual and turned out to be sound (a second computation agreed, and the update was made
    from it as it was) raises k a little above it, and k returns with a time constant of ``forgetting`` steps. Nothing
    else raises it: the first gradient of a burst that nobody has looked at again would hide the others.

    It may be loose: a second computation that agrees bit for bit changes nothing but the time.

    **Source:** the idea of a dynamic threshold: Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726.
    **Deviation:** they test the RMS of the parameter update. Here it is the gradient, which is there before the
    optimizer's state is touched. For SGD the update *is* the gradient times the learning rate. With AdamW no element
    moves by more than (1 − β₁)/√(1 − β₂) ≈ 3 learning rates more than usual because of one wrong gradient, so a single
    element that does not show in the norm of its tensor does no harm; what does harm shows. A flip in the optimizer's
    own state shows in the update alone; it is not found here but by :class:`RestoreState`.
    """

    threshold: float = 8.0
    """Least factor k, in mean absolute deviations."""
    margin: float = 1.5
    """Factor by which k is raised above a deviation that was unusual and sound."""
    forgetting: int = 10_000
    """Steps in which k returns by 63 %."""
    least: float = 0.1
    """Smallest deviation that counts: of a norm, in units of its logarithm; of the loss, in nats."""
    memory: int = 32
    """Steps; weight of the past in the means is 1 − 1/memory."""
    warm_up: int = 16
    """Accepted steps before anything is called unusual."""
    vocabulary: int | None = None
    """Number of tokens that the model tells apart; ``None``: not known."""
    patience: int = 0
    """Steps in a row whose gradients may not be finite while the loss is."""
    _broken_row: int = field(init=False, repr=False, default=0)
    """Steps in a row that had such gradients, up to now."""
    _names: tuple[str, ...] = field(init=False, repr=False, default=())
    _mean: NDArray[np.float64] = field(init=False, repr=False)
    _deviation: NDArray[np.float64] = field(init=False, repr=False)
    _factor: NDArray[np.float64] = field(init=False, repr=False)
    _limit: NDArray[np.float64] = field(init=False, repr=False)
    """Least unusual deviation; infinite where it is not known yet."""
    _seen: NDArray[np.float64] = field(init=False, repr=False)
    _lowest_loss: float = field(init=False, repr=False, default=math.inf)

    def __post_init__(self) -> None:
        self.watch(())

    def watch(self, names: Sequence[str]) -> None:
        """Begin anew with these parameters."""
        self._names = tuple(names)
        size = len(names) + 3
        self._mean, self._deviation, self._seen = np.zeros(size), np.zeros(size), np.zeros(size)
        self._factor, self._limit = np.full(size, float(self.threshold)), np.full(size, np.inf)

    def _follow(self, names: Sequence[str]) -> None:
        """Watch the parameters that have come since, too."""
        new = tuple(names[len(self._names) :])
        if new:
            place = len(self._names)
            self._names += new
            for history, empty in (("_mean", 0.0), ("_deviation", 0.0), ("_seen", 0.0), ("_limit", np.inf)):
                setattr(self, history, np.insert(getattr(self, history), [place] * len(new), empty))
            self._factor = np.insert(self._factor, [place] * len(new), float(self.threshold))

    @property
    def factors(self) -> NDArray[np.float64]:
        """The k of each x now."""
        return self._factor.copy()

    def judge(
        self,
        numbers: StepNumbers,
        factors: NDArray[np.float64] | None = None,
        *,
        broken_buffers: Sequence[str] = (),
    ) -> Alarm | None:
        """Test the numbers of a computation; changes nothing that is known.

        Parameters
        ----------
        factors
            Other k, in place of those of now.
        broken_buffers
            Names of the buffers that are not finite any more.
        """
        self._follow(numbers.names)
        loss, norms = numbers.scalars["training_loss"], numbers.norms
        if loss == 0.0 and not norms.any() and not numbers.parts.any():  # as where all examples keep their margin
            return None
        reasons, broken = [], _broken(numbers)
        if not math.isfinite(loss):
            reasons.append("the loss is not finite")
        if broken:
            reasons.append("a gradient is not finite")
        reasons += [f"the buffer {name} is not finite any more" for name in broken_buffers[:1]]
        if len(norms) and not norms.any():
            reasons.append("the gradient is exactly zero")
        if self._uniform(loss):
            reasons.append("the loss is exactly ln(vocabulary)")
        if not reasons:
            return self._unusual(numbers, self._limit if factors is None else self._limits(factors))
        overflow = broken and math.isfinite(loss) and not broken_buffers and self._broken_row < self.patience
        tensors = tuple(numbers.named(~np.isfinite(norms)))
        return Alarm(tuple(reasons), tensors, certain=not overflow, left_to_scaler=overflow)

    def _uniform(self, loss: float) -> bool:
        if self.vocabulary is None:
            return False
        uniform = math.log(self.vocabulary)
        return abs(loss - uniform) <= UNIFORM_NATS and self._lowest_loss < uniform - LEARNED_NATS

    def _unusual(self, numbers: StepNumbers, limit: NDArray[np.float64]) -> Alarm | None:
        distance = self._values(numbers) - self._mean
        far = _far(distance, limit)
        if not far.any():
            return None
        tensors = tuple(self._names[index] for index in np.flatnonzero(far[: len(self._names)]))
        kinds = (
            (far[-1], "the loss is unusually high"),
            (far[-3], "the gradient norm is unusual"),
            (far[-2], "the gradient norm of a worker is unusual"),
            (bool(tensors), f"{len(tensors)} tensor(s) have an unusual gradient norm"),
        )
        return Alarm(tuple(text for there, text in kinds if there), tensors, falls=not (distance[far] > 0.0).any())

    def _limits(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Least unusual deviations with these factors, which may be from before some parameters came."""
        new = len(self._deviation) - len(factors)
        factors = np.insert(factors, [len(factors) - 3] * new, float(self.threshold)) if new else factors
        limits: NDArray[np.float64] = np.maximum(factors * self._deviation, self.least)
        if self._seen.min() < self.warm_up:
            limits[self._seen < self.warm_up] = np.inf
        return limits

    def _values(self, numbers: StepNumbers) -> NDArray[np.float64]:
        """Logarithms of the tensors' norms, of the whole one, of the largest part's; the loss. NaN: not there."""
        values = np.full(len(self._mean), np.nan)
        norms, parts = numbers.norms, numbers.parts
        if len(norms):
            values[numbers.gradients] = norms
            values[-3] = numbers.norm
        if len(parts) > 1:
            values[-2] = parts.max()
        with np.errstate(divide="ignore"):
            np.log(values, out=values)
        values[-1] = numbers.scalars["training_loss"]
        return values

    @property
    def usual_norm(self) -> float:
        """Usual norm of the whole gradient; NaN as long as nothing is called unusual."""
        return math.exp(self._mean[-3]) if self._seen[-3] >= self.warm_up else math.nan

    def accept(self, numbers: StepNumbers, *, sound: bool = True) -> None:
        """Take a computation into the means: the update was made from it, or left to the gradient scaler.

        If what is unusual in it turned out to be ``sound``, it raises its factors k.
        """
        self._broken_row = self._broken_row + 1 if _broken(numbers) else 0
        loss = numbers.scalars["training_loss"]
        if math.isfinite(loss):
            self._lowest_loss = min(self._lowest_loss, loss)
        values = self._values(numbers)
        there = np.isfinite(values)
        if there.all():
            self._enter(values, there, sound)
        else:
            self._enter(np.where(there, values, self._mean), there, sound)
            # a tensor whose gradient is exactly zero has to show again what is usual
            self._seen[np.isneginf(values)] = 0.0
            self._limit[self._seen < self.warm_up] = np.inf

    def _enter(self, values: NDArray[np.float64], there: NDArray[np.bool_], sound: bool) -> None:
        distance = values - self._mean
        if sound and (far := _far(distance, self._limit)).any():
            seen = self.margin * np.abs(distance[far]) / np.maximum(self._deviation[far], self.least / self.threshold)
            self._factor[far] = np.maximum(self._factor[far], seen)
        self._factor += (self.threshold - self._factor) / self.forgetting
        if self._seen.min() >= self.memory:
            limit, weight = 3.0 * self._deviation + self.least / 8.0, there / self.memory
        else:  # a short memory first: a mean over all steps so far, until there are as many as the memory holds
            armed = self._seen >= self.warm_up
            limit = np.where(armed, 3.0 * self._deviation + self.least / 8.0, np.inf)
            weight = there / np.minimum(self._seen + 1.0, self.memory)
        distance = np.minimum(np.maximum(distance, -limit), limit)
        self._mean += weight * distance
        # the first value of all has no distance from anything
        self._deviation += np.where(self._seen > 0, weight, 0.0) * (np.abs(distance) - self._deviation)
        self._seen += there
        self._limit = self._limits(self._factor)


def _far(distance: NDArray[np.float64], limit: NDArray[np.float64]) -> NDArray[np.bool_]:
    far: NDArray[np.bool_] = np.abs(distance) > limit  # false for NaN: not measured
    far[-1] &= distance[-1] > 0.0
    return far


def _broken(numbers: StepNumbers) -> bool:
    return not math.isfinite(numbers.norms.sum() + numbers.parts.sum())
