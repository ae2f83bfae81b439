"""What holds in every step of a training loop, until it does not: gradients cleared, new batches, one schedule.

Between two updates nobody but the optimizer has to do with the weights, a backward pass begins with no gradient, a
batch is not the one before, nor one of few, something is left to learn, the schedule goes on as it has gone. To see
that needs no statistics, whatever is trained.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

from rmetric.monitor.settings import FACTOR, Change
from rmetric.robust.context import RATE_FACTOR, SAME_RATE

HELD, BROKEN = 32, 2
"""Measurements in a row in which an invariant must have held, and in which it must then be broken, to be news."""
TURNED = "gradient_turned"
FACTS = {
    "weights_changed": Change("the weight that a pass begins with", "the updated one", "another"),
    "gradients_kept": Change("the gradient that a backward pass begins with", "none", "an old one"),
    "batch_repeated": Change("the batch", "a new one", "the one before"),
    "examples_repeated": Change("the content of a batch", "different examples", "copies"),
    "targets_alike": Change("the content of a batch's targets", "several classes", "one class"),
    "statistics_still": Change("the state of batch norm's running statistics", "moving", "still"),
    TURNED: Change("the gradient that updates go by", "the one of the passes", "its opposite"),
}
"""Truth value of :mod:`~rmetric.monitor.loop_probes`, false while all is well → what has changed where it is not."""
FEW_BATCHES = Change("the batch", "a new one", "one of few that come again and again")
NOTHING_TO_LEARN = Change("the gradient of the loss", "not 0", "exactly 0, as the loss is")
BATCHES = 16
"""Latest batches, of which few that are served again and again are."""
UNTOUCHED = 1e-3
"""Largest relative change of a gradient's norm that is rounding and no clipping."""
STEADY = 0.02
"""Relative tolerance of a learning rate's speed from one measurement to the next: schedules are curved."""
OFF_CENTRE = 0.5
"""Change of the inputs' mean, in their root mean squares, that is another centre."""
INPUTS, CENTRE = "the root mean square of the inputs", "the mean of the inputs"
CLIPPING = "the norm that gradients are clipped to"
LOSS_FALLS = 10.0
"""Factor of the loss at once that is no learning."""
LOSS = "the loss"
NORM, CUT_OFF = "the norm of the gradient", "the number of tensors that get no gradient any more"
OF_ITS_OWN = ("examples_repeated", "targets_alike", "input_scale", "input_mean", "training_loss")
"""What an agent makes itself: it learns from what it does, and its loss is no measure of success."""
FIRST_PASSES = "the number of passes of a step that begin with no gradient"
RATE, SCHEDULE = "learning_rate", "steps of the learning-rate schedule in a step"


class Invariant(ABC):
    """Something that holds in every step, how long it has held, and since when it is broken."""

    by_chance = False
    """Whether it may be broken by itself: where it has been so once, twice in a row is no news."""

    breaks = BROKEN
    """Measurements in a row in which it must be broken to be news."""

    def __init__(self) -> None:
        self.held = self.broken = 0
        self.known = False
        """Whether it has been broken for as long as is news; for what breaks by chance, once."""

    @abstractmethod
    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        """Whether it is broken in a step with these measurements; ``None``: they do not tell."""

    @abstractmethod
    def change(self) -> Change:
        """Words for what has changed."""

    def begin_anew(self) -> None:
        """Forget what was usual, and how long."""
        self.held = 0

    def learn(self, measured: Mapping[str, float]) -> None:  # noqa: B027 - most compare with nothing
        """Take in, as usual, the step in which it was just found to hold."""

    def update(self, measured: Mapping[str, float]) -> Change | None:
        """Take in a step; returns what is news."""
        broken = self.is_broken(measured)
        if broken is None:
            return None
        if not broken:
            self.learn(measured)
            self.known |= self.by_chance and self.broken > 0
            self.held = 1 if self.broken else self.held + 1
            self.broken = 0
            return None
        self.broken += 1
        if self.broken < self.breaks:
            return None
        news = self.change() if self.broken == self.breaks and self.held >= HELD and not self.known else None
        self.known = True
        self.begin_anew()
        return news


