"""Reports over several lines: counters, rates, evaluations and rewards that lines beside them state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.importers.layouts import LOSSES, STEPS, loss, read


def test_evaluations_of_two_epochs_between_two_reports_are_both_kept(tmp_path: Path) -> None:
    lines = [f"{{'eval_loss': {2.0 / epoch}, 'epoch': {epoch}.0}}" for epoch in range(1, 13)]
    for place in range(12, 0, -5):
        lines.insert(place, f"{{'loss': {3.0 / place}, 'epoch': {place}.4}}")
    (run,) = read(iter(lines), tmp_path)
    assert {*run.run.observations["validation_loss"].tolist()} == {2.0 / epoch for epoch in range(1, 13)}


@pytest.mark.parametrize("between", ["", "\n    output #0: loss = 2.5 (* 1 = 2.5 loss)"])
def test_a_rate_behind_its_report_is_of_that(between: str, tmp_path: Path) -> None:
    report = "Iteration {0}, loss = {1}" + between + "\nsgd.cpp: Iteration {0}, lr = {2}"
    lines = (report.format(step, loss(step), 1 / step) for step in STEPS)
    (run,) = read(lines, tmp_path)
    assert run.run.observations["learning_rate"].tolist() == [1 / step for step in STEPS]


@pytest.mark.parametrize(
    "order", [("loss: {0}", "lr: {1}"), ("lr: {1}", "loss: {0}"), ("lr: {1}", "loss: {0}", "lr: 7.5")]
)
def test_the_first_rate_of_an_epoch_is_that_of_its_report(order: tuple[str, ...], tmp_path: Path) -> None:
    lines = ("\n".join((f"Epoch {step}", *order)).format(loss(step), 1 / step) for step in STEPS)
    (run,) = read(lines, tmp_path)
    assert run.run.observations["learning_rate"].tolist() == [1 / step for step in STEPS]


def test_two_loggers_with_other_digits_report_a_step_together(tmp_path: Path) -> None:
    lines = (
        f"step {step} loss {loss(step)} lr 1.0e-05\n"
        f"{{'step': {step}, 'loss': {loss(step) + 1e-5}, 'norm': 1.5, 'lr': 1.0001e-5}}"
        for step in STEPS
    )
    (run,) = read(lines, tmp_path)
    assert run.run.observations.step.tolist() == STEPS
    assert {*run.run.observations["grad_norm"].tolist()} == {1.5}
    assert not run.notes


def test_a_counter_with_a_comma_announces_nothing(tmp_path: Path) -> None:
    lines = (line for step in STEPS for line in (f"step: {step}" + ",5" * (step % 2), f"loss: {loss(step)}"))
    (found,) = read(lines, tmp_path)
    assert found.run.observations["training_loss"] == pytest.approx(LOSSES)


def test_a_learning_rate_in_a_line_of_its_own_holds_until_the_next(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            if step % 10 == 1:
                yield f"New learning rate is {1e-3 / step:.6f}"
            yield f"iter {step} loss {loss(step)}"

    (found,) = read(lines(), tmp_path)
    assert found.run.observations["learning_rate"][[0, 9, 10, -1]].tolist() == [1e-3, 1e-3, 9.1e-5, 4.8e-5]


def test_a_learning_rate_that_never_changes_may_be_a_setting(tmp_path: Path) -> None:
    lines = (f"  lr: 0.01\niter {step} loss {loss(step)}" for step in STEPS)
    (found,) = read(lines, tmp_path)
    assert not found.run.observations.has("learning_rate")


def test_a_learning_rate_beside_a_count_is_no_setting(tmp_path: Path) -> None:
    lines = (f"Iteration {step}, lr = 0.01\nIteration {step}, loss = {loss(step)}" for step in STEPS)
    (found,) = read(lines, tmp_path)
    assert {*found.run.observations["learning_rate"].tolist()} == {0.01}


def test_rewards_in_lines_of_their_own_belong_to_the_step_before(tmp_path: Path) -> None:
    lines = (f"Learner step {step} loss {loss(step)}\nSteps {99 * step} Reward {step}.0" for step in STEPS)
    (found,) = read(lines, tmp_path)
    assert found.run.observations.step.tolist() == STEPS
    assert found.run.observations["reward"].tolist() == STEPS


@pytest.mark.parametrize("counter", ["Episode", "Step"])
def test_what_a_line_with_a_reward_counts_holds_for_the_report_below(counter: str, tmp_path: Path) -> None:
    lines = (f"{counter} {10 * step} Reward {step}.0\nupdate loss: {loss(step)}" for step in STEPS)
    (found,) = read(lines, tmp_path)
    assert found.run.observations.step.tolist() == [10 * step for step in STEPS]
    assert found.run.observations["training_loss"] == pytest.approx(LOSSES)


def test_an_evaluation_stands_at_the_step_that_it_states(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            if step % 10 == 0:
                yield f"step {step}: train loss 2.0, val loss {loss(step)}"
            yield f"{step} | loss {loss(step)} | lr 4.9e-05 | {8000 + step % 7}.78ms | mfu 0.21%"

    (run,) = read(lines(), tmp_path)
    steps, evaluated = run.run.evaluations()
    assert steps.tolist() == [10, 20, 30]
    assert evaluated.tolist() == [loss(10), loss(20), loss(30)]


def test_an_evaluation_behind_two_workers_is_of_their_step(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            yield from (f"step {step} loss {loss(step) + rank:.4f} rank {rank}" for rank in (0, 1))
            if step % 10 == 0:
                yield f"step {step} val loss {loss(step) + 0.1:.4f}"

    (found,) = read(lines(), tmp_path)
    assert found.run.evaluations()[0].tolist() == [10, 20, 30]
    assert found.run.observations["training_loss"] == pytest.approx(LOSSES, abs=1e-3)


def test_an_evaluation_stands_at_the_step_that_a_line_above_it_states(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            if step % 10 == 0:
                yield f"Iteration {step}, Testing net (#0)"
                yield f"    Test net output #0: loss = {loss(step) + 0.1:.4f} (* 1 = {loss(step) + 0.1:.4f} loss)"
            yield f"Iteration {step}, loss = {loss(step):.4f}"

    (found,) = read(lines(), tmp_path)
    assert found.run.evaluations()[0].tolist() == [10, 20, 30]


def test_a_report_that_ends_in_what_was_saved_counts(tmp_path: Path) -> None:
    lines = (f"epoch {step}: loss {loss(step)}" + " (best so far, saved)" * (step % 3 == 0) for step in STEPS)
    (run,) = read(lines, tmp_path)
    assert run.run.observations["training_loss"] == pytest.approx(LOSSES)
