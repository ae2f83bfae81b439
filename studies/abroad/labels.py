"""Labels of strangers' runs: what is healthy, what a lasting instability, what a failure. Judged with hindsight.

The clock is the record: a record of AlgoPerf stands for up to 500 steps, one of nanoGPT for one. All is judged from the
training loss of the whole log, by these rules alone, before any detector is asked.

1. The *level* that a run has reached is the lowest running median (25 records) so far; its *noise* is the spread
   (90 % less 10 % quantile, as a standard deviation) of the last 50 records about their own course, so that a loss of
   two levels, such as that of mixup, has a noise as large as their distance. Records of excursions, found with the
   noise of all records, are then left out of it. *Learned* is how far the level lies below the first records.
2. A record is *out* if the median of it and its neighbours lies above the level by more than :data:`SCALES` times the
   noise and by more than :data:`SHARE` of what was learned, or if it is not finite.
3. An *excursion* is at least :data:`LASTING` records out with fewer than :data:`CALM` calm ones between them. It begins
   at its first record out; its *rise* begins after the last record within :data:`RISE_SCALES` times the noise of the
   level.
4. It is a **failure** if it lasts to the end of the log, unless too little is seen of it to say so: it must last
   :data:`CALM` records, or lose all that was learned, or end in a loss that is not finite. A run that had not learned
   anything has nothing to lose: its excursion is a failure only if it ends far above the first records.
5. Every other excursion is an **instability**. Alarms from :data:`TOLERANCE` records before its rise to
   :data:`AFTERMATH` records after its end are absorbed, and wanted.
6. Everything else is **healthy**. A single record out is: what passes by itself within two records needs nobody.

What the rules get wrong is named, with the reason, in ``exceptions.csv``; so far nothing is.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmetric.evaluation.protocols import ABSORBED, HEALTHY, IGNORED, WARNING
from rmetric.records import Run

SCALES, SHARE = 6.0, 0.1
RISE_SCALES = 2.0
LASTING, CALM = 3, 10
LEVEL_RECORDS, NOISE_RECORDS, WARM_UP = 25, 50, 10
COURSE_RECORDS = 11
LEAST_NOISE = 1e-3
"""Of the size of the loss: what is printed with four digits has no smaller one."""
TOLERANCE, AFTERMATH = 3, 50
AHEAD = 100
"""Records before a failure in which an alarm is a warning."""
EXCEPTIONS = Path(__file__).with_name("exceptions.csv")
NORMAL_80 = 2.5631
"""Width of the middle 80 % of a normal distribution, in standard deviations."""

Verdict = Literal["instability", "failure"]


@dataclass(frozen=True)
class Excursion:
    """A time in which a run was worse than it had been, in numbers of records."""

    rise: int
    """First record above the noise."""
    begin: int
    """First record out."""
    end: int
    """Last record out."""
    verdict: Verdict


@dataclass(frozen=True)
class Label:
    """What the rules, and the exceptions to them, say of one run."""

    excursions: tuple[Excursion, ...]

    @property
    def failure(self) -> int | None:
        """Record of the failure, from which on the run is lost; ``None`` if it does not fail."""
        last = self.excursions[-1] if self.excursions else None
        return last.begin if last is not None and last.verdict == "failure" else None

    def zones(self, records: int) -> NDArray[np.int8]:
        """Zone of each record as :mod:`rmetric.evaluation.protocols` numbers them, shape (records,).

        ``HEALTHY``; ``ABSORBED`` in an instability and its surroundings; ``WARNING`` in the records before a failure;
        ``IGNORED`` from the failure on.
        """
        zone = np.full(records, HEALTHY, dtype=np.int8)
        for item in self.excursions:
            zone[max(item.rise - TOLERANCE, 0) : item.end + AFTERMATH + 1] = ABSORBED
        if self.failure is not None:
            zone[max(self.failure - AHEAD, 0) : self.failure] = WARNING
            zone[self.failure :] = IGNORED
        return zone


def label_of(run: Run) -> Label:
    """The label of a run: an exception if it is named, else what the rules say."""
    found = excursions(run.observations["training_loss"])
    named = _exceptions().get(run.name)
    return Label(found if named is None else tuple(_corrected(found, named, len(run.observations))))


def excursions(loss: NDArray[np.float64]) -> tuple[Excursion, ...]:
    """Lasting excursions of a training loss, shape (records,), by the rules above."""
    if len(loss) < WARM_UP:
        return ()
    noisy = np.zeros(len(loss), dtype=bool)
    found = _excursions(loss, noisy)
    for item in found:
        noisy[item.begin : item.end + 1] = True
    return _excursions(loss, noisy) if found else found


def _excursions(loss: NDArray[np.float64], noisy: NDArray[np.bool_]) -> tuple[Excursion, ...]:
    """Excursions against a noise that the records ``noisy`` do not enter."""
    broken = np.isinf(loss)
    course = _Course.of(np.where(broken, np.nan, loss), noisy)
    out = (course.excess > np.maximum(SCALES * course.noise, SHARE * course.learned)) | broken
    calm = ~(course.excess > RISE_SCALES * course.noise) & ~broken
    return tuple(
        Excursion(_rise(calm, begin), begin, end, _verdict(course, broken, begin, end))
        for begin, end in _groups(out)
        if out[begin : end + 1].sum() >= LASTING or broken[end]
    )


@dataclass(frozen=True)
class _Course:
    """How a loss stands to what its run had reached before; arrays of shape (records,)."""

    excess: NDArray[np.float64]
    noise: NDArray[np.float64]
    learned: NDArray[np.float64]

    @classmethod
    def of(cls, loss: NDArray[np.float64], noisy: NDArray[np.bool_]) -> _Course:
        series = pd.Series(loss)
        smooth = series.rolling(3, center=True, min_periods=1).median()
        level = series.rolling(LEVEL_RECORDS, min_periods=WARM_UP).median().cummin().shift(1)
        about = series - series.rolling(COURSE_RECORDS, center=True, min_periods=1).median()
        recent = about.mask(noisy).rolling(NOISE_RECORDS, min_periods=WARM_UP)
        noise = ((recent.quantile(0.9) - recent.quantile(0.1)) / NORMAL_80).shift(COURSE_RECORDS // 2 + 1)
        noise = noise.ffill().bfill().clip(lower=LEAST_NOISE * level.abs())
        first = float(series.head(3).median())
        return cls(*(part.to_numpy() for part in (smooth - level, noise, (first - level).clip(lower=0.0))))


def _groups(out: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last record of each group of records out, with fewer than :data:`CALM` others between two of them."""
    at = np.flatnonzero(out)
    cuts = np.flatnonzero(np.diff(at) > CALM) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(at, cuts) if len(part)]