class Fact(Invariant):
    """One of the :data:`FACTS`. Whether the first two hold is for the loop to decide; the others depend on the data."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.by_chance = name not in ("weights_changed", "gradients_kept")
        self._name = name

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        value = measured.get(self._name)
        return None if value is None or math.isnan(value) else value != 0.0

    def change(self) -> Change:
        return FACTS[self._name]


class FewBatches(Invariant):
    """A batch is none of the last 16; of one that comes for ever a fact tells, and sooner.

    Of six that are drawn at random one is left out for so long in one draw of twenty. Eight old batches in a row are
    news: where batches are drawn from a list, or dealt in a new order each epoch, a few come again soon by chance. For
    the shortest list whose first epoch has none, 33 batches, the first to come again are eight in one run of 10,000.
    """

    by_chance = True
    breaks = 8

    def __init__(self) -> None:
        super().__init__()
        self._latest: deque[float] = deque(maxlen=BATCHES)

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        key = measured.get("batch_key", math.nan)
        if math.isnan(key) or (self._latest and key == self._latest[-1]):
            return None
        known = key in self._latest
        self._latest.append(key)
        return known

    def change(self) -> Change:
        return FEW_BATCHES


class Remembered(Invariant):
    """A number that is compared with those of the last 32 measurements in which the invariant held."""

    by_chance = True

    def __init__(self) -> None:
        super().__init__()
        self._usual: deque[Any] = deque(maxlen=HELD)
        self._now = math.nan

    def begin_anew(self) -> None:
        super().begin_anew()
        self._usual.clear()

    def learn(self, measured: Mapping[str, float]) -> None:
        self._usual.append(self._now)


class OfLate(Remembered):
    """A number that does not lie beside those of late."""

    @abstractmethod
    def _value(self, measured: Mapping[str, float]) -> float:
        """The number of a step with these measurements; NaN: they do not tell."""

    @abstractmethod
    def _is_far(self, least: float, most: float) -> bool:
        """Whether it lies beside none from the smallest to the largest of late."""

    @property
    def _middle(self) -> float:
        return statistics.median_high(self._usual) if self._usual else math.nan

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        self._now = self._value(measured)
        if math.isnan(self._now):
            return None
        return self._is_far(min(self._usual, default=self._now), max(self._usual, default=self._now))


class InputScale(OfLate):
    """Inputs are not three times as large, or as small, as any in the last 32 measurements."""

    def _value(self, measured: Mapping[str, float]) -> float:
        scale = measured.get("input_scale", math.nan)
        return scale if 0.0 < scale < math.inf else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        return not least / FACTOR <= self._now <= most * FACTOR

    def change(self) -> Change:
        return Change(INPUTS, self._middle, self._now)


class InputCentre(OfLate):
    """The mean of the inputs is as large a share of their root mean square as before.

    As in the last 32 measurements, or beside these by as much as they differ, or by a half if that is more. Where
    inputs are no longer centred, or centred twice, their scale may hardly change.
    """

    def _value(self, measured: Mapping[str, float]) -> float:
        mean, scale = (measured.get(name, math.nan) for name in ("input_mean", "input_scale"))
        return mean / scale if math.isfinite(mean) and 0.0 < scale < math.inf else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        margin = max(most - least, OFF_CENTRE)
        return not least - margin <= self._now <= most + margin

    def change(self) -> Change:
        return Change(CENTRE, f"{self._middle:.2f} of their root mean square", round(self._now, 2))


class Clipping(Invariant):
    """Gradients reach the optimizer as long as before: clipped to one norm, or left alone as far as they were.

    Of what is clipped the norm is that of the last time, within a factor of three: clippers that go by the gradients'
    past move it gradually. What is longer is clipped; what is no longer than what was left alone is left alone again.
    """

    by_chance = True

    def __init__(self) -> None:
        super().__init__()
        self._norm = math.nan
        self.begin_anew()

    def begin_anew(self) -> None:
        super().begin_anew()
        self._bound, self._left_alone = math.inf, 0.0
        self._now, self._clipped, self._lengthened = math.nan, False, False

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        norm, self._norm = self._norm, measured.get("grad_norm", math.nan)  # an update is seen one measurement later
        share = measured.get("gradient_left", math.nan)
        if not (0.0 < norm < math.inf and 0.0 < share < math.inf):
            return None
        self._now, self._clipped, self._lengthened = norm * share, share < 1.0 - UNTOUCHED, share > 1.0 + UNTOUCHED
        least, most = min(norm, self._left_alone if self._bound == math.inf else self._bound), min(norm, self._bound)
        return not least / FACTOR <= self._now <= most * FACTOR

    def learn(self, measured: Mapping[str, float]) -> None:
        if self._clipped:
            self._bound = self._now
        else:
            self._left_alone = max(self._left_alone, self._now)

    def change(self) -> Change:
        before = f"none up to {self._left_alone:.3g}" if self._bound == math.inf else _in_short(self._bound)
        after = f"none, but lengthening to {self._now:.3g}" if self._lengthened else f"none at {self._now:.3g}"
        return Change(CLIPPING, before, _in_short(self._now) if self._clipped else after)


def _in_short(norm: float) -> float:
    """A norm without the rounding of single precision.

    >>> _in_short(0.04999992)
    0.05
    """
    return float(f"{norm:.4g}")


class ScheduleSpeed(Invariant):
    """A learning rate that changes gradually does not do so twice as fast, or a whole number of times as fast, at once.

    Whoever calls ``scheduler.step()`` twice, or once a process, does that. Kinks of a schedule (the end of a warmup)
    turn it, or stop it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._step = self._rate = self._speed = math.nan
        self._times = 1

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        step, rate = measured.get("step", math.nan), measured.get("learning_rate", math.nan)
        speed = (rate - self._rate) / (step - self._step) if step != self._step else math.nan
        self._step, self._rate = step, rate
        ratio = speed / self._speed if self._speed else math.nan
        times = round(ratio) if math.isfinite(ratio) else 0
        if times >= 1 and abs(ratio - times) <= STEADY * times:
            self._speed, self._times = speed / times, times
            return times > 1
        self.begin_anew()
        self._speed, self.broken = speed, 0
        return None

    def change(self) -> Change:
        return Change(SCHEDULE, 1.0, float(self._times))

    def begin_anew(self) -> None:
        super().begin_anew()
        self._speed = math.nan


