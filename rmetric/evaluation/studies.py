"""Studies in memory: logs or data sets, read in parallel."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rmetric.dataset.sources import companion, data_set_of, find_logs, find_parts, planned_runs
from rmetric.detectors.drift import with_drift
from rmetric.engines import parallel_map
from rmetric.errors import UserError
from rmetric.evaluation.truth import Truth, truth_of
from rmetric.files import checksum
from rmetric.log_reader import read_log
from rmetric.progress import progress_bar
from rmetric.records import Observations, Run

if TYPE_CHECKING:
    from pyarrow import Table

T = TypeVar("T")
R = TypeVar("R")
BATCHES_A_JOB = 8
"""Batches are small enough to keep all processes busy to the end."""
MOST_A_BATCH = 120
"""And to be held in memory several at a time, with all scores of a run."""


@dataclass
class Study:
    """All logs of a folder, or all runs of a data set."""

    folder: Path
    """Folder of the logs, or file of the data set."""
    runs: Sequence[Run]
    """Of a data set, put together when they are asked for."""
    note: str = ""
    """Note for the reader that the committed sample stands in for the study. Empty otherwise."""
    checksums: list[str] = field(default_factory=list)
    """SHA-256 of each log; of a data set, of the file."""
    damage: dict[str, list[str]] = field(default_factory=dict)
    """Log name → what was wrong with which line; sound logs are absent."""
    planned: int = 0
    """Runs of the folder's manifest; 0 without one."""
    absent: int = 0
    """Those of them whose files are not there: the study was interrupted, or files were lost."""

    @cached_property
    def truths(self) -> list[Truth]:
        """The truth about each run."""
        return [truth_of(run) for run in self.runs]

    @cached_property
    def backends(self) -> set[str]:
        """What the logs were made by: ``backend`` of their configurations."""
        return {str(run.config.get("backend")) for run in self.runs}

    @cached_property
    def measured(self) -> Counter[frozenset[str]]:
        """Sets of measurements → number of runs that have these and no others."""
        return Counter(in_parallel(_measured, [run.observations for run in self.runs], None, "measurements", "run"))

    def warnings(self) -> list[str]:
        """One line each: runs that are not there, damaged lines, logs without a first or a last line, with counts."""
        lines = []
        if self.absent:
            lines.append(
                f"{self.folder} holds {self.planned - self.absent} of the {self.planned} runs of its manifest; "
                "make the others with the command that made these and --resume (run_modern_experiments.py --resume)"
            )
        if self.damage:
            problems = sum(map(len, self.damage.values()))
            name, found = next(iter(self.damage.items()))
            lines.append(
                f"{len(self.damage)} of {len(self.runs)} logs are damaged ({problems} problems); "
                f"first: {name}, {found[0]}"
            )
        headless = [run.name for run in self.runs if not run.config]
        if headless:
            lines.append(
                f"{len(headless)} of {len(self.runs)} logs have no first line; their fault, severity and horizon are "
                f"unknown: {_first_of(headless)}"
            )
        incomplete = [run.name for run, truth in zip(self.runs, self.truths, strict=True) if truth.kind == "incomplete"]
        if incomplete:
            lines.append(
                f"{len(incomplete)} of {len(self.runs)} logs are incomplete (no last line) and left out of all scores: "
                f"{_first_of(incomplete)}"
            )
        return lines

    def warn(self, about: str = "") -> None:
        """Print :meth:`warnings` to standard error, each after what it is about."""
        for warning in self.warnings():
            print(f"warning: {about}{warning}", file=sys.stderr)


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def load_study(folder: str | Path, jobs: int | None = None) -> Study:
    """Read all logs of a folder (or of its ``sample``), in parallel; or the runs of a data set.

    A damaged line is skipped and noted in :attr:`Study.damage`; an incomplete log is kept.

    Parameters
    ----------
    folder
        With the ``.jsonl`` logs; or with files in Parquet, or ``FILE.parquet`` of :mod:`rmetric.dataset`, or
        ``FILE.parquet:transfer`` for the transfer set beside it, ``FILE_transfer.parquet``: their records stay on disk.
    jobs
        Processes; as many as there are cores if left out.

    Raises
    ------
    UserError
        If there is no log, or none of this project, or the data set is damaged.
    """
    file = data_set_of(folder)
    parts = [file] if file is not None else find_parts(folder)
    if parts:
        return _load_parts(file or Path(folder), parts, jobs)
    paths, note = find_logs(folder)
    runs, checksums, damage = [], [], {}
    files = [path.absolute() for path in paths]  # workers of a cluster may stand in another folder
    for run, sha256, problems in in_parallel(_read, files, jobs, "reading logs", "log"):
        runs.append(run)
        checksums.append(sha256)
        if problems:
            damage[run.name] = problems
    if not any(map(_is_ours, runs)):
        raise UserError(
            f"{folder} holds no logs of this project; convert those of others first: "
            f"rmetric convert {folder} --out FOLDER, then give FOLDER"
        )
    # The sample is no part of the folder's study, and the note tells that it stands in.
    planned = {} if note else planned_runs(folder)
    return Study(Path(folder), runs, note, checksums, damage, *_counts(planned, paths))