def _rise(calm: NDArray[np.bool_], begin: int) -> int:
    before = np.flatnonzero(calm[:begin])
    return int(before[-1]) + 1 if len(before) else begin


def _verdict(course: _Course, broken: NDArray[np.bool_], begin: int, end: int) -> Verdict:
    if broken[end] and end == len(broken) - 1:
        return "failure"
    learned, noise = course.learned[begin], course.noise[begin]
    above_start = course.excess[end] - learned
    to_the_end = len(broken) - 1 - end < LASTING and (end - begin >= CALM or above_start > 0.0)
    return "failure" if to_the_end and (learned > SCALES * noise or above_start > SCALES * noise) else "instability"


# --- exceptions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Exception:
    record: int
    """From which on the verdict holds."""
    verdict: str
    """``healthy``: excursions that begin there or later are none; else what they are."""


@cache
def _exceptions() -> dict[str, _Exception]:
    with open(EXCEPTIONS, encoding="utf-8", newline="") as file:
        return {row["run"]: _Exception(int(row["from_record"]), row["verdict"]) for row in csv.DictReader(file)}


def _corrected(found: Sequence[Excursion], named: _Exception, records: int) -> list[Excursion]:
    earlier = [item for item in found if item.begin < named.record]
    later = [item for item in found if item.begin >= named.record]
    if named.verdict == "healthy":
        return earlier
    if named.verdict == "failure":
        return [*earlier, Excursion(named.record, named.record, records - 1, "failure")]
    return [*earlier, *(replace(item, verdict="instability") for item in later)]
