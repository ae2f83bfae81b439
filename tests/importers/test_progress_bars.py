"""Losses that progress bars show."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from io import StringIO
from itertools import accumulate
from pathlib import Path

import pytest
from tqdm import tqdm

from rmetric.diagnosis import diagnose
from tests.importers.layouts import LOSSES, POINTS, STEPS, bar, loss, read


def noisy(step: int, noise: random.Random) -> float:
    return (0.5 + 1.5 * 0.98**step) * noise.lognormvariate(0.0, 0.3)


def keras_bars(epochs: int, batches: int, *, means: bool) -> Iterator[str]:
    noise = random.Random(3)
    for epoch in range(1, epochs + 1):
        losses = [noisy(batches * epoch + done, noise) for done in range(batches)]
        sums = [*accumulate(losses)]
        yield f"Epoch {epoch}/{epochs}"
        yield "\r".join(
            f"{done}/{batches} [====>....] - ETA: 3s - loss: {sums[done - 1] / done if means else losses[done - 1]:.4f}"
            for done in range(1, batches + 1)
        )


def test_of_the_means_of_an_epoch_so_far_the_last_counts(tmp_path: Path) -> None:
    (logged,) = read(keras_bars(12, 30, means=True), tmp_path)
    assert logged.run.observations.step.tolist() == [*range(30, 361, 30)]
    assert "the mean of its epoch so far" in " ".join(logged.notes)
    assert not diagnose(tmp_path / "run.log").findings


def test_the_losses_of_batches_all_count(tmp_path: Path) -> None:
    (logged,) = read(keras_bars(12, 30, means=False), tmp_path)
    assert logged.run.observations.step.tolist() == [*range(1, 361)]


def test_a_report_of_each_epoch_below_its_bar_is_counted_by_epochs(tmp_path: Path) -> None:
    lines = (
        f"Epoch {epoch}/30 [train]: 100%|####| 157/157 [02:45<00:00,  1.06s/it, loss={loss(epoch) + 0.1:.3f}]\n"
        f"Epoch {epoch}/30 - Train Loss: {loss(epoch):.4f}, Validation Loss: {loss(epoch) + 1:.4f}"
        for epoch in STEPS
    )
    (found,) = read(lines, tmp_path)
    assert found.run.observations.step.tolist() == STEPS
    assert found.run.observations["training_loss"][0] == pytest.approx(loss(1), abs=1e-4)


@pytest.mark.parametrize("totals", [(1, 1), (157, 157), (3, 5)])
def test_a_bar_that_is_always_full_counts_nothing(totals: tuple[int, int], tmp_path: Path) -> None:
    lines = (
        f"100%|####| {total}/{total} [00:10<00:00,  1.29it/s]\n avg loss={loss(step):.6f}"
        for step in STEPS
        for total in (totals[len(str(step)) % 2],)
    )
    (found,) = read(lines, tmp_path)
    assert found.run.observations["training_loss"] == pytest.approx(LOSSES, abs=1e-6)


@pytest.mark.parametrize("initial", [0, 20])
@pytest.mark.parametrize("counts_first", [True, False])
def test_a_bar_that_is_drawn_twice_at_a_count_has_the_loss_of_its_batch(
    counts_first: bool, initial: int, tmp_path: Path
) -> None:
    drawn = StringIO()
    with tqdm(total=POINTS + initial, initial=initial, file=drawn, mininterval=0.0, miniters=1) as shown:
        for step in STEPS:
            if counts_first:
                shown.update()
            shown.set_postfix(loss=loss(step) if step < POINTS else math.nan)
            if not counts_first:
                shown.update()
    (found,) = read(iter([drawn.getvalue()]), tmp_path)
    records = found.run.observations.rows(slice(-POINTS, None))  # a bar before the first batch has the loss of that
    assert records.step.tolist() == [initial + step for step in STEPS]
    assert records["training_loss"] == pytest.approx([*LOSSES[:-1], math.inf], abs=1e-6)


@pytest.mark.parametrize("every", [5, 20])
def test_a_loss_that_is_shown_until_the_next_counts_once(every: int, tmp_path: Path) -> None:
    noise = random.Random(4)
    shown = [f"{noisy(done // every, noise):.4f}" for done in range(1000)]
    lines = iter(["\r".join(bar(done + 1, 2000, f"loss: {shown[done // every]}") for done in range(1000))])
    (logged,) = read(lines, tmp_path)
    assert len(logged.run.observations) == 1000 / every
    assert f"is set every {every} rows" in " ".join(logged.notes)


@pytest.mark.slow
def test_a_loss_that_no_longer_changes_is_seen_to_stand_still(tmp_path: Path) -> None:
    noise = random.Random(5)
    shown = [f"{noisy(done // 5, noise) if done < 500 else 0.0:.4f}" for done in range(0, 2000, 5)]
    lines = iter(["\r".join(bar(done + 1, 4000, f"loss: {shown[done // 5]}") for done in range(2000))])
    (logged,) = read(lines, tmp_path)
    assert (logged.run.observations["training_loss"] == 0.0).sum() > 1000


def test_losses_of_an_epoch_that_are_shown_throughout_the_next_one_count_once(tmp_path: Path) -> None:
    shown = [f"val_loss={loss(step) + 0.1}" + (f", loss={loss(step - 1)}" if step > 1 else "") for step in (*STEPS, 31)]
    lines = (bar(done, 10, f"Epoch {step}: {shown[step - 1]}") for step in STEPS for done in range(1, 11))
    (found,) = read(lines, tmp_path)
    assert found.run.observations["training_loss"] == pytest.approx(LOSSES[:-1])
    assert found.run.evaluations()[1] == pytest.approx([loss + 0.1 for loss in LOSSES[1:]])


def test_the_loss_of_the_training_in_the_bar_of_an_evaluation_is_no_step(tmp_path: Path) -> None:
    lines = (
        line
        for step in STEPS
        for line in (
            *(bar(done, 20, f"train_loss={loss(step)}") for done in (10, 20)),
            *(f"valid: {20 * done}%|#| {done}/5 [train_loss={loss(step)}, valid_loss=3.5]" for done in range(1, 6)),
        )
    )
    (found,) = read(lines, tmp_path)
    assert found.run.observations.step.tolist() == [*range(10, 601, 10)]
