"""Batches of runs that are simulated together."""

from __future__ import annotations

from collections.abc import Sequence

from rmetric.simulation import RunSpec

BATCH_RUNS = 60
"""Enough to be fast, few enough to keep memory constant."""


def batches_of(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Consecutive runs of one architecture, at most :data:`BATCH_RUNS` each."""
    batches: list[list[RunSpec]] = []
    for spec in specs:
        if not batches or len(batches[-1]) == BATCH_RUNS or batches[-1][0].architecture != spec.architecture:
            batches.append([])
        batches[-1].append(spec)
    return batches
