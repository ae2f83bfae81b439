"""Layouts of logs, each a function that yields the lines, with what a person sees in them; logs of given lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rmetric.importers import LoggedRun, runs_of

POINTS = 30
Lines = Callable[[], Iterator[str]]


def loss(step: int) -> float:
    return 4.0 - step / 10


def apart(step: int) -> float:
    """What makes of two parts of a loss more than the same thing twice."""
    return 0.01 * (step % 3)


STEPS = list(range(1, POINTS + 1))
LOSSES = [loss(step) for step in STEPS]


def every(steps: int) -> list[int]:
    return [steps * step for step in STEPS]


@dataclass(frozen=True)
class Seen:
    """What a person sees of the training; of what is measured beside the loss, the last value."""

    steps: Sequence[int] = tuple(STEPS)
    losses: Sequence[float] = tuple(LOSSES)
    evaluations: int = 0
    grad_norm: float | None = None
    learning_rate: float | None = None
    note: str = ""
    file: str = "run.log"


class Layouts(dict[str, tuple[Lines, Seen]]):
    """Layouts by the names of their functions."""

    def add(self, seen: Seen) -> Callable[[Lines], Lines]:
        def added(lines: Lines) -> Lines:
            self[lines.__name__] = lines, seen
            return lines

        return added

    def check(self, name: str, tmp_path: Path) -> None:
        """That what a person sees is read."""
        lines, seen = self[name]
        (logged,) = read(lines(), tmp_path, seen.file)
        observations, (_, evaluated) = logged.run.observations, logged.run.evaluations()
        trained = ~np.isnan(observations["training_loss"])
        assert observations.step[trained].tolist() == [*seen.steps]
        assert observations["training_loss"][trained] == pytest.approx(seen.losses, abs=1e-3)
        assert len(evaluated) == seen.evaluations
        assert not seen.evaluations or evaluated[-1] == pytest.approx(seen.losses[-1] + 0.1, abs=1e-3)
        for ours, value in (("grad_norm", seen.grad_norm), ("learning_rate", seen.learning_rate)):
            assert value is None or observations[ours][trained][-1] == pytest.approx(value)
        notes = " ".join(logged.notes)
        assert bool(notes) == bool(seen.note) and seen.note in notes
        assert "skipped" not in notes and "damage" not in notes


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
