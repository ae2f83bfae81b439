"""Places of a study's runs: a folder of logs, or one set of a data set."""

from __future__ import annotations

from pathlib import Path

from rmetric.errors import UserError

SAMPLE = "sample"
"""Folder of the committed logs, which stand in for a study that has not been made."""
DATA_SET = ".parquet"


def split_part(source: str | Path) -> tuple[Path, str] | None:
    """File and set that ``FILE.parquet`` or ``FILE.parquet:SET`` names (the set is empty in the first case).

    ``None`` if the name is not that of a data set.

    >>> split_part("data/real_runs.parquet:transfer")
    (PosixPath('data/real_runs.parquet'), 'transfer')
    >>> split_part("logs_REAL") is None
    True
    """
    text = str(source)
    if text.casefold().endswith(DATA_SET):
        return Path(text), ""
    before, colon, part = text.rpartition(":")
    return (Path(before), part) if colon and before.casefold().endswith(DATA_SET) else None


def find_logs(folder: str | Path) -> tuple[list[Path], str]:
    """The logs of a study, and a note for the reader (empty unless the committed sample stands in for the study).

    Raises :class:`UserError` for a missing or empty folder, or a file where a folder is due.
    """
    root = Path(folder)
    if not root.exists():
        raise UserError(f"{root} does not exist; run python run_modern_experiments.py first, or give --logs FOLDER")
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
    raise UserError(f"{root} holds no .jsonl logs; run python run_modern_experiments.py first, or give --logs FOLDER")
