"""Logs below a path: the file itself, or whatever in a folder looks like one; cheap to ask again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from rmetric.importers.trainer_state import is_of_checkpoint, latest_state

ENDINGS = frozenset({".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".log", ".txt", ".out", ".err", ".wandb"})
EVENT_FILE = "tfevents"
"""Part of the name of every TensorBoard event file."""
MOST_DEPTH = 5
MOST_LOGS = 2000
SETTLED_NS = 3 * 10**9
"""Age of a folder's latest change from which on a further one has another time: some file systems count in 2 s."""


class Places:
    """Finds logs; a folder is listed again only when it has changed.

    Of the ``checkpoint-N`` folders that stand side by side only the latest ``trainer_state.json`` counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed: dict[str, tuple[int, list[str], list[str]]] = {}

    def logs(self) -> dict[Path, Path]:
        """Name of a log → file that holds it now; the same name for successive checkpoints."""
        if not self._path.is_dir():
            return {self._path: self._path}
        found: dict[Path, list[Path]] = {}
        for file in self._files(str(self._path), 0):
            name = file.parent.parent / "checkpoint-*" / file.name if is_of_checkpoint(file) else file
            found.setdefault(name, []).append(file)
            if len(found) == MOST_LOGS:
                break
        return {name: files[0] if len(files) == 1 else latest_state(files) for name, files in found.items()}

    def _files(self, folder: str, depth: int) -> Iterator[Path]:
        files, folders = self._entries(folder)
        yield from (Path(file) for file in files)
        if depth < MOST_DEPTH:
            for inner in folders:
                yield from self._files(inner, depth + 1)

    def _entries(self, folder: str) -> tuple[list[str], list[str]]:
        """Files that look like logs and folders in a folder."""
        try:
            changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - one of thousands, again and again
            listed = self._listed.get(folder)
            if listed is not None and listed[0] == changed:
                return listed[1], listed[2]
            with os.scandir(folder) as entries:
                visible = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
                files = [entry.path for entry in visible if looks_like_a_log(entry.name) and entry.is_file()]
                folders = [entry.path for entry in visible if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return [], []
        if time.time_ns() - changed > SETTLED_NS:
            self._listed[folder] = changed, files, folders
        return files, folders


def looks_like_a_log(name: str) -> bool:
    """Whether a file of that name may hold a log; its content decides.

    >>> [looks_like_a_log(name) for name in ("run.jsonl", "events.out.tfevents.17.host.1.0", "model.safetensors")]
    [True, True, False]
    """
    return os.path.splitext(name)[1].casefold() in ENDINGS or EVENT_FILE in name  # noqa: PTH122 - thousands of names
