"""The logs that paths name: files, folders that are logs, folders of logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rmetric.dataset.sources import DATA_SET, SAMPLE, data_set_of, find_logs, index_of
from rmetric.errors import UserError
from rmetric.files import DEFAULT_LOGS
from rmetric.importers.format import detect_format, folder_format, refuse_pipe
from rmetric.importers.trainer_state import STATE, is_of_checkpoint, latest_state


def collect_logs(paths: Sequence[str | Path]) -> tuple[list[Path], str]:
    """The logs that ``paths`` name, each once, and a note for the reader (mostly empty).

    A folder stands for every ``*.jsonl``, ``*.csv`` and ``trainer_state.json`` in it; if it has none, for those in its
    ``sample`` folder or for the ``trainer_state.json`` of its latest ``checkpoint-*``. Else a folder of TensorBoard's
    event files, of W&B's offline runs, of MLflow's runs or of DVCLive is a log, one of Lightning's stands for its
    ``version_*/metrics.csv``, one of Sacred's for the ``metrics.json`` of its runs, any other for its files whose
    content is of a known format, or else for its ``*.log``, ``*.out`` and ``*.txt``. Nothing named means the study in
    ``logs_FULL_METRIC``. Raises :class:`UserError` for what does not exist, is a pipe or a device, or holds no log.
    """
    if not paths:
        return find_logs(DEFAULT_LOGS)
    refuse_empty(paths)
    logs: dict[str, Path] = {}
    notes = []
    for path in map(Path, paths):
        data_set = data_set_of(path)
        if data_set is not None and not path.is_dir() and (data_set != path or path.exists()):
            raise UserError(f"{path} is a data set, no log; unpack it {_unpacked(path)}")
        if path.is_dir():
            found, note = _in_folder(path)
            notes += [note] if note else []
        elif path.exists():
            refuse_pipe(path)
            found = [path]
        else:
            raise UserError(f"{path} does not exist; give a log or a folder of logs")
        for log in found:
            logs.setdefault(os.path.realpath(log), log)
    return list(logs.values()), " ".join(notes)


def refuse_empty(paths: Sequence[str | Path]) -> None:
    """Raise :class:`UserError` for an empty path, which would be the current folder."""
    if "" in paths:
        raise UserError("the path of a log is empty; is the variable set that it comes from?")


def _in_folder(folder: Path) -> tuple[list[Path], str]:
    if not os.access(folder, os.R_OK | os.X_OK):  # else it would pass for empty
        raise UserError(f"{folder} cannot be read (permission denied); check its permissions")
    if found := _log_like(folder):
        return found, ""
    if found := _log_like(folder / SAMPLE):
        used = f"the {len(found)} committed sample logs in {folder / SAMPLE}"
        return found, f"note: {folder} holds no logs; using {used}."
    if states := [path for path in folder.glob(f"checkpoint-*/{STATE}") if is_of_checkpoint(path)]:
        latest = latest_state(states)
        return [latest], f"note: {folder} holds no logs; using {latest}, its latest checkpoint's."
    if folder_format(folder):
        return [folder], ""
    if tables := {*folder.glob("version_*/metrics.csv"), *folder.glob("lightning_logs/version_*/metrics.csv")}:
        return sorted(tables), ""
    if curves := [file for run in folder.glob("*/run.json") if _is_known(file := run.with_name("metrics.json"))]:
        return sorted(curves), ""
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    if known := [file for file in files if _is_known(file)]:
        return known, ""
    if texts := [file for ending in (".log", ".txt", ".out") for file in files if file.name.endswith(ending)]:
        return texts, ""
    if data_sets := sorted(folder.glob(f"*{DATA_SET}")):
        raise UserError(f"{folder} holds data sets, no logs; unpack each of them {_unpacked(data_sets[0])}")
    raise UserError(f"{folder} holds no logs (*.jsonl, *.csv or trainer_state.json); give a log or a folder of logs")


def _unpacked(data_set: Path) -> str:
    return f"with python -m rmetric.dataset.unpack {data_set} --out FOLDER, then give FOLDER"


def _is_known(file: Path) -> bool:
    """Whether the content tells the format; JSON objects of any kind do not."""
    try:
        return detect_format(file) not in ("jsonl", "rmetric")
    except (UserError, OSError):
        return False


def _log_like(folder: Path) -> list[Path]:
    found = {*folder.glob("*.jsonl"), *folder.glob("*.csv"), *folder.glob("trainer_state.json")}
    indices = {index_of(data_set) for data_set in folder.glob(f"*{DATA_SET}")}
    return sorted(path for path in found - indices if path.is_file() and not path.name.startswith("."))
