"""Simulated runs as partitioned Parquet: a data set (:mod:`rmetric.dataset.layout`) for every 60 runs.

What a log also says and no detector reads is left out: the R-Metric, alerts and fault state of each record. All of it
can be computed again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmetric.dataset.sources import part_name
from rmetric.engines import parallel_map
from rmetric.files import write_atomically
from rmetric.log_reader import assemble
from rmetric.registry import load_plugins
from rmetric.simulation import RunLog, RunSpec, run_batch
from studies.log_files import FinishedPart, LogForm
from studies.paper.plan import StudyPlan, batches_of

if TYPE_CHECKING:
    from rmetric.dataset.stored import StoredRun

ZSTD_LEVEL = 9
"""Encoding takes 6 % of a part's time, at the level of what is published 25 %."""


@dataclass(frozen=True)
class Part:
    """Consecutive runs that share a file."""

    specs: tuple[RunSpec, ...]

    @property
    def experiment_id(self) -> str:
        """Name of the file without its ending: its first and last run."""
        return part_name(self.specs[0].number, self.specs[-1].number)


def _parts_of(runs: Sequence[RunSpec]) -> list[Part]:
    return [Part(tuple(batch)) for batch in batches_of(runs)]


def _examined(part: Part, content: bytes) -> FinishedPart | None:
    """A whole part has the very runs of its plan, undamaged."""
    import pyarrow as pa  # 0.1 s to import, in each worker, and logs of JSON lines do not need it
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return None
    runs = table.group_by(["run", "seed", "outcome"], use_threads=False).aggregate([]).to_pylist()
    if [(row["run"], row["seed"]) for row in runs] != [(run.experiment_id, run.seed) for run in part.specs]:
        return None
    return _finished(part.experiment_id, content, table.num_rows, [row["outcome"] for row in runs])


PARTS = LogForm(".parquet", FinishedPart, _examined, _parts_of)
"""A Parquet file for every batch of runs."""


def simulate_parts(
    plan: StudyPlan, todo: Sequence[Part], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[FinishedPart]]:
    """Simulate the parts that are still to do; yields each when it is done."""
    work = partial(_write_part, folder.resolve(), tuple(path.resolve() for path in plugins))
    for part in parallel_map(work, todo, min(jobs, len(todo))):
        yield [part]


def _write_part(folder: Path, plugins: Sequence[Path], part: Part) -> FinishedPart:
    from rmetric.dataset.write import encoded  # pyarrow, see above

    load_plugins(plugins)
    logs = run_batch(part.specs)
    content = encoded([_stored(log) for log in logs], part.experiment_id, ZSTD_LEVEL)
    write_atomically(folder / f"{part.experiment_id}{PARTS.suffix}", content)
    records = sum(log.records for log in logs)
    return _finished(part.experiment_id, content, records, [log.outcome.kind for log in logs])


def _finished(name: str, content: bytes, records: int, outcomes: Sequence[str]) -> FinishedPart:
    counts = dict(sorted(Counter(outcomes).items()))
    return FinishedPart(name, hashlib.sha256(content).hexdigest(), len(content), records, counts)


def _stored(log: RunLog) -> StoredRun:
    from rmetric.conversion import labels_of  # pyarrow, see above
    from rmetric.dataset.stored import StoredRun

    chunk = log.chunk()
    return StoredRun(labels_of(assemble(log.name, [chunk])), chunk)
