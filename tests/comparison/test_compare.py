"""Two runs of one seed part at the exact step; runs of other seeds where their difference exceeds the noise."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rmetric import read_run
from rmetric.commands import main
from rmetric.comparison import Comparison, compare
from rmetric.comparison.change_point import WINDOW
from rmetric.conversion import chunk_of, log_lines
from rmetric.records import Observations, Run
from tests.diagnosis.runs import losses, norms, run_of
from tests.helpers import ROOT

REAL_RUNS = Path(__file__).parents[1] / "data" / "real_runs"
TWIN = REAL_RUNS / "real_seed0_00_none_twin.jsonl"
FORKS = sorted(set(REAL_RUNS.glob("*.jsonl")) - {TWIN})


def compared(one: Observations, other: Observations) -> Comparison:
    """Two runs without a log, which are called a and b."""
    return compare(Run("a", {}, one), Run("b", {}, other))


@pytest.mark.parametrize("fork", FORKS, ids=lambda path: path.stem)
def test_a_real_fork_parts_from_its_twin_at_the_onset(fork: Path) -> None:
    twin, run = read_run(TWIN), read_run(fork)
    found = compare(twin, run)
    assert found.first is not None
    assert found.first.step == run.onset
    assert found.identical_until == found.first.step - 1


def test_a_run_is_like_itself() -> None:
    run = read_run(TWIN)
    found = compare(run, run)
    assert found.first is None
    assert found.identical_until == 599
    assert "no change beyond noise" in str(found)


def test_other_seeds_are_alike() -> None:
    found = compared(run_of(losses(600, 0), norms(600, 1)), run_of(losses(600, 2), norms(600, 3)))
    assert found.first is None
    assert found.identical_until is None
    assert set(found.alike) >= {"training_loss", "grad_norm"}


def test_a_signal_that_begins_alike_in_other_seeds_is_not_compared_bit_for_bit() -> None:
    clipped = [np.minimum(norms(600, seed), np.where(np.arange(600) < 5, 0.1, np.inf)) for seed in (1, 3)]
    found = compared(run_of(losses(600, 0), clipped[0]), run_of(losses(600, 2), clipped[1]))
    assert found.first is None
    coarse = [np.where(np.arange(600) < 8, 2.3, np.round(losses(600, seed), 2)) for seed in (0, 2)]
    assert compared(run_of(coarse[0]), run_of(coarse[1])).first is None


@pytest.mark.parametrize("other", [losses(600, 2) + 1.0, 2.0 * losses(600, 2), 5.0 + 0.01 * losses(600, 2)])
def test_runs_that_differ_from_the_first_step_on_are_not_alike(other: np.ndarray) -> None:
    found = compared(run_of(losses(600, 0)), run_of(other))
    (difference,) = found.differences
    assert (difference.step, difference.throughout, found.alike) == (0, True, ())
    assert "in the median, from step 0 on" in str(found)


def test_a_jump_among_other_seeds_is_placed_at_its_first_record() -> None:
    loss = losses(600, 2)
    loss[300:] += 0.3
    found = compared(run_of(losses(600, 0)), run_of(loss))
    (difference,) = found.differences
    assert abs(difference.step - 300) <= 2
    assert difference.certain_at > difference.step
    assert difference.noise == pytest.approx(0.02 * np.sqrt(2), rel=0.3)


def test_the_noise_is_that_of_the_differences_before_the_change_alone() -> None:
    one, other = losses(600, 0), losses(600, 2)
    other[300:] += 0.3
    found = compared(run_of(one), run_of(other))
    (difference,) = found.differences
    before = (one - other)[difference.step - WINDOW : difference.step]
    assert difference.certain_at > difference.step
    assert difference.noise == pytest.approx(1.4826 * np.median(np.abs(before - np.median(before))), rel=1e-3)
    assert f"before had a deviation of {difference.noise:.2g} (1.4826 MAD)" in str(found)


def test_runs_that_are_not_bit_exact_part_where_their_difference_jumps() -> None:
    loss, steps = losses(600, 0), np.arange(600)
    growing = 1e-7 * np.exp(np.minimum(steps / 20, 13)) * np.random.default_rng(3).normal(size=600)
    almost = loss + 1e-6 * np.random.default_rng(4).normal(size=600)
    for other, step in ((np.where(steps < 300, almost, losses(600, 2)), 300), (loss + growing.clip(-0.03, 0.03), None)):
        first = compared(run_of(loss), run_of(other)).first
        assert (None if first is None else first.step) == step
        assert first is None or (first.certain_at, round(1e6 * first.noise)) == (315, pytest.approx(2, abs=1))


def test_a_loss_that_is_not_finite_in_one_run_is_a_difference_at_once() -> None:
    loss = losses(200, 2)
    loss[150:] = np.inf
    found = compared(run_of(losses(200, 0)), run_of(loss))
    assert [(one.step, one.certain_at) for one in found.differences] == [(150, 150)]
    assert "and not finite at step 150" in str(found) and "inf" not in str(found).replace("finite", "")


def test_values_are_told_with_so_many_digits_that_they_differ() -> None:
    one = losses(100)
    one[50] = 2.54437
    other = one + np.where(np.arange(100) == 50, 1e-9, 0.0)
    found = compared(run_of(one), run_of(other))
    assert "training loss 2.54437 and 2.544370001 at step 50; identical before" in str(found)


def test_learning_rates_are_compared_exactly() -> None:
    steps, rate = np.arange(100), np.full(100, 1e-3)
    later = np.where(steps < 70, rate, 2e-3)
    found = compared(run_of(losses(100, 0), learning_rate=rate), run_of(losses(100, 1), learning_rate=later))
    assert [(one.signal, one.step) for one in found.differences] == [("learning_rate", 70)]


def test_what_a_log_has_rounded_is_no_difference() -> None:
    steps = np.arange(600)
    loss, norm, rate = losses(600), norms(600), 1e-3 * np.cos(steps / 400)
    rounded = {"training_loss": loss.round(4), "grad_norm": norm.astype(np.float32).astype(float)}
    rounded["learning_rate"] = np.array([float(f"{value:.3e}") for value in rate])
    exact, coarse = (
        {"training_loss": loss, "grad_norm": norm, "learning_rate": rate},
        Observations(steps, rounded),
    )
    found = compared(Observations(steps, exact), coarse)
    assert (found.first, found.identical_until) == (None, 599)
    for name, values in exact.items():
        changed = exact | {name: np.where(steps < 300, values, 1.01 * values)}
        other = compared(Observations(steps, changed), coarse)
        assert [(one.signal, one.step) for one in other.differences] == [(name, 300)]


def test_single_precision_in_its_shortest_form_is_single_precision() -> None:
    steps, rate = np.arange(600), 3e-4 * np.cos(np.arange(600) / 400)
    shortest = rate.astype(np.float32).astype(str).astype(float)
    exact, printed, changed = (
        run_of(losses(600), learning_rate=values)
        for values in (rate, shortest, np.where(steps < 300, rate, (1.0 + 1e-6) * rate))
    )
    assert compared(exact, printed).first is None
    assert [(one.signal, one.step) for one in compared(changed, printed).differences] == [("learning_rate", 300)]


def test_numbers_of_any_size_are_compared() -> None:
    one = np.array([0.0, np.inf, -1.5e308, 1.23456789e-305, 5e-324, 1.23456789e300, -0.0] * 20)
    for values in (one, 1e-10 * one, np.zeros(140), np.full(140, np.inf)):
        assert compared(run_of(one, one), run_of(values, values)).steps == 140


def test_learning_rates_of_few_digits_are_not_taken_for_rounded() -> None:
    one, other = (Observations(np.arange(100), {"learning_rate": np.full(100, rate)}) for rate in (1e-3, 1.3e-3))
    assert compared(one, other).differences[0].step == 0


LINEAR = 1.0 - np.arange(1, 601) / 600


@pytest.mark.parametrize(
    ("rate", "decimals"),
    [
        (3e-4 * np.sin(np.pi * LINEAR), 4),
        (5e-5 * LINEAR, 4),
        (5e-5 * LINEAR, 5),
        (10.0 ** np.repeat([-3, -4, -5], 200), 4),
    ],
)
def test_learning_rates_of_which_a_log_leaves_few_values_are_rounded(rate: np.ndarray, decimals: int) -> None:
    signals = {"training_loss": losses(600), "learning_rate": rate}
    coarse = {name: values.round(decimals) for name, values in signals.items()}
    doubled = signals | {"learning_rate": np.where(np.arange(600) < 300, rate, rate + 2e-4)}
    exact, rounded, later = (Observations(np.arange(600), one) for one in (signals, coarse, doubled))
    assert (compared(exact, rounded).first, compared(rounded, exact).identical_until) == (None, 599)
    assert [(one.signal, one.step) for one in compared(later, rounded).differences] == [("learning_rate", 300)]


CONSTANT, TWO = np.full(100, 1e-3), np.repeat([1e-2, 1e-3], 50)


@pytest.mark.parametrize(
    ("decimals", "one", "other"),
    [
        ((16, 16), CONSTANT, 1.1 * CONSTANT),
        ((3, 16), CONSTANT, 1.1 * CONSTANT),
        ((3, 3), CONSTANT, 1.5 * CONSTANT),
        ((3, 3), TWO, np.where(TWO < 1e-2, 1.1 * TWO, TWO)),
        ((16, 16), 0.0 * CONSTANT, 3e-4 * LINEAR[:100]),
    ],
)
def test_learning_rates_that_no_rounding_explains_differ(
    decimals: tuple[int, int], one: np.ndarray, other: np.ndarray
) -> None:
    runs = [
        run_of(losses(100).round(count), learning_rate=rate) for count, rate in zip(decimals, (one, other), strict=True)
    ]
    found = compared(*runs).differences
    assert "learning_rate" in [difference.signal for difference in found]


def test_only_common_steps_are_compared() -> None:
    every, tenth = run_of(losses(1000)), run_of(losses(1000)).rows(slice(0, None, 10))
    assert compared(every, tenth).steps == 100
    apart = compared(every, run_of(losses(10), stride=5000).rows(slice(1, None)))
    assert apart.steps == 0
    assert apart.first is None
    assert apart.not_compared == {"training_loss": "no common step at which both have it"}
    assert "nothing could be compared: no common step\n" in str(apart)
    only = compared(run_of(losses()), run_of(losses(), np.full(400, 1.0))).not_compared
    assert only == {"grad_norm": "no common step at which both have it"}


def test_what_one_log_has_not_measured_is_no_difference() -> None:
    loss, norm, steps = losses(100), norms(100), np.arange(100)
    forked = np.where(steps < 60, loss, loss + 0.1)
    seldom = np.where(steps % 10 == 0, norm, np.nan)
    for other in (run_of(forked), run_of(forked, seldom)):
        found = compared(run_of(loss, norm), other)
        assert (found.identical_until, found.differences[0].step) == (59, 60)


def test_too_few_values_of_other_seeds_are_not_compared() -> None:
    found = compared(run_of(losses(20, 0)), run_of(losses(20, 1)))
    assert "20 common values" in found.not_compared["training_loss"]


def test_what_is_too_short_to_tell_is_not_called_alike() -> None:
    short, longer = (compared(run_of(losses(length, 0)), run_of(losses(length, 1))) for length in (44, 45))
    assert "44 common values; the first 32 tell what noise is, and a difference takes 13 more" in str(short)
    assert "nothing could be compared" in str(short)
    assert longer.alike == ("training_loss",)


def test_a_difference_within_what_makes_the_noise_may_have_begun_earlier() -> None:
    jump = np.where(np.arange(100) >= 20, 50.0, 0.0)
    found = compared(run_of(losses(100, 0)), run_of(losses(100, 1) + jump)).first
    assert found is not None
    assert "at step 32 or before, certain at step 44" in found.sentence


@pytest.mark.parametrize("length", [30, 100])
def test_a_loss_that_is_not_finite_in_one_run_needs_no_noise(length: int) -> None:
    broken = losses(length, 1)
    broken[20:] = np.inf
    found = compared(run_of(losses(length, 0)), run_of(broken)).first
    assert found is not None
    assert (found.step, found.certain_at) == (20, 20)
    assert found.sentence.endswith("and not finite at step 20")


def test_runs_with_nothing_to_compare_are_not_called_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.jsonl").write_text("".join(f'{{"step": {step}, "loss": "oops"}}\n' for step in range(50)))
    assert main(["compare", str(tmp_path / "b.jsonl"), str(tmp_path / "b.jsonl")]) == 2
    assert "nothing could be compared: no common learning rate, training loss" in capsys.readouterr().out


def test_the_command_tells_by_its_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(TWIN), str(TWIN)]) == 0
    assert main(["compare", str(TWIN), str(FORKS[0])]) == 1
    assert "first difference: " in capsys.readouterr().out
    assert main(["compare", str(TWIN), "nowhere.jsonl"]) == 2
    capsys.readouterr()
    assert main(["compare", str(TWIN), str(TWIN.parent)]) == 2
    assert "is a folder of 16 logs, and one is due; name one of them" in capsys.readouterr().err


def test_json_is_strict_and_complete(capsys: pytest.CaptureFixture[str]) -> None:
    broken = next(path for path in FORKS if "gflip_30_False" in path.stem)
    assert main(["compare", str(TWIN), str(broken), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["differences"][0]["step"] == 333
    assert found["steps"] == 600


@pytest.mark.slow
def test_the_study_writes_its_table(tmp_path: Path) -> None:
    for path in (TWIN, *FORKS[:4]):
        run = read_run(path)
        run.config["twin"] = TWIN.stem
        (tmp_path / path.name).write_bytes(log_lines(chunk_of(run)))
    call = ["--data", tmp_path, "--half", "all", "--out", tmp_path, "--jobs", "2"]  # processes that import the work
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "studies.compare", *call], cwd=ROOT, env=environment, check=True)
    with open(tmp_path / "compare.csv", encoding="utf-8", newline="") as table:
        exact = {float(row["exact"]) for row in csv.DictReader(table) if row["pairs"].startswith("same seed, model")}
    assert exact == {1.0}
