"""Metrics that TensorBoard and MLflow keep one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from rmetric.importers import LoggedRun, runs_of
from tests.importers.event_files import event_file

Point = tuple[str, int, float]
"""Name, step and value."""


def tensorboard(folder: Path, points: Iterable[Point]) -> None:
    event_file(folder / "events.out.tfevents.1", points)


def mlflow(folder: Path, points: Iterable[Point]) -> None:
    (folder / "metrics").mkdir(parents=True)
    (folder / "meta.yaml").touch()
    for time, (name, step, value) in enumerate(points, start=1_700_000_000_000):
        with (folder / "metrics" / name.replace("/", "_")).open("a") as file:
            file.write(f"{time} {value!r} {step}\n")


both = pytest.mark.parametrize("write", [tensorboard, mlflow])
Write = Callable[[Path, Iterable[Point]], None]


def trained(*steps: int) -> Iterator[Point]:
    return (("train/loss", step, 3.0 - step / 128) for step in steps)


def evaluated(step: int, at: int | None = None) -> Point:
    """A validation loss after a step, under it or another one."""
    return "val/loss", step if at is None else at, 3.5 - step / 128


def shown(logged: LoggedRun) -> tuple[list[int], list[int]]:
    """Steps of the training and of the evaluations, each with its own loss."""
    run = logged.run
    steps = run.observations.step[run.observations.stated("training_loss") > 0]
    at, losses = run.evaluations()
    assert losses.tolist() == [3.5 - step / 128 for step in at]
    return steps.tolist(), at.tolist()


@both
@pytest.mark.parametrize("first", [0, 1])
def test_evaluations_by_epoch_stand_at_the_latest_step_before_them(first: int, write: Write, tmp_path: Path) -> None:
    epochs = range(6)
    rates = [("lr", epoch, 0.1) for epoch in epochs]
    of_epochs = ([*trained(*range(9 * e, 9 * e + 9)), evaluated(9 * e + 8, first + e), rates[e]] for e in epochs)
    write(tmp_path, [point for points in of_epochs for point in points])
    (logged,) = runs_of(tmp_path)
    assert shown(logged) == ([*range(54)], [*range(8, 54, 9)])
    assert [note.split("'")[1] for note in logged.notes] == [
        "lr",
        "val/loss".replace("/", "/" if write is tensorboard else "_"),
    ]


@both
def test_metrics_may_be_written_one_after_the_other(write: Write, tmp_path: Path) -> None:
    write(tmp_path, [*trained(*range(60)), *(evaluated(step) for step in range(9, 60, 10))])
    (logged,) = runs_of(tmp_path)
    assert shown(logged) == ([*range(60)], [*range(9, 60, 10)]) and not logged.notes


@both
def test_an_evaluation_that_lags_is_counted_as_the_training(write: Write, tmp_path: Path) -> None:
    lagging = (
        [*trained(step), *([evaluated(step - 12)] if step % 10 == 5 and step > 12 else [])] for step in range(60)
    )
    write(tmp_path, [point for points in lagging for point in points])
    (logged,) = runs_of(tmp_path)
    assert shown(logged) == ([*range(60)], [*range(3, 60, 10)][:5]) and not logged.notes


@both
def test_without_a_step_rows_count(write: Write, tmp_path: Path) -> None:
    write(
        tmp_path,
        [point for step in range(30) for point in (("loss", 0, 3 - step / 128), ("val_loss", 0, 3 - step / 64))],
    )
    (logged,) = runs_of(tmp_path)
    assert logged.run.observations["training_loss"].tolist() == [3 - step / 128 for step in range(30)]
    assert len(logged.run.evaluations()[0]) == 30 and logged.notes == ["there is no step; rows count"]


@both
def test_of_several_values_at_a_step_the_last_counts(write: Write, tmp_path: Path) -> None:
    write(tmp_path, [("loss", epoch, 3.0 - epoch - batch / 8) for epoch in range(2) for batch in range(8)])
    (logged,) = runs_of(tmp_path)
    assert logged.run.observations["training_loss"].tolist() == [2.125, 1.125] and not logged.notes


@both
def test_each_part_of_a_resumed_run_has_its_evaluations_and_its_name(write: Write, tmp_path: Path) -> None:
    parts = [*trained(*range(50)), evaluated(9), evaluated(49), *trained(*range(30, 90)), evaluated(59), evaluated(89)]
    for name in ("a.1", "b.2"):
        write(tmp_path / name, parts)
    found = [*runs_of(tmp_path)]
    assert [one.run.name for one in found] == ["a.1", "a.1-2", "b.2", "b.2-2"]
    assert [*map(shown, found)] == [([*range(50)], [9, 49]), ([*range(30, 90)], [59, 89])] * 2


def test_seams_are_those_of_the_training(tmp_path: Path) -> None:
    """Batches of evaluations, which begin with 0 each time, are no resumption."""
    points = [*trained(*range(20)), *(("eval/batch_loss", batch, 3.5) for batch in range(4))]
    points += [*trained(*range(20, 30)), *(("eval/batch_loss", batch, 3.5) for batch in range(4))]
    tensorboard(tmp_path, [*points, *trained(*range(30, 50)), *trained(*range(40, 60))])
    assert [one.run.observations.step[[0, -1]].tolist() for one in runs_of(tmp_path)] == [[0, 49], [40, 59]]


@both
@pytest.mark.parametrize("last", [3.0 - 60 / 128, float("nan")])
def test_the_trainers_closing_entry_hides_no_record_of_its_step(last: float, write: Write, tmp_path: Path) -> None:
    losses = [("loss", step, 3.0 - step / 128) for step in range(10, 60, 10)]
    ends = [("loss", 60, last), ("eval_loss", 60, 3.5 - 60 / 128), ("train_runtime", 60, 9.5), ("train_loss", 60, 2.7)]
    write(tmp_path, [*losses, *ends])
    (logged,) = runs_of(tmp_path)
    observations = logged.run.observations
    assert observations.step.tolist() == [*range(10, 70, 10)]
    assert observations["training_loss"][-1] == (math.inf if math.isnan(last) else last)
    assert [part.tolist() for part in logged.run.evaluations()] == [[60], [3.5 - 60 / 128]]
