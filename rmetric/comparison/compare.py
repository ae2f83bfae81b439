"""Two runs, signal by signal: identical up to a step, or alike up to noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.comparison.change_point import WARM_UP, certain_after
from rmetric.comparison.differences import FLOOR, POSITIVE, THRESHOLDS, Late, differences_of
from rmetric.comparison.resolution import decimals_of, rounding
from rmetric.importers.rows import is_finite
from rmetric.log_lines import plain_text
from rmetric.records import Run
from rmetric.states.series import noise as noise_of

Floats = NDArray[np.float64]
SIGNALS = {
    "learning_rate": "learning rate", "training_loss": "training loss", "validation_loss": "validation loss",
    "grad_norm": "gradient norm", "update_rms": "update RMS", "sigma_sq": "variance of the gradients",
}  # fmt: skip
"""Signals that are compared, and their names. Step times are the machine's and differ from run to run."""
PLANNED = frozenset({"learning_rate"})
"""Signals without noise."""
DIGITS, ALL_DIGITS = 6, 17
"""Significant digits of a value: as many as are read at ease, and as many as tell any two numbers apart."""
LEVEL = 10.0
"""Units of noise by which each quarter of the difference of runs that differ throughout lies off 0. The whole of 444
pairs of healthy runs of other seeds comes to 3.2 at most; kinds whose seeds learn at another time come to more."""
SHARED = 3
"""Common values of a signal that are identical from the start, each unlike the one before, in runs of one seed."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """First difference of two runs in one signal."""

    signal: str
    step: int
    """First step of it."""
    certain_at: int
    """Step at which it exceeded what noise explains; ``step`` itself where the runs were identical before."""
    a: float
    """Value of the first run at ``step``; median from there up to ``certain_at`` where a level differs."""
    b: float
    """That of the second one."""
    noise: float
    """Robust standard deviation of the latest differences before (of logarithms: gradients, updates); 0: identical
    before; NaN: not known and not needed, since nothing is before or one of the two is not finite."""
    or_before: bool = False
    """True if it may have begun earlier: at the first step that is judged it was there."""
    throughout: bool = False
    """True if the level differs from the first common step on."""
    shift: float = math.nan
    """How far the level of b less a (of logarithms: gradients, updates) moved at ``step``; NaN unless that lasts."""

    @property
    def sentence(self) -> str:
        """Evidence in words."""
        earlier = " or before" if self.or_before else ""
        a, b = _told_apart(self.a, self.b)
        unit = "of the logarithms " if self.signal in POSITIVE else ""
        if self.throughout:
            return (
                f"{SIGNALS[self.signal]} {a} and {b} in the median, from step {self.step:,} on; from step to step the "
                f"differences {unit}have a deviation of {self.noise:.2g}"
            )
        before = f"the latest differences {unit}before had a deviation of {self.noise:.2g} (1.4826 MAD)"
        if not math.isnan(self.shift):
            return (
                f"{SIGNALS[self.signal]} {a} and {b} in the median of steps {self.step:,} to {self.certain_at:,}: the "
                f"difference {unit}has moved by {self.shift:+.2g} for so long at least; {before}"
            )
        values = f"{SIGNALS[self.signal]} {a} and {b} at step {self.step:,}{earlier}"
        if self.noise == 0.0:
            return f"{values}; identical before"
        if math.isnan(self.noise):
            return values
        return f"{values}, certain at step {self.certain_at:,}; {before}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two runs have in common, and where they part."""

    a: str
    b: str
    """Names of the runs."""
    steps: int
    """Steps of which both have a record."""
    identical_until: int | None
    """Last common step up to which all values that both have are identical, at the precision of the coarser log;
    ``None``: they differ from the start, or share the learning rate alone."""
    differences: tuple[Difference, ...]
    """By step."""
    alike: tuple[str, ...]
    """Signals without a difference."""
    late: Mapping[str, Late]
    """Signal that is alike and not identical → b less a (of logarithms: gradients, updates) in the mean of the second
    half, and the noise of one record; a signal with few values is left out."""
    not_compared: Mapping[str, str]
    """Signal → why it cannot be compared."""

    @property
    def first(self) -> Difference | None:
        """The first difference of all signals; ``None``: the runs are alike."""
        return self.differences[0] if self.differences else None

    @property
    def compared(self) -> bool:
        """True if any signal could be compared."""
        return bool(self.differences or self.alike)

    @property
    def _without_difference(self) -> str:
        if self.alike:
            return "no change beyond noise" + (" in what could be compared" if self.not_compared else "")
        if not self.steps:
            return "nothing could be compared: no common step"
        return "nothing could be compared" + ("" if self.not_compared else f": no common {', '.join(SIGNALS.values())}")

    @property
    def _late_means(self) -> list[str]:
        return [
            f"{SIGNALS[name]} {mean:+.2g} ({noise:.2g}){' of the logarithms' * (name in POSITIVE)}"
            for name, (mean, noise) in self.late.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON; a number that is not finite is left out."""
        found = [{**vars(one), "sentence": one.sentence} for one in self.differences]
        finite = [{name: value for name, value in one.items() if is_finite(value)} for one in found]
        late = {signal: mean._asdict() for signal, mean in self.late.items()}
        of_signals = {"alike": list(self.alike), "late": late, "not_compared": dict(self.not_compared)}
        return {**vars(self), "differences": finite, **of_signals}

    def __str__(self) -> str:
        lines = [f"{plain_text(self.a)} and {plain_text(self.b)}: {self.steps:,} common steps"]
        if self.identical_until is not None and self.compared:
            lines.append(f"identical up to step {self.identical_until:,}")
        lines.append(f"first difference: {self.first.sentence}" if self.first else self._without_difference)
        lines += [f"  {one.sentence}" for one in self.differences[1:]]
        if self.alike:
            lines.append(f"alike: {', '.join(SIGNALS[name] for name in self.alike)}")
        if self.late:
            means = "; ".join(self._late_means)
            lines.append(f"second run less first in the mean of the last half (noise of one record): {means}")
        lines += [f"not compared: {SIGNALS[name]} ({why})" for name, why in self.not_compared.items()]
        return "\n".join(lines)


def compare(a: Run, b: Run) -> Comparison:
    """Compare two runs at their common steps.

    Values are equal if they are within the rounding of the log with fewer digits
    (:func:`~rmetric.comparison.resolution.rounding`). Runs in which all noisy signals are identical at first, and move
    there, share seed and machine: the first difference is exact. Else the differences up to a step say what noise is,
    and a change-point of their mean (:func:`~rmetric.comparison.change_point`), a jump of their magnitude
    (:func:`~rmetric.comparison.scale_jump.scale_jump`) or a shift of their level that lasts
    (:func:`~rmetric.comparison.level_shift.level_shift`) what is more; runs whose differences lie off 0 from the start
    differ throughout. Two seeds that wander apart slowly are alike: :attr:`Comparison.late` says how far they are.
    """
    steps, rows_a, rows_b = np.intersect1d(a.observations.step, b.observations.step, return_indices=True)
    columns = {name: tuple(run.observations.stated(name) for run in (a, b)) for name in SIGNALS}
    decimals = decimals_of(one for one, _ in columns.values()), decimals_of(other for _, other in columns.values())
    common = {}
    for name, (whole, whole_b) in columns.items():
        if np.isnan(whole).all() and np.isnan(whole_b).all():
            continue
        one, other = whole[rows_a], whole_b[rows_b]
        rows = np.flatnonzero(~np.isnan(one) & ~np.isnan(other))
        common[name] = _Common(rows, one[rows], other[rows], decimals)
    noisy = [both for name, both in common.items() if name not in PLANNED]
    parted = min((both.parted for both in noisy), default=math.inf)
    shared = any(both.changes_before(parted) >= SHARED for both in noisy)
    differences, alike, missing = [], [], {}
    late: dict[str, Late] = {}
    for name, both in common.items():
        first = _first_unequal if shared or name in PLANNED else _first_apart
        found = first(name, both, steps[both.rows]) if len(both.unequal) else both.why_none
        if isinstance(found, Difference):
            differences.append(found)
        elif found:
            missing[name] = found
        else:
            alike.append(name)
            mean = differences_of(name, both.other, both.one).late if len(both.unequal) else None
            late |= {name: mean} if mean else {}
    parted = min((both.parted for both in common.values()), default=math.inf)
    measured = np.zeros(len(steps), dtype=bool)
    for both in noisy:
        measured[both.rows] = True
    identical = np.flatnonzero(measured & (np.arange(len(steps)) < parted))
    return Comparison(
        a=a.name,
        b=b.name,
        steps=len(steps),
        identical_until=int(steps[identical[-1]]) if len(identical) >= SHARED else None,
        differences=tuple(sorted(differences, key=lambda difference: difference.step)),
        alike=tuple(alike),
        late=late,
        not_compared=missing,
    )


@dataclass(frozen=True)
class _Common:
    """One signal at the common rows at which both runs have it; NaN is not measured, infinity not finite."""

    rows: NDArray[np.intp]
    one: Floats
    other: Floats
    decimals: tuple[int, int]
    """Those of the two logs."""

    @cached_property
    def unequal(self) -> NDArray[np.intp]:
        """Indices of the values that differ by more than the rounding of a log explains."""
        unequal = np.flatnonzero(self.one != self.other)
        if not len(unequal):
            return unequal
        with np.errstate(invalid="ignore"):
            explained = np.abs(self.one - self.other) <= rounding(self.one, self.other, self.decimals)
        return unequal[~explained[unequal]]

    @property
    def why_none(self) -> str | None:
        """Why no value differs; ``None``: they are alike."""
        return None if len(self.rows) else "no common step at which both have it"

    @property
    def parted(self) -> float:
        """Common row of the first value that differs; infinite: none does."""
        return float(self.rows[self.unequal[0]]) if len(self.unequal) else math.inf

    def changes_before(self, row: float) -> int:
        """Values before a row that are unlike the one before: a constant is alike in any two runs."""
        before = self.one[self.rows < row]
        return int(np.count_nonzero(before[1:] != before[:-1]))


def _first_unequal(name: str, both: _Common, steps: NDArray[np.int64]) -> Difference:
    """The first unequal values of runs without noise."""
    at = int(both.unequal[0])
    return Difference(
        signal=name, step=int(steps[at]), certain_at=int(steps[at]), a=float(both.one[at]), b=float(both.other[at]),
        noise=0.0 if at else math.nan,
    )  # fmt: skip


def _first_apart(name: str, both: _Common, steps: NDArray[np.int64]) -> Difference | str | None:
    """The first difference beyond noise, why none can be told, or ``None``: alike."""
    one, other = both.one, both.other
    differences = differences_of(name, one, other)
    difference = differences.values
    found = differences.first_change(THRESHOLDS[name])
    before = len(difference) if found is None else found.begin
    usual = max(noise_of(difference[:before]), differences.at_least(FLOOR))
    if before >= WARM_UP and _lie_apart(difference[:before], LEVEL * usual):
        return Difference(
            signal=name, step=int(steps[0]), certain_at=int(steps[before - 1]), a=float(np.median(one[:before])),
            b=float(np.median(other[:before])), noise=usual, throughout=True,
        )  # fmt: skip
    if found is None:
        least = certain_after(THRESHOLDS[name])
        told = f"the first {WARM_UP} tell what noise is, and a difference takes {least} more"
        return None if len(steps) >= WARM_UP + least else f"{len(steps)} common values; {told}"
    at, certain, noise, shift = found
    rows = slice(at, at + 1 if math.isnan(shift) else certain + 1)
    return Difference(
        signal=name, step=int(steps[at]), certain_at=int(steps[certain]), a=float(np.median(one[rows])),
        b=float(np.median(other[rows])), noise=noise, or_before=at == WARM_UP < certain, shift=-shift,
    )  # fmt: skip


def _lie_apart(difference: Floats, by: float) -> bool:
    """Whether each quarter of a difference has a median so far from 0, on the same side."""
    medians = np.array([np.median(quarter) for quarter in np.array_split(difference, 4)])
    return bool((medians > by).all() or (medians < -by).all())


def _told_apart(a: float, b: float) -> tuple[str, str]:
    """Two values with so many digits that they are seen to differ.

    >>> _told_apart(2.5, 2.75), _told_apart(2.5, 2.5 + 1e-9), _told_apart(2.5, float("inf"))
    (('2.5', '2.75'), ('2.5', '2.500000001'), ('2.5', 'not finite'))
    """
    enough = (digits for digits in range(DIGITS, ALL_DIGITS) if f"{a:.{digits}g}" != f"{b:.{digits}g}")
    digits = next(enough, ALL_DIGITS)
    one, other = (f"{value:.{digits}g}" if math.isfinite(value) else "not finite" for value in (a, b))
    return one, other
