"""The two ways to count: the authors' (``paper``) and one under which an alert must have been of use (``strict``).

Both turn a detector's scores into one row of numbers a run, :class:`Counts`; every score, table and interval is made of
these rows and nothing else.

**paper**, the authors' counting. A failed run with an alert anywhere in its log up to the failure is a true positive, a
run that did not fail and has an alert is a false positive, a failed run without one is a false negative. Lead = failure
step − step of the first alert, wherever that lies.

**strict**. Alert records merge into *episodes*; after 50 quiet steps a detector is armed again.

* An episode that begins in [onset, failure) warns its run: one true positive a run. Lead = failure − first warning.
* An episode that begins before the onset, or in a control run, is a false positive, each one. It warns nobody, even if
  it lasts past the onset.
* Episodes that begin during a fault from which the run recovers are *absorbed*: counted apart.
* An episode that begins at the failure or after it is ignored; a failed run without a warning is a false negative.
* Healthy steps that forked runs share (same backend, model and seed) are counted once: in the control run of that
  group, or, if it has none, in the run with the latest onset. A further control run that is disturbed has steps of its
  own from the disturbance on. The same holds for the false positives in them.

Under both, censored and incomplete runs are left out (and their number is reported), and a score of NaN never alerts.

**Source:** M. Fatima 2025 and the author's files for ``paper``; ``strict`` is this project's own.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rmetric.episodes import begins, quiet_records
from rmetric.evaluation.truth import Truth, truth_of
from rmetric.records import Run

Protocol = Literal["paper", "strict"]
PROTOCOLS: tuple[Protocol, ...] = ("paper", "strict")

BLOCK_RECORDS = 2**20
"""Records that are worked on at once: 8 MiB a column."""


class ScoreColumn(typing.Protocol):
    """Scores of all records: an array of shape (records,), or one that lies on disk and is read in pieces."""

    def __getitem__(self, rows: slice, /) -> NDArray[np.float64 | np.bool_]: ...


IGNORED, HEALTHY, WARNING, ABSORBED = range(4)
"""Zones of a record under the strict protocol."""


@dataclass(frozen=True)
class Counts:
    """Counts of what a detector did in each run under one protocol: arrays of shape (runs,)."""

    protocol: Protocol
    tp: NDArray[np.int64]
    """1 for a failed run that was warned."""
    fp: NDArray[np.int64]
    """False positives: 0 or 1 (paper), episodes (strict)."""
    fn: NDArray[np.int64]
    """1 for a failed run that was not warned."""
    absorbed: NDArray[np.int64]
    """Episodes during a fault from which the run recovered (strict; 0 under paper)."""
    healthy_steps: NDArray[np.int64]
    """Distinct healthy steps that this run carries (strict; 0 under paper)."""
    lead: NDArray[np.float64]
    """Steps from the first warning to the failure; NaN where ``tp`` is 0."""
    available: NDArray[np.float64]
    """Steps from the onset to the failure; NaN where either is missing."""
    counted: NDArray[np.bool_]
    """True if the run enters the scores at all."""

    def __len__(self) -> int:
        return len(self.tp)

    def of(self, runs_R: NDArray[np.bool_]) -> Counts:
        """The counts of some of the runs."""
        arrays = {item.name: getattr(self, item.name)[runs_R] for item in fields(self) if item.name != "protocol"}
        return Counts(self.protocol, **arrays)


@dataclass(frozen=True)
class Starts:
    """Every record that begins an alert episode at some threshold, and at which: the ones with low ≤ threshold < high.

    A record begins an episode exactly if its score lies above the threshold and no score of the re-arming window before
    it does. ``low`` is the largest score of that window, ``high`` the record's own; so one pass over the records
    answers for all thresholds at once. Arrays of shape (starts,), in the order of runs and steps.
    """

    run: NDArray[np.int32]
    step: NDArray[np.integer]
    zone: NDArray[np.int8]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def at(self, threshold: float | NDArray[np.float64]) -> NDArray[np.bool_]:
        """True for those that begin an episode at ``threshold``, one of all or of each."""
        return (self.low <= threshold) & (threshold < self.high)


@dataclass(frozen=True)
class Timeline:
    """All records of all runs, one after the other, and what the protocols need to know of them."""

    truths: tuple[Truth, ...]
    """The truth about each run."""
    step: NDArray[np.integer]
    """Shape (records,); four bytes each where that is enough."""
    bounds: NDArray[np.int64]
    """Records of run ``i`` are ``bounds[i]:bounds[i + 1]``; shape (runs + 1,)."""
    zone: NDArray[np.int8]
    """Zone of each record, shape (records,)."""
    healthy_steps: NDArray[np.int64]
    """Distinct healthy steps that a run carries, shape (runs,)."""

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Timeline:
        """The timeline of some logs."""
        truths = tuple(truth_of(run) for run in runs)
        bounds = np.cumsum([0, *(len(run.observations) for run in runs)], dtype=np.int64)
        steps, zones = np.empty(bounds[-1], np.int32), np.empty(bounds[-1], np.int8)
        healthy = np.empty(len(runs), np.int64)
        for index, (run, truth, own_from) in enumerate(zip(runs, truths, _own_steps(runs, truths), strict=True)):
            rows, step = slice(bounds[index], bounds[index + 1]), run.observations.step
            if len(step) and step[-1] >= 2**31:
                steps = steps.astype(np.int64, copy=False)
            steps[rows], zones[rows] = step, _zones(step, truth, own_from)
            healthy[index] = _healthy_steps(run, truth, own_from)
        return cls(truths=truths, step=steps, bounds=bounds, zone=zones, healthy_steps=healthy)

    def __len__(self) -> int:
        return len(self.truths)

    @property
    def run(self) -> NDArray[np.int32]:
        """Number of the run that a record belongs to, shape (records,)."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.bounds))

    def records(self, run: int) -> slice:
        """Records of a run, given by its number."""
        return slice(int(self.bounds[run]), int(self.bounds[run + 1]))

    def run_of(self, records: NDArray[np.int64]) -> NDArray[np.int32]:
        """The same of some records, given by their numbers in any order."""
        return (np.searchsorted(self.bounds, records, side="right") - 1).astype(np.int32)

    def blocks(self) -> Iterator[tuple[Timeline, int, slice]]:
        """Timelines of consecutive runs, about :data:`BLOCK_RECORDS` each; the number of its first run; its records.

        One that is no longer is its own block, and what it knows of itself is computed once.
        """
        if len(self.step) <= BLOCK_RECORDS:
            yield self, 0, slice(0, len(self.step))
            return
        first = 0
        while first < len(self):
            end = int(np.searchsorted(self.bounds, self.bounds[first] + BLOCK_RECORDS, side="right")) - 1
            end = min(max(end, first + 1), len(self))
            rows = slice(int(self.bounds[first]), int(self.bounds[end]))
            block = Timeline(
                truths=self.truths[first:end],
                step=self.step[rows],
                bounds=self.bounds[first : end + 1] - rows.start,
                zone=self.zone[rows],
                healthy_steps=self.healthy_steps[first:end],
            )
            yield block, first, rows
            first = end

    def only(self, runs_R: NDArray[np.bool_]) -> tuple[Timeline, NDArray[np.bool_]]:
        """The timeline of some of the runs, zones unchanged, and which records it consists of, shape (records,)."""
        lengths = np.diff(self.bounds)
        rows, lengths = np.repeat(runs_R, lengths), lengths[runs_R]
        part = Timeline(
            truths=tuple(truth for truth, chosen in zip(self.truths, runs_R.tolist(), strict=True) if chosen),
            step=self.step[rows],
            bounds=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            zone=self.zone[rows],
            healthy_steps=self.healthy_steps[runs_R],
        )
        return part, rows

    @cached_property
    def failure_step(self) -> NDArray[np.float64]:
        """NaN unless failed; shape (runs,)."""
        return np.array([_or_nan(truth.failure_step) for truth in self.truths], dtype=np.float64)

    @cached_property
    def onset(self) -> NDArray[np.float64]:
        """NaN without one; shape (runs,)."""
        return np.array([_or_nan(truth.onset) for truth in self.truths], dtype=np.float64)

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Shape (runs,)."""
        return np.array([truth.kind == "failed" for truth in self.truths], dtype=bool)

    @cached_property
    def warnable(self) -> NDArray[np.bool_]:
        """True for failed runs with a record in [onset, failure): nobody could warn the others. Shape (runs,)."""
        at = np.flatnonzero(self.zone == WARNING)
        return np.isin(np.arange(len(self)), self.run_of(at))

    def counted(self, protocol: Protocol) -> NDArray[np.bool_]:
        """True for the runs that enter the scores, shape (runs,).

        The strict protocol also leaves out a run that failed although no fault was injected: without an onset, nobody
        can say which of its alerts came in time. Raises ``ValueError`` for an unknown protocol.
        """
        if protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol {protocol!r}; known: {', '.join(PROTOCOLS)}")
        counted = np.array([truth.counted for truth in self.truths], dtype=bool)
        return counted & ~(self.failed & np.isnan(self.onset)) if protocol == "strict" else counted

    @cached_property
    def _quiet_records(self) -> NDArray[np.integer]:
        """:func:`rmetric.episodes.quiet_records` of each run, a byte each where that is enough; shape (records,)."""
        pairs = itertools.pairwise(self.bounds.tolist())
        counts = [np.empty(0, np.uint8), *(_small(quiet_records(self.step[low:high])) for low, high in pairs)]
        return np.concatenate(counts)

    def starts(self, scores: ScoreColumn) -> Starts:
        """Begins of episodes."""
        found = []
        for block, first, rows in self.blocks():
            values = np.asarray(scores[rows], np.float64)
            at, low = begins(values, self._quiet_records[rows])
            keep = block.zone[at] != IGNORED
            at, low = at[keep], low[keep]
            found.append((block.run_of(at) + first, block.step[at], block.zone[at], low, values[at]))
        fields = [*zip(*found, strict=True)]
        del found
        return Starts(*(np.concatenate(fields.pop(0)) for _ in range(len(fields))))  # one after the other is let go of

    def highest(self, scores: ScoreColumn) -> NDArray[np.float64]:
        """Highest score of each run up to its failure, ``-inf`` if it has none; shape (runs,)."""
        highest = np.full(len(self), -np.inf)
        for block, first, rows in self.blocks():
            values = scores[rows]
            high = np.where(np.isnan(values) | block._after_failure, -np.inf, values)
            filled = np.diff(block.bounds) > 0
            if filled.any():
                highest[first : first + len(block)][filled] = np.maximum.reduceat(high, block.bounds[:-1][filled])
        return highest

    @cached_property
    def _after_failure(self) -> NDArray[np.bool_]:
        return self.step > np.repeat(self.failure_step, np.diff(self.bounds))

    def count(self, protocol: Protocol, scores: ScoreColumn, threshold: float) -> Counts:
        """Counts of a detector with these scores at a threshold; raises ``ValueError`` for an unknown protocol."""
        if protocol == "strict":
            return self.count_strict(self.starts(scores), threshold)
        counted = self.counted(protocol)
        found = []
        for block, first, rows in self.blocks():
            alerts = np.flatnonzero((scores[rows] > threshold) & ~block._after_failure)
            run = block.run_of(alerts)
            at_first = _first_of_each(run)
            found.append((run[at_first] + first, block.step[alerts[at_first]]))
        first_step, alerted = self._first(*map(np.concatenate, zip(*found, strict=True)))
        warned = counted & self.failed & alerted
        none = np.zeros(len(self), np.int64)
        return Counts(
            "paper",
            tp=warned.astype(np.int64),
            fp=(counted & ~self.failed & alerted).astype(np.int64),
            fn=(counted & self.failed & ~alerted).astype(np.int64),
            absorbed=none,
            healthy_steps=none,
            lead=np.where(warned, self.failure_step - first_step, np.nan),
            available=np.where(counted, self.failure_step - self.onset, np.nan),
            counted=counted,
        )

    def count_strict(self, starts: Starts, threshold: float) -> Counts:
        """Counts under the strict protocol, with the starts at hand."""
        begun = starts.at(threshold)
        run, zone = starts.run[begun], starts.zone[begun]
        first, warned = self._first(run[zone == WARNING], starts.step[begun][zone == WARNING])
        counted = self.counted("strict")
        return Counts(
            "strict",
            tp=warned.astype(np.int64),
            fp=np.bincount(run[zone == HEALTHY], minlength=len(self)),
            fn=(counted & self.failed & ~warned).astype(np.int64),
            absorbed=np.bincount(run[zone == ABSORBED], minlength=len(self)),
            healthy_steps=self.healthy_steps,
            lead=np.where(warned, self.failure_step - first, np.nan),
            available=np.where(counted, self.failure_step - self.onset, np.nan),
            counted=counted,
        )

    def _first(
        self, run: NDArray[np.integer], step: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        at = _first_of_each(run)
        first, has = np.zeros(len(self), np.int64), np.zeros(len(self), bool)
        first[run[at]], has[run[at]] = step[at], True
        return first, has


def _first_of_each(run: NDArray[np.integer]) -> NDArray[np.bool_]:
    """True where another run begins than that of the entry before; runs come in order."""
    return np.concatenate([np.ones(min(1, len(run)), bool), run[1:] != run[:-1]])


def group_key(run: Run) -> tuple[str, str, str] | None:
    """Backend, model and seed: what forked runs have in common. ``None`` if the log does not tell its seed."""
    seed = run.config.get("seed")
    return None if seed is None else (str(run.config.get("backend")), run.model_type, str(seed))


def _own_steps(runs: Sequence[Run], truths: Sequence[Truth]) -> list[float]:
    """First step from which each run's healthy steps are counted in it; infinity: all are counted in another one."""
    best: dict[object, tuple[tuple[bool, bool, int], int]] = {}
    for index, (run, truth) in enumerate(zip(runs, truths, strict=True)):
        if not truth.counted or (truth.kind == "failed" and truth.onset is None):
            continue
        control, undisturbed = truth.onset is None, run.disturbed_at is None
        rank = (control, control and undisturbed, run.last_step if truth.onset is None else truth.onset)
        key = group_key(run) or index
        if key not in best or rank > best[key][0]:
            best[key] = (rank, index)
    carriers = {index for _, index in best.values()}
    return [0 if index in carriers else _disturbed_from(runs[index], truths[index]) for index in range(len(runs))]


