"""Step times, and values of which the unit tells that they are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers.layouts import STEPS, loss, read


def test_the_cost_of_a_batch_in_seconds_is_its_time(tmp_path: Path) -> None:
    lines = (f"epoch: 1, step: {step}, loss: {loss(step)}, reader_cost: 0.1 s, batch_cost: 1.82 s" for step in STEPS)
    (found,) = read(lines, tmp_path)
    assert {*found.run.observations["step_time_s"].tolist()} == {1.82}


def test_a_rate_among_values_before_their_names_is_the_learning_rate(tmp_path: Path) -> None:
    lines = (f" {n}: {loss(n)}, {loss(n)} avg loss, 0.0{n} rate, 3.{17 + n % 3} seconds, {n} images" for n in STEPS)
    (run,) = read(lines, tmp_path)
    assert run.run.observations["learning_rate"][-1] == 0.030
    assert run.run.observations["step_time_s"][-1] == 3.17


@pytest.mark.parametrize(
    "line",
    [
        "iter {step}: loss {loss:.4f}, time {ms:.2f}ms, mfu 20.1%",
        "step {step} | loss: {loss:.4f} | dt: {ms:.2f} ms | tok/sec: 170000.00",
        "iteration {step}/ 5000 | elapsed time per iteration (ms): {ms:.1f} | lm loss: {loss:.6E} |",
        "step {step} | ms/batch {ms:.2f} | loss {loss:.4f}",
        "step {step} loss {loss:.4f} step_time {s:.5f}s",
        "step {step} loss {loss:.4f} iter_time_s={s:.5f}",
        "global step {step}: loss = {loss:.4f} ({s:.5f} sec/step)",
        "{step} | loss {loss:.4f} | lr 4.9e-04 | {ms:.2f}ms | mfu 3.1%",
        "it {step}: loss {loss:.4f}, it_timing in s: {s:.5f}",
        "Iter {step}: loss {loss:.4f}, It/sec {rate:.6f}, Tokens/sec 99.7",
        "step: {step}, loss: {loss:.4f}, interval_steps_per_second: {rate:.6f}, eval_steps_per_second: 1.0",
        "step {step} ({rate:.6f} it/s), loss = {loss:.4f}",
        "completed step: {step}, seconds: {s:.5f}, loss: {loss:.4f}",
        "step {step} loss {loss:.4f} time: {s:.5f}s",
    ],
)
def test_a_step_time_whose_unit_is_written_is_read(line: str, tmp_path: Path) -> None:
    times = [300.0 + 7 * (step % 3) for step in STEPS]
    lines = (
        line.format(step=step, loss=loss(step), ms=ms, s=ms / 1000, rate=1000 / ms)
        for step, ms in zip(STEPS, times, strict=True)
    )
    (found,) = read(lines, tmp_path)
    assert found.run.observations["step_time_s"] == pytest.approx([ms / 1000 for ms in times])


@pytest.mark.parametrize(
    "line",
    [
        "step {step} loss {loss:.4f} time: {step}.5s",  # of all so far
        "step {step} loss {loss:.4f} dt: 0.31",
        "{step}/100 - 9s - loss: {loss:.4f} - 3s/step",  # a mean of the epoch so far
        "step {step} loss {loss:.4f} train_time: {step}312ms",
        "step {step} loss {loss:.4f} step_time: {step}00.5ms",  # rises, as a clock does
        "step {step} loss {loss:.4f} rate: 0.31it/s",  # smoothed, as a progress bar shows it
        "step {step} loss {loss:.4f} samples_per_second: 3.1",
        "step {step}0 loss {loss:.4f} seconds: 3.1",  # of ten steps, perhaps
        "step {step} loss {loss:.4f} data_time: 3.1ms",
    ],
)
def test_no_unit_of_a_time_is_guessed(line: str, tmp_path: Path) -> None:
    (found,) = read((line.format(step=step, loss=loss(step)) for step in STEPS), tmp_path)
    assert not found.run.observations.has("step_time_s")
