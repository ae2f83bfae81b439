"""Halves and folds of a study by seed, and a checksum of the runs that something was fitted to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.protocols import group_key
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Run


@dataclass(frozen=True)
class Halves:
    """Runs of the fit half and of the score half: arrays of shape (runs,), no run in both."""

    fit: NDArray[np.bool_]
    score: NDArray[np.bool_]


def halves(runs: Sequence[Run]) -> Halves:
    """Odd ones fit, even ones score: by ``repetition`` where the log has it, otherwise by ``seed``.

    Runs that share a seed (forks of one run) share noise and must not be torn apart: if their repetitions differ in
    parity, the seed decides. A run with neither belongs to no half.
    """
    parity_R = [_parity(run.config.get("repetition")) for run in runs]
    of_group: dict[object, set[int | None]] = {}
    for run, parity in zip(runs, parity_R, strict=True):
        of_group.setdefault(group_key(run), set()).add(parity)
    odd = []
    for run, parity in zip(runs, parity_R, strict=True):
        key = group_key(run)
        agreed = parity is not None and (key is None or len(of_group[key]) == 1)
        odd.append(parity if agreed else _parity(run.config.get("seed")))
    return Halves(np.array([half == 1 for half in odd], bool), np.array([half == 0 for half in odd], bool))


def half_of(runs: Sequence[Run], name: Literal["fit", "score"]) -> list[Run]:
    """The runs of one of the :func:`halves`, in their order."""
    return [*compress(runs, getattr(halves(runs), name))]


def groups(runs: Sequence[Run]) -> NDArray[np.int64]:
    """A number a group of runs that share backend, model and seed, shape (runs,); a run without a seed stands alone."""
    numbers: dict[object, int] = {}
    keys = [group_key(run) or index for index, run in enumerate(runs)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def folds(runs: Sequence[Run], count: int) -> NDArray[np.int64]:
    """Number of the fold of each run, shape (runs,): groups of runs that share a seed take turns."""
    return groups(runs) % count


def _parity(number: object) -> int | None:
    return number % 2 if isinstance(number, int) and not isinstance(number, bool) else None


def digest(runs: Sequence[Run]) -> str:
    """SHA-256 of what the runs say: 64 hexadecimal digits; the order of the runs does not matter."""
    whole = hashlib.sha256()
    for run in sorted(runs, key=lambda item: item.name):
        facts: Mapping[str, Any] = {"name": run.name, "config": run.config, "terminal": run.terminal}
        whole.update(json.dumps(facts, sort_keys=True, default=str).encode())
        whole.update(run.observations.step.tobytes())
        for name in filter(run.observations.has, MEASUREMENTS):  # one that is new to the catalogue changes nothing
            whole.update(name.encode() + run.observations[name].tobytes())
    return whole.hexdigest()
