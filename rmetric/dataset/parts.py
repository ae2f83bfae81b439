"""Runs that stay on disk: a study whose records, configurations and events are read when somebody asks for them.

In memory are the JSON texts of configurations and events, as columns, what the first thousand of them say, and the
records of the last few files that were asked for. Whoever goes through the runs in order reads each file once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmetric.dataset.read import read_labels, read_runs, read_steps, said
from rmetric.detectors.drift import with_drift
from rmetric.files import checksum
from rmetric.log_reader import tell
from rmetric.records import Observations, Run

FILES_IN_MEMORY = 4
"""Of 60 simulated runs of 500 records: 5 MB each."""
RUNS_IN_MEMORY = 1_000
"""Runs whose configurations and events are kept: 70 MB. Tables go through all runs a hundred times."""


class StoredObservations(Observations):
    """Observations of a run of a file. Pickled, they are the name of their file."""

    def __init__(self, file: Path, row: int, records: int) -> None:
        self._place, self._records = (file, row), records

    def __reduce__(self) -> tuple[type[StoredObservations], tuple[Path, int, int]]:
        return StoredObservations, (*self._place, self._records)

    def __len__(self) -> int:
        return self._records

    @property
    def step(self) -> NDArray[np.int64]:  # type: ignore[override]
        """See :class:`~rmetric.records.Observations`."""
        file, row = self._place
        return _steps_of(file)[row]

    @property
    def columns(self) -> dict[str, NDArray[np.float64]]:  # type: ignore[override]
        """See :class:`~rmetric.records.Observations`."""
        return self._read().columns

    @property
    def evaluated(self) -> NDArray[np.bool_]:  # type: ignore[override]
        """See :class:`~rmetric.records.Observations`."""
        return self._read().evaluated

    def _read(self) -> Observations:
        file, row = self._place
        return _observations_of(file)[row]


@lru_cache(maxsize=FILES_IN_MEMORY)
def _observations_of(file: Path) -> list[Observations]:
    return [with_drift(run.observations) for run in read_runs(file)]


@lru_cache(maxsize=FILES_IN_MEMORY)
def _steps_of(file: Path) -> list[NDArray[np.int64]]:
    return read_steps(file)


class StoredRuns(Sequence[Run]):
    """The runs of some files; each is put together when it is asked for.

    ``labels``: those of each file, from :func:`rmetric.dataset.read.read_labels`.
    """

    def __init__(self, files: Sequence[Path], labels: Iterable[pa.Table]) -> None:
        self._files, self._labels = files, list(labels)
        self._ends = np.cumsum([len(table) for table in self._labels])
        self._latest: tuple[int, list[tuple[str, str, str, int]]] = (-1, [])
        self._kept: dict[int, Run] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self._run(each) for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"run {index} of {len(self)}")
        return self._run(index % len(self))

    def __iter__(self) -> Iterator[Run]:
        return map(self._run, range(len(self)))

    def _run(self, index: int) -> Run:
        run = self._kept.get(index) or self._made(index)
        if len(self._kept) < RUNS_IN_MEMORY:
            self._kept[index] = run
        return run

    def _made(self, index: int) -> Run:
        file = int(np.searchsorted(self._ends, index, side="right"))
        rows = self._rows_of(file)
        row = index - int(self._ends[file]) + len(rows)
        name, config, events, records = rows[row]
        run = Run(name, {}, StoredObservations(self._files[file], row, records))
        tell(run, said(config, events))
        return run

    def _rows_of(self, file: int) -> list[tuple[str, str, str, int]]:
        """Labels of the runs of a file; those of the last one are kept."""
        if self._latest[0] != file:
            columns = (self._labels[file][name].to_pylist() for name in ("run", "config", "events", "records"))
            self._latest = file, list(zip(*columns, strict=True))
        return self._latest[1]


def read_part(file: Path) -> tuple[pa.Table, str]:
    """Labels of the runs of a file, and its checksum."""
    return read_labels(file), checksum(file)
