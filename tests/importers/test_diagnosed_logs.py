"""What the diagnosis may conclude from a log as it was read."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.diagnosis import diagnose
from tests.importers.layouts import LOSSES, STEPS, loss, read

RISING = [3.0 + abs(step - 10) / 10 for step in STEPS]


def test_evaluations_are_read_and_not_the_best_so_far_below_them(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        best = math.inf
        for step, told in zip(STEPS, RISING, strict=True):
            yield f"\titers: 100, epoch: {step} | loss: {loss(step) + 0.05:.7f}"
            yield f"Epoch: {step}, Steps: 132 | Train Loss: {loss(step):.7f} Vali Loss: {told:.7f} Test Loss: 2.4660735"
            if told < best:
                yield f"Validation loss decreased ({best:.6f} --> {told:.6f}).  Saving model ..."
                best = told
            yield f"Updating learning rate to {0.001 / step}"

    (run,) = read(lines(), tmp_path)
    assert run.run.observations["training_loss"] == pytest.approx(LOSSES)
    assert run.run.observations["validation_loss"] == pytest.approx(RISING)
    assert "OVERFITS" in [finding.name for finding in diagnose(tmp_path / "run.log").findings]


def test_nothing_is_judged_by_the_best_evaluations_alone(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            yield f"epoch {step} loss {loss(step):.4f}"
            yield f"Validation loss decreased ({loss(step - 1):.4f} --> {loss(step):.4f}).  Saving model ..."

    read(lines(), tmp_path)
    assert "OVERFITS" in diagnose(tmp_path / "run.log").not_judged


def test_a_learning_rate_alone_is_not_called_healthy(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("step,grad_norm\n" + "".join(f"{step},1.5\n" for step in range(1, 201)))
    diagnosis = diagnose(tmp_path / "run.csv")
    assert not diagnosis.healthy
    assert diagnosis.verdict == "nothing found, but there is no training loss"


@pytest.mark.parametrize(("first", "judged"), [(1, True), (40_000, False)])
def test_whether_a_run_learns_is_not_asked_of_its_last_part(first: int, judged: bool, tmp_path: Path) -> None:
    noise = random.Random(6)
    rows = (f"{first + 10 * row},{noise.gauss(3.2, 0.1)}\n" for row in range(200))
    (tmp_path / "run.csv").write_text("step,loss\n" + "".join(rows))
    diagnosis = diagnose(tmp_path / "run.csv")
    assert ("NEVER_LEARNS" in [finding.name for finding in diagnosis.findings]) == judged
    assert ("NEVER_LEARNS" in diagnosis.not_judged) != judged
