"""Pairs of runs whose onset is known, compared; in a module of its own, which other processes can import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from rmetric.comparison import SIGNALS, compare
from rmetric.comparison.differences import differences_of
from rmetric.faults import HARDWARE_FAULTS
from rmetric.records import Observations, Run
from rmetric.states.series import noise


@dataclass(frozen=True)
class Pair:
    """Two runs, and the step at which the second one was disturbed."""

    kind: str
    a: Run
    b: Run
    onset: int | None


def pairs_of(runs: Sequence[Run], failed: set[str]) -> Iterator[Pair]:
    """All pairs of a set: twins, other seeds with a fault that made the run fail or not, healthy other seeds."""
    by_name = {run.name: run for run in runs}
    controls: dict[str, list[Run]] = {}
    for run in runs:
        if run.is_control and run.disturbed_at is None:
            controls.setdefault(run.model_type, []).append(run)
    for run in runs:
        twin = by_name.get(str(run.config.get("twin")))
        if run.is_control or run.onset is None or twin is None:
            continue
        disturbed = "machine" if run.fault in HARDWARE_FAULTS else "model"
        ended = f"{disturbed}, {'failed' if run.name in failed else 'recovered'}"
        yield Pair(f"same seed, {ended}", twin, run, run.onset)
        others = [other for other in controls.get(run.model_type, []) if other.config["seed"] != run.config["seed"]]
        if others:
            later = [other for other in others if other.config["seed"] > run.config["seed"]]
            yield Pair(f"other seed, {ended}", (later or others)[0], run, run.onset)
    for of_model in controls.values():
        for a, b in combinations(of_model, 2):
            if a.config["seed"] != b.config["seed"]:
                yield Pair("other seed, healthy", a, b, None)


def shifted(pair: Pair, deviations: float) -> Pair:
    """A healthy pair whose second run has, from its middle on, a training loss higher by deviations of the noise."""
    one, other = pair.a.observations, pair.b.observations
    steps, rows_a, rows_b = np.intersect1d(one.step, other.step, return_indices=True)
    onset = int(steps[len(steps) // 2])
    loss = other.stated("training_loss")
    before = (one.stated("training_loss")[rows_a] - loss[rows_b])[steps < onset]
    higher = deviations * noise(before[np.isfinite(before)])
    columns = {name: other[name] for name in SIGNALS} | {
        "training_loss": loss + np.where(other.step >= onset, higher, 0.0)
    }
    b = replace(pair.b, observations=Observations(other.step, columns))
    return Pair(f"{pair.kind}, loss {deviations:g} deviations higher", pair.a, b, onset)


def first_step(pair: Pair) -> tuple[int | None, int | None]:
    """Onset, and the first step at which the runs differ."""
    first = compare(pair.a, pair.b).first
    return pair.onset, None if first is None else first.step


def highest_of(name: str, pair: Pair) -> tuple[float, float, float]:
    """Highest CUSUM of one signal of a pair, highest jump of its magnitude, and surprise at a shift of its level."""
    one, other = pair.a.observations, pair.b.observations
    _, rows_a, rows_b = np.intersect1d(one.step, other.step, return_indices=True)
    a, b = one.stated(name)[rows_a], other.stated(name)[rows_b]
    known = ~np.isnan(a) & ~np.isnan(b)
    return differences_of(name, a[known], b[known]).highest
