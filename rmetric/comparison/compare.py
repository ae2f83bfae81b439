"""Two runs, signal by signal: identical up to a step, or alike up to noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.comparison.change_point import WARM_UP, ChangePoint, certain_after, change_point, highest_sum
from rmetric.comparison.resolution import decimals_of, resolution, rounding
from rmetric.comparison.scale_jump import highest_jump, scale_jump
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
THRESHOLDS = {
    "training_loss": 90.0, "validation_loss": 15.0, "grad_norm": 80.0, "update_rms": 220.0, "sigma_sq": 70.0,
}  # fmt: skip
"""Signal → sum of the change-point above which a difference is more than noise. The highest of 360 pairs of healthy
runs of other seeds are 62.9, 6.9, 57.8, 201.9 and 29.6 (``python -m studies.compare --half all --fit``)."""
POSITIVE = frozenset({"grad_norm", "update_rms", "sigma_sq"})
"""Signals whose logarithms are compared."""
PLANNED = frozenset({"learning_rate"})
"""Signals without noise."""
DIGITS, ALL_DIGITS = 6, 17
"""Significant digits of a value: as many as are read at ease, and as many as tell any two numbers apart."""
LEVEL = 10.0
"""Units of noise by which each quarter of the difference of runs that differ throughout lies off 0. The whole of 444
pairs of healthy runs of other seeds comes to 3.2 at most; kinds whose seeds learn at another time come to more."""
FLOOR, SINGLE = 1e-6, 1e-7
"""Smallest noise whose mean is judged, and smallest difference whose growth is: shares of the usual size of a signal.
Single precision rounds to the second."""
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
    """Value of the first run at ``step``."""
    b: float
    """Value of the second one."""
    noise: float
    """Robust standard deviation of the latest differences before (of logarithms: gradients, updates); 0: identical
    before; NaN: not known and not needed, since nothing is before or one of the two is not finite."""
    or_before: bool = False
    """True if it may have begun earlier: at the first step that is judged it was there."""
    throughout: bool = False
    """True if it is one of the level, from the first common step on: values are medians up to ``certain_at``."""

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
        values = f"{SIGNALS[self.signal]} {a} and {b} at step {self.step:,}{earlier}"
        if self.noise == 0.0:
            return f"{values}; identical before"
        if math.isnan(self.noise):
            return values
        later = f", certain at step {self.certain_at:,}"
        return f"{values}{later}; the latest differences {unit}before had a deviation of {self.noise:.2g} (1.4826 MAD)"


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
            return "no difference beyond noise" + (" in what could be compared" if self.not_compared else "")
        if not self.steps:
            return "nothing could be compared: no common step"
        return "nothing could be compared" + ("" if self.not_compared else f": no common {', '.join(SIGNALS.values())}")

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON; a number that is not finite is left out."""
        found = [{**vars(one), "sentence": one.sentence} for one in self.differences]
        finite = [{name: value for name, value in one.items() if is_finite(value)} for one in found]
        return {**vars(self), "differences": finite, "alike": list(self.alike), "not_compared": dict(self.not_compared)}

    def __str__(self) -> str:
        lines = [f"{plain_text(self.a)} and {plain_text(self.b)}: {self.steps:,} common steps"]
        if self.identical_until is not None and self.compared:
            lines.append(f"identical up to step {self.identical_until:,}")
        lines.append(f"first difference: {self.first.sentence}" if self.first else self._without_difference)
        lines += [f"  {one.sentence}" for one in self.differences[1:]]
        if self.alike:
            lines.append(f"alike: {', '.join(SIGNALS[name] for name in self.alike)}")
        lines += [f"not compared: {SIGNALS[name]} ({why})" for name, why in self.not_compared.items()]
        return "\n".join(lines)


def compare(a: Run, b: Run) -> Comparison:
    """Compare two runs at their common steps.

    Values are equal if they are within the rounding of the log with fewer digits
    (:func:`~rmetric.comparison.resolution.rounding`). Runs in which all noisy signals are identical at first, and move
    there, share seed and machine: the first difference is exact. Else the differences up to a step say what noise is,
    and a change-point of their mean (:func:`~rmetric.comparison.change_point`) or a jump of their magnitude
    (:func:`~rmetric.comparison.scale_jump.scale_jump`) what is more; runs whose differences lie off 0 from the start
    differ throughout.
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
    for name, both in common.items():
        first = _first_unequal if shared or name in PLANNED else _first_apart
        found = first(name, both, steps[both.rows]) if len(both.unequal) else both.why_none
        if isinstance(found, Difference):
            differences.append(found)
        elif found:
            missing[name] = found
        else:
            alike.append(name)
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
        not_compared=missing,
    )


class Differences(NamedTuple):
    """Differences of two columns in the unit in which they are compared."""

    values: Floats
    """Shape (n,); infinite where one alone is not finite."""
    size: float
    """Usual size of the columns."""
    resolution: float
    """What the coarser log tells apart."""

    def at_least(self, share: float) -> float:
        """What counts as no difference: a share of the usual size, and what the log does not tell apart."""
        return max(self.resolution, share * self.size)

    def first_change(self, threshold: float) -> ChangePoint | None:
        """The first change of the mean, by its threshold, or of the magnitude."""
        mean = change_point(self.values, self.at_least(FLOOR), threshold)
        changes = mean, scale_jump(self.values, self.at_least(SINGLE))
        return min((change for change in changes if change), key=lambda change: change.begin, default=None)

    @property
    def highest(self) -> tuple[float, float]:
        """The highest sum of the change-point, and the highest jump."""
        return highest_sum(self.values, self.at_least(FLOOR)), highest_jump(self.values, self.at_least(SINGLE))


def differences_of(name: str, one: Floats, other: Floats) -> Differences:
    """Differences of two columns of a signal, or of their logarithms."""
    step, size = np.fmax(resolution(one), resolution(other)), np.abs(one)
    if name in POSITIVE:
        with np.errstate(divide="ignore", invalid="ignore"):
            step, size = step / size, np.ones(1)
            one, other = np.log(one), np.log(other)
    with np.errstate(invalid="ignore"):
        difference = one - other
    difference = np.where(np.isinf(one) != np.isinf(other), np.inf, difference)
    return Differences(difference, _usual(size), _usual(step))


def _usual(values: Floats) -> float:
    """Median of the finite values; 0 if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else 0.0


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
    at, certain, noise = found
    return Difference(
        signal=name, step=int(steps[at]), certain_at=int(steps[certain]), a=float(one[at]), b=float(other[at]),
        noise=noise, or_before=at == WARM_UP < certain,
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