def _disturbed_from(run: Run, truth: Truth) -> float:
    return run.disturbed_at if truth.kind == "clean" and run.disturbed_at is not None else np.inf


def _zones(step: NDArray[np.int64], truth: Truth, own_from: float) -> NDArray[np.int8]:
    zone = np.full(len(step), IGNORED, dtype=np.int8)
    if not truth.counted:
        return zone
    onset = np.inf if truth.onset is None else truth.onset
    if truth.kind == "failed":
        assert truth.failure_step is not None
        if truth.onset is None:
            return zone
        zone[(step >= onset) & (step < truth.failure_step)] = WARNING
    else:
        zone[step >= onset] = ABSORBED
    zone[(step >= own_from) & (step < onset)] = HEALTHY
    return zone


def _healthy_steps(run: Run, truth: Truth, own_from: float) -> int:
    """Steps of its own that the records before the onset tell of; a record tells of those since the one before it."""
    step = run.observations.step[run.observations.step >= own_from]
    if not len(step):
        return 0
    cadence = run.config.get("log_every_n_steps")
    if not isinstance(cadence, int) or cadence < 1:
        cadence = int(np.median(np.diff(step))) if len(step) > 1 else 1
    before = max(int(step[0]) - cadence, -1)
    last = int(step[-1]) if truth.onset is None else min(truth.onset - 1, int(step[-1]))
    return max(last - before, 0)


def _small(counts: NDArray[np.int64]) -> NDArray[np.integer]:
    return counts.astype(np.uint8) if counts.max(initial=0) < 2**8 else counts


def _or_nan(step: int | None) -> float:
    return np.nan if step is None else float(step)
