"""Runs that stay on disk: a folder of data sets whose records are read when somebody asks for them.

Labels, configurations and events of all runs are in memory; records are those of the last few parts that were asked
for. Whoever goes through the runs in order reads each part once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmetric.dataset.read import read_runs
from rmetric.detectors.drift import with_drift
from rmetric.files import checksum
from rmetric.records import Observations, Run

PARTS_IN_MEMORY = 2


class StoredObservations(Observations):
    """Observations of a run of a part. Pickled, they are the name of their file.

    Parameters
    ----------
    file
        The part.
    row
        Number of the run in it.
    records
        Number of its records.
    """

    def __init__(self, file: Path, row: int, records: int) -> None:
        self._place, self._records = (file, row), records

    def __reduce__(self) -> tuple[type[StoredObservations], tuple[Path, int, int]]:
        return StoredObservations, (*self._place, self._records)

    def __len__(self) -> int:
        return self._records

    @property
    def step(self) -> NDArray[np.int64]:  # type: ignore[override]
        """See :class:`~rmetric.records.Observations`."""
        return self._read().step

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:  # type: ignore[override]
        """See :class:`~rmetric.records.Observations`."""
        return self._read().columns

    @property
    def evaluated(self) -> NDArray[np.bool_]:  # type: ignore[override]
        """See :class:`~rmetric.records.Observations`."""
        evaluated = self._read().evaluated
        assert evaluated is not None
        return evaluated

    def _read(self) -> Observations:
        file, row = self._place
        return _observations_of(file)[row]


@lru_cache(maxsize=PARTS_IN_MEMORY)
def _observations_of(file: Path) -> list[Observations]:
    return [with_drift(run.observations) for run in read_runs(file)]


def read_part(file: Path) -> tuple[list[Run], str]:
    """Runs of a part, whose observations stay on disk, and the checksum of the file."""
    runs = [
        replace(run, observations=StoredObservations(file, row, len(run.observations)))
        for row, run in enumerate(read_runs(file))
    ]
    return runs, checksum(file)
