"""Logs below a path: the file itself, or whatever in a folder looks like one, the folder itself where it is a log as a
whole; cheap to ask again and again."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmetric.importers.dvclive import metric_tables
from rmetric.importers.mlflow import is_run
from rmetric.importers.tfevents import EVENT_FILE, RUN_DEPTH, of_one_run
from rmetric.importers.trainer_state import STATE, is_of_checkpoint, latest_state
from rmetric.watch.pace import Pace

ENDINGS = frozenset({".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".log", ".txt", ".out", ".err", ".wandb"})
MOST_DEPTH = 5
MOST_LOGS = 2000
SETTLED_NS = 3 * 10**9
"""Age of a folder's latest change from which on a further one has another time: some file systems count in 2 s."""


class Places:
    """Finds logs; a folder is listed again only when it has changed.

    A folder of TensorBoard's event files, of a run of MLflow, or of DVCLive is one log, as for ``rmetric diagnose``. Of
    the ``checkpoint-N`` folders that stand side by side only the latest ``trainer_state.json`` counts. Folders that
    are links are not followed. Of more than :data:`MOST_LOGS` files that may be logs, those that changed last count: a
    log that is being written is among them, and labels of a data set are not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed: dict[str, tuple[int, list[str], list[str]]] = {}
        self._found: dict[Path, Path] = {}
        self.pace = Pace()
        self.left_out: list[str] = []
        """What limits keep from being found, a sentence each."""

    def logs(self) -> dict[Path, Path]:
        """Name of a log → file or folder that holds it now; the same name for successive checkpoints."""
        if not self._path.is_dir():
            return {self._path: self._path}
        if self.pace.is_due:
            with self.pace.taken():
                self._found = self._search()
            if len(self._found) < MOST_LOGS:
                self.pace.hurry()
        return self._found

    def _search(self) -> dict[Path, Path]:
        self.left_out = []
        found: dict[str, list[str]] = {}
        for file in self._places(str(self._path), 0):
            found.setdefault(_name(file), []).append(file)
        if len(found) > MOST_LOGS:
            self.left_out.append(
                f"{self._path} holds more than {MOST_LOGS:,} files that may be logs; the latest changed are watched"
            )
            last = {*heapq.nlargest(MOST_LOGS, found, key=lambda name: max(map(_changed, found[name])))}
            found = {name: files for name, files in found.items() if name in last}
        return {Path(name): latest_state([*map(Path, files)]) for name, files in found.items()}

    def _places(self, folder: str, depth: int, of_run: int = 0) -> Iterator[str]:
        """Logs in a folder; ``of_run``: levels down to which its event files are those of a folder above it."""
        files, folders = self._entries(folder)
        last_values, tables, metrics = (f"{folder}/{name}" for name in ("metrics.json", "plots", "metrics"))
        if metrics in folders and is_run(Path(folder)):
            yield folder
            return
        if tables in folders and metric_tables(Path(folder)):
            yield folder
            files, folders = [one for one in files if one != last_values], [one for one in folders if one != tables]
        events = {file for file in files if EVENT_FILE in _base(file)}
        if not of_run and (events or self._are_of_one_run(folders)):
            yield folder
            of_run = RUN_DEPTH + 1
        yield from (file for file in files if file not in events)
        if depth < MOST_DEPTH:
            for inner in folders:
                yield from self._places(inner, depth + 1, max(0, of_run - 1))
        elif folders and not self.left_out:
            self.left_out.append(f"folders more than {MOST_DEPTH} levels below {self._path} are not looked into")

    def _are_of_one_run(self, folders: Iterable[str]) -> bool:
        """Whether folders that are named after their data hold the event files of one run."""
        paths = {_base(folder): folder for folder in folders}
        named = [name for group in of_one_run(paths).values() for name in group]
        return bool(
            of_one_run(name for name in named if any(EVENT_FILE in file for file in self._entries(paths[name])[0]))
        )

    def _entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Files that look like logs and folders in a folder."""
        try:
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - one of thousands, again and again
            listed = self._listed.get(folder)
            if listed is not None and listed[0] == changed:
                return listed[1], listed[2]
            with os.scandir(folder) as entries:
                visible = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
                files = [entry.path for entry in visible if _looks_like_a_log(entry.name) and entry.is_file()]
                folders = [entry.path for entry in visible if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return [], []
        if time.time_ns() - changed > SETTLED_NS:
            self._listed[folder] = changed, files, folders
        return files, folders


def _base(path: str) -> str:
    return os.path.basename(path)  # noqa: PTH119 - as above


def _name(file: str) -> str:
    """Name under which a file is listed: that of successive checkpoints is the same."""
    if file.endswith(STATE) and is_of_checkpoint(path := Path(file)):
        return str(path.parent.parent / "checkpoint-*" / path.name)
    return file


def _changed(file: str) -> float:
    """Time of a file's last change; 0 if it has just been removed."""
    try:
        return os.stat(file).st_mtime  # noqa: PTH116 - as above
    except OSError:
        return 0.0


def _looks_like_a_log(name: str) -> bool:
    """Whether a file of that name may hold a log; its content decides.

    >>> [_looks_like_a_log(name) for name in ("run.jsonl", "events.out.tfevents.17.host.1.0", "model.safetensors")]
    [True, True, False]
    """
    return os.path.splitext(name)[1].casefold() in ENDINGS or EVENT_FILE in name  # noqa: PTH122 - thousands of names
