"""Places of a study's runs: a folder of logs, or a data set, one file a set."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rmetric.errors import UserError

SAMPLE = "sample"
"""Folder of the committed logs, which stand in for a study that has not been made."""
DATA_SET = ".parquet"
MANIFEST = "manifest.json"
"""File of a study's folder; its ``runs`` names all files that the study is to have, finished or not."""
_OF_SEVERAL = re.compile(r"run_(\d+)_to_(\d+)")
"""What :func:`part_name` makes."""
_INSTEAD = "name a folder of logs, or make one with python run_modern_experiments.py"


def data_set_of(source: str | Path) -> Path | None:
    """File that ``FILE.parquet`` names, or ``FILE.parquet:SET`` for a set beside it; ``None`` if it names none.

    >>> data_set_of("data/real_runs.parquet:transfer")
    PosixPath('data/real_runs_transfer.parquet')
    >>> data_set_of("logs_REAL") is None
    True
    """
    text = str(source)
    if text.casefold().endswith(DATA_SET):
        return Path(text)
    before, colon, part = text.rpartition(":")
    return companion(before, part) if colon and part and before.casefold().endswith(DATA_SET) else None


def companion(file: str | Path, part: str) -> Path:
    """File of a set that belongs to the study in ``file`` and lies beside it."""
    path = Path(file)
    return path.with_name(f"{path.stem}_{part}{path.suffix}")


def index_of(file: Path) -> Path:
    """Index of a data set, a line a run, which lies beside it."""
    return file.with_name(f"{file.stem}_index.csv")


def log_in(folder: Path, run: str, instead: str) -> Path:
    """Log of a run in a folder, or in folders below it: the name stands in a file that a stranger may have written.

    Raises :class:`UserError`, with what to do ``instead``, for a name that leads elsewhere.
    """
    file = folder / f"{run}.jsonl"
    if not file.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"a run named {run!r} would not lie in {folder}; {instead}")
    return file


def find_parts(folder: str | Path) -> list[Path]:
    """The parts of a study that is kept as partitioned Parquet, in the order of its runs; empty if it is not."""
    return sorted(Path(folder).glob(f"run_*{DATA_SET}"))


def part_name(first: int, last: int) -> str:
    """Name of a part, without ending, that holds the runs of these numbers and all between."""
    return f"run_{first:07d}_to_{last:07d}"


def planned_runs(folder: str | Path) -> dict[str, int]:
    """File that the study in a folder is to have, without its ending → number of runs in it, by the manifest.

    Empty without a manifest. One that is of something else, or damaged, says nothing of the study either.
    """
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    runs = manifest.get("runs") if isinstance(manifest, dict) and "study" in manifest else None
    return {name: _runs_of(name) for name in runs} if isinstance(runs, dict) else {}


def _runs_of(name: str) -> int:
    several = _OF_SEVERAL.fullmatch(name)
    return int(several[2]) - int(several[1]) + 1 if several else 1


def find_logs(folder: str | Path) -> tuple[list[Path], str]:
    """The logs of a study, and a note for the reader (empty unless the committed sample stands in for the study).

    Raises :class:`UserError` for a missing or empty folder, or a file where a folder is due.
    """
    root = Path(folder)
    if not root.exists():
        raise UserError(f"{root} does not exist; {_INSTEAD}")
    if not root.is_dir():
        raise UserError(f"{root} is a file where a folder is due; give a folder of .jsonl logs, or a .parquet data set")
    logs = sorted(root.glob("*.jsonl"))
    if logs:
        return logs, ""
    sample = sorted((root / SAMPLE).glob("*.jsonl"))
    if sample:
        note = (
            f"note: {root} holds no generated logs; using the {len(sample)} committed sample logs in {root / SAMPLE}. "
            "Run python run_modern_experiments.py for the full study."
        )
        return sample, note
    raise UserError(f"{root} holds no .jsonl logs; {_INSTEAD}")
