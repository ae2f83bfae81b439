"""What holds in every step of a training loop, until it does not: weights left alone, gradients cleared, new batches.

Between two updates nobody but the optimizer has to do with the weights, a backward pass begins with no gradient, a
batch is not the one before, and inputs have one scale. To see that needs no statistics, whatever is trained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from rmetric.monitor.settings import FACTOR, Change

HELD, BROKEN = 32, 2
"""Measurements in a row in which an invariant must have held, and in which it must then be broken, to be news."""
INVARIANTS = {
    "weights_changed": Change("the weight that a pass begins with", "the updated one", "another"),
    "gradients_kept": Change("the gradient that a backward pass begins with", "none", "an old one"),
    "batch_repeated": Change("the batch", "a new one", "the one before"),
}
"""Truth value of :mod:`~rmetric.monitor.loop_probes`, false while all is well → what has changed where it is not."""
SCALE, INPUTS = "input_scale", "the root mean square of the inputs"
BY_CHANCE = frozenset({"batch_repeated", SCALE})
"""What data may do by themselves: where they have done so once, twice in a row is no news."""


class LoopInvariants:
    """Tells which invariants hold no more.

    That one is broken twice in a row is news if it held in the 32 measurements before. Once is no news: a checkpoint
    that is loaded, weights that are averaged, pruned or drawn anew are acts of the loop. Nor is what a loop does from
    its beginning on, or has done before: weights that are clipped after each update, gradients that add up, one batch
    of all data. Few and small examples come again by chance, and inputs with heavy tails leap: of a batch, that has
    been broken once is enough. Inputs are of another scale where it is three times as large, or as small, as any in
    the last 32.

    **Source:** invariants of training loops as what tells a silent error: TrainCheck, Jiang et al., OSDI 2025, arXiv
    2506.14813. Theirs are inferred from the traces of other runs; these four are written down, and a run's own past
    says whether they are meant to hold.
    """

    def __init__(self) -> None:
        self._streaks = {name: _Streak(name in BY_CHANCE) for name in (*INVARIANTS, SCALE)}
        self._scales: deque[float] = deque(maxlen=HELD)

    def update(self, measured: Mapping[str, float], *, planned: bool = False) -> list[Change]:
        """What a step brings that is news.

        Parameters
        ----------
        measured
            Scalars of the step by name; what is missing was not looked at.
        planned
            Whether a change was announced: what held before counts no more.
        """
        if planned:
            for streak in self._streaks.values():
                streak.held = 0
            self._scales.clear()
        return [*self._broken(measured), *self._rescaled(measured.get(SCALE, 0.0))]

    def _broken(self, measured: Mapping[str, float]) -> Iterator[Change]:
        for name, change in INVARIANTS.items():
            if name in measured and self._streaks[name].is_news(measured[name] != 0.0):
                yield change

    def _rescaled(self, scale: float) -> Iterator[Change]:
        if not 0.0 < scale < float("inf"):
            return
        scales = self._scales or (scale,)
        broken, streak = not min(scales) / FACTOR <= scale <= max(scales) * FACTOR, self._streaks[SCALE]
        if streak.is_news(broken):
            yield Change(INPUTS, sorted(scales)[len(scales) // 2], scale)
        if broken and streak.broken >= BROKEN:
            self._scales.clear()  # that is their scale now
        if not broken or streak.broken >= BROKEN:
            self._scales.append(scale)


class _Streak:
    """How long an invariant held, and is broken."""

    def __init__(self, by_chance: bool) -> None:
        self.held = self.broken = 0
        self.known = False
        """Whether it has been broken for as long as is news; for what breaks by chance, once."""
        self._by_chance = by_chance

    def is_news(self, broken: bool) -> bool:
        """Take in the next measurement; whether it is news."""
        if not broken:
            self.known |= self._by_chance and self.broken > 0
            self.held = 1 if self.broken else self.held + 1
            self.broken = 0
            return False
        self.broken += 1
        news = self.broken == BROKEN and self.held >= HELD and not self.known
        self.known |= self.broken == BROKEN
        return news