def _is_ours(run: Run) -> bool:
    """Whether anything of a log is in this project's words; in others it is a run without measurements."""
    return bool(run.config or run.terminal or any(map(run.observations.has, run.observations.columns)))


def _load_parts(source: Path, parts: Sequence[Path], jobs: int | None) -> Study:
    from rmetric.dataset.parts import StoredRuns  # opening Parquet is of use here alone

    files = [part.resolve() for part in parts]
    labels, checksums = zip(*in_parallel(_read_part, files, jobs, "reading labels", "part"), strict=True)
    planned, absent = _counts(planned_runs(source), parts)
    return Study(source, StoredRuns(files, labels), checksums=list(checksums), planned=planned, absent=absent)


def _counts(planned: Mapping[str, int], files: Sequence[Path]) -> tuple[int, int]:
    """Number of runs in a manifest, and of those whose log is missing."""
    there = {file.stem for file in files}
    return sum(planned.values()), sum(runs for name, runs in planned.items() if name not in there)


def _read_part(file: Path) -> tuple[Table, str]:
    from rmetric.dataset.parts import read_part

    return read_part(file)


def _measured(observations: Observations) -> frozenset[str]:
    return frozenset(name for name in observations.columns if observations.has(name))


def in_parallel(
    work: Callable[[T], R], items: Sequence[T], jobs: int | None, description: str, unit: str
) -> Iterator[R]:
    """``work`` on every item, in order, with a progress bar; by the engine in use, a handful of items here."""
    jobs = jobs or os.cpu_count() or 1
    size = min(max(1, -(-len(items) // (jobs * BATCHES_A_JOB))), MOST_A_BATCH)
    batches = (items[start : start + size] for start in range(0, len(items), size))
    of_batch = partial(_batch, work)
    few = len(items) < 2 * jobs
    finished: Iterable[list[R]] = map(of_batch, batches) if few else parallel_map(of_batch, batches, jobs)
    with progress_bar(total=len(items), desc=description, unit=unit, delay=1.0) as bar:
        for results in finished:
            bar.update(len(results))
            yield from results


def _batch(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    return [work(item) for item in items]


def _read(path: Path) -> tuple[Run, str, list[str]]:
    problems: list[str] = []
    run = read_log(path, lambda line, message: problems.append(f"line {line}: {message}"))
    run.observations = with_drift(run.observations)
    return run, checksum(path), problems


SIMULATED, REAL = "simulated", "real"
BACKENDS = {"simulator": SIMULATED, "torch": REAL}
"""``backend`` of a log's config → what its study is called."""


def backend_of(study: Study) -> str:
    """``simulated`` or ``real``, if all its logs say so; empty if they do not, or differ."""
    found = {BACKENDS.get(backend, "") for backend in study.backends}
    return found.pop() if len(found) == 1 else ""


def load_studies(sources: Sequence[str | Path], jobs: int | None = None) -> dict[str, Study]:
    """Studies by name, in the order given: ``simulated`` or ``real``, or else the name of folder or file.

    Raises
    ------
    UserError
        If the same source is given twice, or one cannot be read.
    """
    studies = [load_study(source, jobs) for source in sources]
    backends = [backend_of(study) for study in studies]
    alone = {name for name, count in Counter(backends).items() if name and count == 1}
    names = [name if name in alone else Path(source).name for name, source in zip(backends, sources, strict=True)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"--logs has {twice[0]} twice; give each study once")
    return dict(zip(names, studies, strict=True))


def load_extra_sets(part: str, sources: Mapping[str, str | Path], jobs: int | None = None) -> dict[str, Study]:
    """Sets that belong to studies, by the study's name, of those that have one.

    Parameters
    ----------
    part
        One of :data:`EXTRA_SETS`. Of ``FILE.parquet`` it is ``FILE_part.parquet``; of a folder the one of that name
        with ``_PART``.
    sources
        Study → folder or file.
    """
    found = {name: _extra_set(part, source, jobs) for name, source in sources.items()}
    return {name: study for name, study in found.items() if study is not None}


def _extra_set(part: str, source: str | Path, jobs: int | None) -> Study | None:
    file = data_set_of(source)
    if file is not None:
        beside = companion(file, part)
        return load_study(beside, jobs) if beside.is_file() else None
    folder = Path(f"{source}_{part.upper()}")
    return load_study(folder, jobs) if any(folder.glob("*.jsonl")) else None
