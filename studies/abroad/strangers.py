"""Read strangers' runs: real training that nobody of this project made, as its authors logged it.

A folder holds ``runs.csv`` (one line a run: source, run, records, task, optimizer, origin, licence) and one Parquet
file a source (one row a record). Within a file the runs stand one after the other, in the order of ``runs.csv``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.records import Observations, Run

BACKEND = "stranger"
"""``backend`` in the config of such a run."""
FOLDER_VARIABLE = "RMETRIC_STRANGERS"
"""Environment variable that names the folder."""
PUBLISHED = ("algoperf", "nanogpt")
"""Sources whose licence (Apache-2.0, MIT) lets this project hand them on."""
SOURCES = (*PUBLISHED, "megatron", "trainer_state")
RUN, STEP = "run", "step"
LISTED = ("source", RUN, "records", "task", "optimizer", "origin", "licence")
"""Columns of ``runs.csv``; ``records`` is the number of them."""


def strangers_folder(given: str | Path | None = None) -> Path | None:
    """The folder given, else the one that :data:`FOLDER_VARIABLE` names; ``None`` without either."""
    named = given or os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else None


def read_strangers(folder: str | Path, sources: Sequence[str] = SOURCES) -> list[Run]:
    """The runs of some sources, in the order of the files.

    Each has ``backend`` :data:`BACKEND`, ``model_type`` (the task), ``optimizer``, ``source``, ``licence`` and
    ``origin`` in its config, and a name that no other has. The files hold the validation loss between evaluations;
    :attr:`Observations.evaluated` is true only where it changes. A number that is not finite is ``+inf``.

    Raises
    ------
    UserError
        If a file or a column is missing, or ``runs.csv`` and the records do not speak of the same runs.
    """
    root = Path(folder)
    index = _table(root / "runs.csv", LISTED)
    return [run for source in sources for run in _of_source(root, source, index[index["source"] == source])]


def _table(file: Path, due: Sequence[str]) -> pd.DataFrame:
    if not file.is_file():
        raise UserError(f"{file} does not exist; give the folder of strangers' runs, with runs.csv and Parquet files")
    table = pd.read_csv(file, dtype=str) if file.suffix == ".csv" else pd.read_parquet(file)
    missing = [name for name in due if name not in table.columns]
    if missing:
        raise UserError(f"{file} has no column {missing[0]!r}; {', '.join(due)} are due")
    return table


def _of_source(root: Path, source: str, index: pd.DataFrame) -> list[Run]:
    records = _table(root / f"{source}.parquet", (RUN, STEP))
    bounds = np.append(_starts(records), len(records))
    spans = list(itertools.pairwise(bounds.tolist()))
    found = [(str(records[RUN].iloc[start]), str(end - start)) for start, end in spans]
    listed = list(zip(index[RUN], index["records"], strict=True))
    if found != listed:
        raise UserError(f"{root / f'{source}.parquet'} does not hold the runs that runs.csv lists; get both again")
    columns = {name: records[name].to_numpy(dtype=np.float64) for name in records.columns if name not in (RUN, STEP)}
    steps = records[STEP].to_numpy(dtype=np.int64)
    return [
        Run(_name(entry), _config(entry), _observations(steps[start:end], columns, slice(start, end)))
        for entry, (start, end) in zip(_entries(index), spans, strict=True)
    ]


def _entries(index: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in entry.items()} for entry in index.to_dict("records")]


def _starts(records: pd.DataFrame) -> NDArray[np.int64]:
    """Rows at which a run begins: another name, or a step that does not follow (two leaderboards, one name)."""
    codes, step = pd.factorize(records[RUN])[0], records[STEP].to_numpy()
    return np.flatnonzero(np.append(True, (codes[1:] != codes[:-1]) | (step[1:] <= step[:-1])))


def _observations(step: NDArray[np.int64], columns: dict[str, NDArray[np.float64]], rows: slice) -> Observations:
    of_run = {name: column[rows] for name, column in columns.items()}
    return Observations(step, {name: column for name, column in of_run.items() if not np.isnan(column).all()})


def _name(entry: dict[str, Any]) -> str:
    """The name in ``runs.csv``; of AlgoPerf with the leaderboard, since two of them use the same names."""
    leaderboard, logs, _ = str(entry["origin"]).partition("/logs/")
    if entry["source"] == "algoperf" and logs:
        return f"{leaderboard.rsplit('/', 1)[-1]}/{entry[RUN]}"
    return str(entry[RUN])


def _config(entry: dict[str, Any]) -> dict[str, Any]:
    known = {key: entry[key] for key in ("optimizer", "source", "licence", "origin") if isinstance(entry[key], str)}
    return {"backend": BACKEND, "model_type": entry["task"], **known}


def source_of(run: Run) -> str:
    """Source of a stranger's run, one of :data:`SOURCES`."""
    return str(run.config["source"])
