"""What runs are called to a reader: by what tells them apart, where their files are called the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rmetric.importers.trainer_state import is_of_checkpoint

ALWAYS_THE_SAME = ("trainer_state.", "events.out.tfevents.")
"""Begins of file names that say nothing of a run: its folder does."""


class Place(NamedTuple):
    """Where a run stands, as if each had a place of its own."""

    folder: Path
    name: str

    @classmethod
    def of(cls, log: Path, run: str = "") -> Place:
        """Of a run of a log; ``run``: the name that the log, or its file, gives it.

        >>> Place.of(Path("/out/checkpoint-20/trainer_state.json"), "trainer_state")
        Place(folder=PosixPath('/'), name='out')
        >>> Place.of(Path("/out/seed 3/trainer_state.json"), "trainer_state-2").name  # goes on after a resume
        'seed 3-2'
        >>> Place.of(Path("/out/lr0.1.csv"), "lr0.1"), Place.of(Path("/out/sweep.csv"), "seed 3")
        (Place(folder=PosixPath('/out'), name='lr0.1'), Place(folder=PosixPath('/out/sweep'), name='seed 3'))
        """
        whole = Path(os.path.abspath(log))  # noqa: PTH100 - resolve() would follow links
        if is_of_checkpoint(whole) and whole.parent.parent.name:  # which one is the last differs from run to run
            place = whole.parent.parent
        elif whole.name.startswith(ALWAYS_THE_SAME) and whole.parent.name:
            place = whole.parent
        else:
            place = whole if whole.is_dir() else whole.with_suffix("")
        if run in ("", log.stem, place.name):
            return cls(place.parent, place.name)
        if run.startswith(f"{log.stem}-"):
            return cls(place.parent, place.name + run.removeprefix(log.stem))
        return cls(place, run)

    def below(self, folder: Path) -> str:
        """Its name, with the folders between that one and the run; the name alone where it stands somewhere else."""
        between = self.folder.relative_to(folder).parts if self.folder.is_relative_to(folder) else ()
        return "/".join((*between, self.name))


def told_apart(places: Sequence[Place]) -> list[str]:
    """Name of each, with the folders below the one that all of that name have in common.

    >>> told_apart([Place.of(Path(log)) for log in ("a/x/run.csv", "b/x/run.csv", "b/x/eval.csv")])
    ['a/x/run', 'b/x/run', 'eval']
    """
    folders: dict[str, list[Path]] = {}
    for place in places:
        folders.setdefault(place.name.casefold(), []).append(place.folder)
    shared = {name: Path(os.path.commonpath(of_name)) for name, of_name in folders.items()}
    return [place.below(shared[place.name.casefold()]) for place in places]


def shown_names(runs: Sequence[tuple[Path, str]]) -> list[str]:
    """What each of several runs, each a log and the name that this gives it, is called; no two logs the same.

    >>> shown_names([(Path("a/metrics.csv"), "metrics"), (Path("b/metrics.csv"), "metrics")])
    ['a/metrics', 'b/metrics']
    >>> shown_names([(Path("eval.csv"), "eval"), (Path("eval.jsonl"), "eval")])
    ['eval.csv', 'eval.jsonl']
    """
    names = told_apart([Place.of(*run) for run in runs])
    times = Counter(names)
    whole = (_as_given(log) if run == log.stem else f"{log}/{run}" for log, run in runs)
    return [as_given if times[name] > 1 else name for name, as_given in zip(names, whole, strict=True)]


def _as_given(log: Path) -> str:
    """The path of a log, without a name that says nothing."""
    return str(log.parent if log.name.startswith(ALWAYS_THE_SAME) else log)
