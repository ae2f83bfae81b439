"""Layouts of logs, each a function that yields the lines, with what a person sees in them; logs of given lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rmetric.importers import LoggedRun, runs_of

POINTS = 30
Lines = Callable[[], Iterator[str]]
S = TypeVar("S")


class Layouts(dict[str, tuple[Lines, S]]):
    """Layouts by the names of their functions."""

    def add(self, seen: S) -> Callable[[Lines], Lines]:
        def added(lines: Lines) -> Lines:
            self[lines.__name__] = lines, seen
            return lines

        return added


def loss(step: int) -> float:
    return 4.0 - step / 10


def apart(step: int) -> float:
    """What makes of two parts of a loss more than the same thing twice."""
    return 0.01 * (step % 3)


STEPS = list(range(1, POINTS + 1))
LOSSES = [loss(step) for step in STEPS]


def read(lines: Iterator[str], tmp_path: Path, file: str = "run.log") -> list[LoggedRun]:
    """The runs of a log with these lines."""
    path = tmp_path / file
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return list(runs_of(path))


def bar(done: int, total: int, text: str) -> str:
    """A progress bar of tqdm."""
    return f"{text}: {100 * done // total:3d}%|{'#' * done:<10}| {done}/{total} [00:{done:02d}<00:10,  1.00it/s]"


def log(folder: Path, *lines: str) -> Path:
    """A log of these lines."""
    path = folder / "run.log"
    path.write_text("\n".join(lines) + "\n")
    return path