class RateLeap(Invariant):
    """The learning rate does not leap, threefold at once, above all that the run has had.

    A restart comes back to what it has had (:class:`~rmetric.robust.context.Restarts`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = self._before = math.nan
        self._largest = 0.0

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        self._now = measured.get("learning_rate", math.nan)
        if not 0.0 < self._now < math.inf:
            return None
        return self._now >= RATE_FACTOR * self._before and self._now > SAME_RATE * self._largest

    def learn(self, measured: Mapping[str, float]) -> None:
        self._before, self._largest = self._now, max(self._now, self._largest)

    def change(self) -> Change:
        return Change(RATE, self._before, self._now)

    def begin_anew(self) -> None:
        super().begin_anew()
        self._before = math.nan


class NothingToLearn(Invariant):
    """Loss and gradient are not both exactly 0, as they are where every target is masked.

    Four steps in a row are news. Where a loss with a hinge comes to its end by itself, it is 0 in single steps first,
    which is by chance. A gradient of 0 beside a loss that is not is for the robust R-Metric to tell of.
    """

    by_chance = True
    breaks = 4

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        loss, norm = (measured.get(name, math.nan) for name in ("training_loss", "grad_norm"))
        return None if math.isnan(loss) or math.isnan(norm) else loss == norm == 0.0

    def change(self) -> Change:
        return NOTHING_TO_LEARN


class OfGradients(Remembered):
    """Of the gradients as they come. Where layers are frozen or freed, what is usual is learned anew."""

    def __init__(self) -> None:
        super().__init__()
        self._required = math.inf

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        before, self._required = self._required, measured.get("required_gradients", math.inf)
        if self._required != before:
            self.begin_anew()
        return self._is_broken(measured) if measured.get("grad_norm", math.nan) > 0.0 else None

    @abstractmethod
    def _is_broken(self, measured: Mapping[str, float]) -> bool | None:
        """The same where there is a gradient."""


class NoMore(OfGradients):
    """A number of tensors or passes is no larger than any of the last 32.

    Of tensors that are cut off from the gradient. And of passes that begin with no gradient: of the micro-batches of a
    step the first does; where all do, each clears what the one before has added.
    """

    def __init__(self, name: str, setting: str) -> None:
        super().__init__()
        self._name, self._setting = name, setting

    def _is_broken(self, measured: Mapping[str, float]) -> bool | None:
        self._now = measured.get(self._name, math.nan)
        return None if math.isnan(self._now) else self._now > max(self._usual, default=self._now)

    def change(self) -> Change:
        return Change(self._setting, max(self._usual, default=0.0), self._now)


class GradientFalls(OfGradients):
    """The gradient norm is not three times as small as any of the last 32, unless the loss is below all of those, too.

    Gradients shrink as a model learns, but not at once. One that is cut off does, and one of a loss that was made small
    after it was logged.
    """

    def _is_broken(self, measured: Mapping[str, float]) -> bool | None:
        loss, self._now = measured.get("training_loss", math.nan), measured["grad_norm"]
        if not (math.isfinite(loss) and math.isfinite(self._now)):
            return None
        losses, norms = zip(*(self._usual or [(loss, self._now)]), strict=True)
        return self._now * FACTOR < min(norms) and loss >= min(losses)

    def learn(self, measured: Mapping[str, float]) -> None:
        self._usual.append((measured["training_loss"], self._now))

    def change(self) -> Change:
        least = min((norm for _, norm in self._usual), default=math.nan)
        return Change(NORM, f"at least {least:.3g}", _in_short(self._now))


class LossFalls(OfLate):
    """The loss is not ten times as small as any of the last 32, three times in a row.

    A loss falls as a model learns, but not tenfold at once. One that has become another function does, one that is
    averaged over what is masked, or one whose answer has come to be among the inputs. Of a loss that is 0 or negative
    no ratio tells.
    """

    breaks = 3

    def _value(self, measured: Mapping[str, float]) -> float:
        loss = measured.get("training_loss", math.nan)
        return loss if 0.0 < loss < math.inf else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        return self._now * LOSS_FALLS < least

    def change(self) -> Change:
        return Change(LOSS, f"at least {min(self._usual, default=math.nan):.3g}", _in_short(self._now))


class LoopInvariants:
    """Tells which invariants hold no more.

    That one is broken twice in a row (a fallen loss: three times, nothing to learn: four, few batches: eight) is news
    if it held in the 32 measurements before. Once is no news: a checkpoint that is loaded, weights that are averaged,
    pruned or drawn anew are acts of the loop. Nor is what a loop does from its beginning on, or has done before:
    weights that are clipped after each update, gradients that add up, one batch of all data. What comes by chance (few
    and small examples come again, inputs with heavy tails leap) need have been seen once to be no news. What an agent,
    one that has had a reward, makes of its inputs and its loss is never news.

    **Source:** invariants of training loops as what tells a silent error: TrainCheck, Jiang et al., OSDI 2025, arXiv
    2506.14813. Theirs are inferred from the traces of other runs; these are written down, and a run's own past says
    whether they are meant to hold.
    """

    def __init__(self) -> None:
        self._of_agent = False
        self._invariants: list[Invariant] = [
            *(Fact(name) for name in FACTS if name != TURNED),
            InputScale(),
            Clipping(),
            ScheduleSpeed(),
            RateLeap(),
            FewBatches(),
            NothingToLearn(),
            NoMore("cut_off", CUT_OFF),
            GradientFalls(),
            NoMore("first_passes", FIRST_PASSES),
            Fact(TURNED),
            LossFalls(),
            InputCentre(),
        ]

    def stand_for_more_steps(self) -> None:
        """Take in that records come more seldom: of an epoch in order each of them sees other batches, maybe few."""
        for invariant in self._invariants:
            if invariant.by_chance:
                invariant.begin_anew()

    def update(self, measured: Mapping[str, float], *, planned: bool = False) -> list[Change]:
        """What a step brings that is news.

        Parameters
        ----------
        measured
            Measurements of the step by name: those of :mod:`~rmetric.monitor.loop_probes`, ``training_loss``,
            ``grad_norm``, ``learning_rate`` and ``step``, the number of tensors that require a gradient
            (``required_gradients``) and of those that are cut off from it (``cut_off``), and the ``reward`` of an
            agent. What is missing or NaN was not looked at.
        planned
            Whether a change was announced: what held before counts no more.
        """
        if planned:
            for invariant in self._invariants:
                invariant.begin_anew()
        if measured.get("training_loss", 0.0) < 0.0:  # no cross-entropy, whose gradient at the logits tells of targets
            measured = {**measured, "targets_alike": math.nan}
        self._of_agent |= math.isfinite(measured.get("reward", math.nan))
        if self._of_agent:
            measured = {**measured, **dict.fromkeys(OF_ITS_OWN, math.nan)}
        found = [invariant.update(measured) for invariant in self._invariants]
        return [change for change in found if change is not None]
