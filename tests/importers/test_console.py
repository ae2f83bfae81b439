"""Console output: pairs in a line, patterns that repeat, and what is left aside."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.importers import detect_format, read_console, runs_of
from rmetric.importers.console import WORKERS
from rmetric.importers.line_wording import two_cells
from rmetric.importers.pairs import LEVELS, pairs

LINES: dict[str, dict[str, Any]] = {
    "Epoch: [0][50]\tTime 0.123 (0.2)\tLoss 8.0068 (8.0)": {"Epoch": 0, "batch": 50, "Time": 0.123, "Loss": 8.0068},
    "loss: nan  grad_norm: inf": {"loss": math.nan, "grad_norm": math.inf},
    "number of nan iterations:   0 |": {"number of nan iterations": 0},
    "2024-01-01 10:00:00,123 loss=-0.5": {"loss": -0.5},
    "[03/15 10:00:00 d2.utils.events]: iter: 19": {"iter": 19},
    "tokens: 1,234,567 loss 2": {"tokens": 1234567, "loss": 2},
    "log(f'{val_loss:.4f}')": {},
    "eta: 4:59:11  loss: 2.5": {"loss": 2.5},
    "Step: 1, {'validation/loss': Array(2.5, dtype=float32)}": {"Step": 1, "validation/loss": 2.5},
    "\x1b[31mstep: 10  \x1b[32mloss:  7.1\x1b[0m": {"step": 10, "loss": 7.1},
    "Evaluation at step 5 | loss 2.5": {"step": 5, "validation loss": 2.5},
    "checksum 12ab34 of a1b2": {},
    "2026-01-01 10:00:00,123 INFO step 50 loss 3.8": {"step": 50, "loss": 3.8},
    "2026-01-01 10:00:00 step 50 loss 3.8": {"step": 50, "loss": 3.8},
    "1:02:03 PM [step 50] loss 3.8": {"step": 50, "loss": 3.8},
    "2026-01-01T10:00:00.123456789Z stdout F step: 50 | loss: 3.8": {"step": 50, "loss": 3.8},
    "step 50 eta 1:02:03 loss 3.8 elapsed 00:10 lr 0.1": {"step": 50, "loss": 3.8, "lr": 0.1},
    "step 50 loss nan lr 0.1": {"step": 50, "loss": math.nan, "lr": 0.1},
    "step 50 train loss nan val loss nan": {"step": 50, "train loss": math.nan, "val loss": math.nan},
    "step 50 loss nan 12.5 tok/s lr 0.1": {"step": 50, "loss": math.nan, "lr": 0.1},
    "step: 50, CTCLoss: nanxxx, loss: -infxx, lr: 0.1": {"step": 50, "CTCLoss": math.nan, "loss": -math.inf, "lr": 0.1},
    "ScoreIterationListener - Score at iteration 50 is 1.62": {"iteration": 50, "loss": 1.62},
    "[9]\tcv_agg's l2: 0.25 + 0.01": {"#": 9, "valid's l2": 0.25},
    "Score at iteration 50 is 1.62": {"iteration": 50, "score": 1.62},
    "step 5 -ELBO: 35.1": {"step": 5, "negative ELBO": 35.1},
    "step 5 - ELBO: -35.1": {"step": 5, "ELBO": -35.1},
    "step 50 grad_norm inf lr: 0.1": {"step": 50, "grad_norm": math.inf, "lr": 0.1},
    "step 50 loss nan count 3": {"step": 50, "loss nan count": 3},
    "[1/90] batch 20/60 loss 2.5": {"batch": 20, "batch of": 60, "loss": 2.5},
    "1/90 | batch: 0, loss 2.5": {"batch": 0, "loss": 2.5},
    "loss 3.8 at step 50": {"loss": 3.8, "step": 50},
    "INFO:root:step 50 loss 3.9": {"step": 50, "loss": 3.9},
    "step 5 loss -1.#IND, gnorm: 1.#INF00 (1.#QNAN)": {"step": 5, "loss": math.nan, "gnorm": math.nan},
    "step 5 loss 1.#R": {"step": 5, "loss": math.nan},
    "step 34.1k/1.5M loss 5.4 (12.3k tok/s)": {"step": 34_100, "step of": 1_500_000, "loss": 5.4},
    "iter 2K: loss 5.4 kept 7kB": {"iter": 2_000, "loss": 5.4, "kept": 7},
    "iter 5: loss 1,000.00, ppl 3": {"iter": 5, "loss": 1000, "ppl": 3},
    "step 1,000/10,000 | loss 10,00377": {"step": 1_000, "step of": 10_000, "loss": "10,00377"},
    "step 7 grad_norm=0,88 lr 0,001": {"step": 7, "grad_norm": "0,88", "lr": "0,001"},
    "betas (0.9,0.95) gpus 0,1,2 loss 1.234,5": {"betas": 0.9, "gpus": "0,1,2", "loss": "1.234,5"},
    "step 2: train loss nan (80.6 ms, 50794 tok/s)": {"step": 2, "train loss": math.nan},
    "iter 3/9 - loss nan - lr: 0.1": {"iter": 3, "iter of": 9, "loss": math.nan, "lr": 0.1},
    "Up. 180 : Cost nan * 288,044 @ 12,345 after 7": {"Up.": 180, "Cost": math.nan, "after": 7},
    "step 5 loss -> nan, lr 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "step 5 loss <nan> lr 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "5: nan, nan avg loss, 0.001 rate, 12.1 seconds": {
        "#": 5,
        "avg loss": math.nan,
        "learning rate": 0.001,
        "seconds": 12.1,
    },
    "Loss is Infinity. The rate is 0.1.": {"Loss is": math.inf, "The rate is": 0.1},
    "step 5 mse nan mae nan lr 0.1": {"step": 5, "mse": math.nan, "mae": math.nan, "lr": 0.1},
    "step 5 loss_0 nan norm 2": {"step": 5, "loss_0": math.nan, "norm": 2},
    "step 5 loss nan ▸ 99 tok/s": {"step": 5, "loss": math.nan},
    "step 5 loss nan on (9 images)": {"step": 5, "loss": math.nan, "on": 9},
    "step 5 found nan in 3 layers": {"step": 5, "found nan in": 3},
    "step 5 has nan 3 times": {"step": 5, "has nan": 3},
    "5: NaN, -NaN avg loss, 1E-3 rate": {"#": 5, "avg loss": math.nan, "learning rate": 1e-3},
    "5: 1.5E3, 1,234.5 avg loss, 0.1 rate": {"#": 5, "avg loss": 1234.5, "learning rate": 0.1},
    "s:5 tel:-NAN": {"step": 5, "val loss": math.nan},
    "| loss | NaN |": {"loss": math.nan},
    "step 5 loss None lr 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 loss: N/A, lr: 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 loss ***** lr 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 | loss: - | lr: 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 - loss - 2.5": {"step": 5, "loss": 2.5},
    "step 5 loss:      nan lr: 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "step 5 loss nan nats | lr 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "step: 5, loss: .nan": {"step": 5, "loss": math.nan},
    "│ train_loss       nan │": {"train_loss": math.nan},
    "Loss after epoch 299: nan": {"epoch": 299, "Loss": math.nan},
    "Cost after iteration 100: 0.69": {"iteration": 100, "Cost": 0.69},
    "losses: [2.5, 2.1], step: 200, reference_loss: 8.5": {"step": 200, "reference_loss": 8.5},
    "step 5 losses: [2.5, 2.1]": {"step": 5, "losses": 2.5},
    " Minibatch[ 101- 200]: loss = 7.8 * 64": {"Minibatch": 200, "loss": 7.8},
    "Epoch 5 | valid: acc=0.5 | train: loss=2.5": {"Epoch": 5, "acc": 0.5, "loss": 2.5},
    "Train: 1/6 (16%) [   8/100 (8%)]  Loss: 6.9": {
        "Train epoch": 1,
        "Train epoch of": 6,
        "batch": 8,
        "batch of": 100,
        "Loss": 6.9,
    },
    "step 5 [1;31mloss 8.58[0m": {"step": 5, "loss": 8.58},
    "step 5 loss 8.5×10^2": {"step": 5, "loss": 850.0},
    "step 1_000/10_000 loss 8'580.2": {"step": 1000, "step of": 10_000, "loss": 8580.2},
    "step 5 loss 8.58D+01 lr 1.0D-04": {"step": 5, "loss": 85.8, "lr": 1e-4},
    "step 5 loss −8.58 lr 1e−4": {"step": 5, "loss": -8.58, "lr": 1e-4},
    "INFO:tensorflow:Saving dict for global step 9: global_step = 9, loss = 38.1": {
        "step": 9,
        "global_step": 9,
        "validation loss": 38.1,
    },
    "INFO:gluonts.trainer:Epoch[3] Evaluation metric 'epoch_loss'=5.6": {"Epoch": 3, "epoch_loss": 5.6},
    "Norm: 25.7, NNZs: 4, Bias: 3.5, T: 150, Avg. loss: 0.05": {
        "weight norm": 25.7,
        "NNZs": 4,
        "Bias": 3.5,
        "T": 150,
        "Avg. loss": 0.05,
    },
}


@pytest.mark.parametrize("line", LINES)
def test_pairs_of_a_line(line: str) -> None:
    found, due = pairs(line), LINES[line]
    assert found.keys() == due.keys()
    assert all(found[name] == due[name] or (found[name] != found[name] and due[name] != due[name]) for name in due)


@pytest.mark.parametrize("broken", ["nan - ", "nan ± nan ", "None ", "***** ", "- | ", "Indeterminate | ", "     nan "])
def test_a_loss_that_is_no_number_any_more_is_not_lost(tmp_path: Path, broken: str) -> None:
    lines = [f"step {step} loss {4.0 - step / 100:.2f} - lr 0.1" for step in range(1, 61)]
    path = log(tmp_path, *lines, *(f"step {step} loss {broken}lr 0.1" for step in range(61, 101)))
    (logged,) = runs_of(path)
    observations = logged.run.observations
    assert np.isinf(observations["training_loss"]).sum() == 40
    assert observations.step[np.isinf(observations["training_loss"])][0] == 61


def test_lines_that_speak_of_the_loss_between_reports_change_nothing(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 61):
        lines += [f"step {step} lr 0.{step} loss {4.0 - step / 100:.2f}", f"step {step} lr 0.9: loss went down again"]
    (logged,) = runs_of(log(tmp_path, *lines))
    assert logged.run.observations.step.tolist() == [*range(1, 61)]
    assert not logged.notes
    assert 0.9 not in logged.run.observations["learning_rate"][:8]


def log(folder: Path, *lines: str) -> Path:
    path = folder / "run.log"
    path.write_text("\n".join(lines) + "\n")
    return path


PREFIXES = (
    "2023-05-01 12:00:{0:02d} - test - INFO - ",
    "2023-05-01 12:00:{0:02d}\tmi-test\tINFO\t",
    "[2023-05-01 12:00:{0:02d}][unit_test.trainer][INFO] - ",
    "INFO:test:",
    "INFO my_test/train_val.py:{0} ",
    "May 01 10:00:{0:02d} gpu-dev-01 train[123]: ",
    "[exp=val_on_noise] ",
    "dev@box ~ 10:00:{0:02d} ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_word_of_data_before_all_reports_tells_no_data(prefix: str, tmp_path: Path) -> None:
    lines = []
    for step in range(1, 31):
        lines += [prefix.format(step) + f"step {step} loss: {4.0 - step / 100:.2f}"]
        lines += [prefix.format(step) + f"val | step {step} loss: {5.0 - step / 100:.2f}"]
    (logged,) = runs_of(log(tmp_path, *lines))
    observations = logged.run.observations
    assert observations["training_loss"].tolist() == [round(4.0 - step / 100, 2) for step in range(1, 31)]
    assert np.isfinite(observations["validation_loss"]).sum() >= 29


def test_epochs_in_the_messages_of_a_compound_name_are_trained(tmp_path: Path) -> None:
    (logged,) = runs_of(log(tmp_path, *(f"my-test - INFO - Epoch {epoch} loss: {4 - epoch}" for epoch in range(3))))
    assert logged.run.observations["training_loss"].tolist() == [4, 3, 2]


@pytest.mark.parametrize(
    "begin",
    [
        "Test: [{0}/30] ",
        "Test: epoch 0 lr 0.1 [{0}/30] ",
        "[val] step {0} ",
        "step {0} val | ",
        "test.py:{0} Eval: step {0} ",
        "[eval.py:120] INFO: batch {0}/30 ",
        "- test - INFO - batch {0} ",
        "| INFO | fairseq_cli.validate | step {0} ",
        "test-clean: batch {0}/30 ",
        "[Round {0}] test_clients 100 ",
        "Epoch {0} | test_set: ",
        "{{'step': {0}, 'lr': 0.1, 'val': ",
    ],
)
def test_a_log_of_nothing_but_evaluations_stays_one(begin: str, tmp_path: Path) -> None:
    end = ", 'train': {'loss': 2.5}}" if "lr" in begin else ""
    lines = (f"{begin.format(step)}loss {4.0 - step / 100:.2f}{end}" for step in range(1, 31))
    (logged,) = runs_of(log(tmp_path, *lines))
    assert not np.isfinite(logged.run.observations["training_loss"]).any()


@pytest.mark.parametrize(
    "line",
    [
        "{{'epoch': {0}, 'train_mse': {1}, 'val_mse': {2}}}",
        "epoch {0}, lr=0.1, rmse(train)={1}, rmse(val)={2}",
        "step {0} {{'train/bpb': {1}, 'val/bpb': {2}}}",
        "[{0}]\tcv_agg's train rmse: {1} + 0.1\tcv_agg's valid rmse: {2} + 0.1",
    ],
)
def test_a_word_in_the_name_of_an_evaluation_tells_its_data(line: str, tmp_path: Path) -> None:
    lines = (line.format(step, 4.0 - step / 100, 5.0 - step / 100) for step in range(30))
    (logged,) = runs_of(log(tmp_path, *lines))
    observations = logged.run.observations
    assert observations["training_loss"].max() == 4.0 and np.nanmax(observations["validation_loss"]) == 5.0


def test_a_source_file_that_only_evaluations_are_of_tells_that(tmp_path: Path) -> None:
    told = {"train.py:31": 4.0, "test.py:88": 5.0}
    lines = [
        f"INFO {file} Epoch {epoch} loss {to - epoch / 100:.2f}" for epoch in range(30) for file, to in told.items()
    ]
    (logged,) = runs_of(log(tmp_path, *lines))
    assert logged.run.observations["training_loss"].max() == 4.0


def test_two_reports_of_one_epoch_are_two_records(tmp_path: Path) -> None:
    (logged,) = runs_of(log(tmp_path, "{'loss': 0.7, 'epoch': 0.0}", "{'loss': nan, 'epoch': 0.0}"))
    assert logged.run.observations["training_loss"].tolist() == [0.7, np.inf]


def test_batches_of_an_evaluation_in_lines_before_it_are_one_evaluation(tmp_path: Path) -> None:
    lines = []
    for epoch in range(3):
        lines += [f"Epoch {epoch}, Iteration {n}\ntrain loss: {2 - n / 100}\n" for n in (25, 50, 75, 100)]
        lines += [f"Epoch {epoch}, Iteration {n}\nvalidation loss: {1 + n / 100}\n" for n in (0, 25, 50)]
    (logged,) = runs_of(log(tmp_path, *lines))
    observations = logged.run.observations
    assert observations.step.tolist() == [*range(25, 301, 25)]
    assert observations["validation_loss"][[3, 7, 11]].tolist() == [1.25] * 3


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_after_a_time_and_a_level_is_one(level: str, tmp_path: Path) -> None:
    lines = (
        f"2026-01-01 12:00:00,123 {level} [rank{rank}]: step {n} loss {4 - n / 9}" for n in range(9) for rank in "01"
    )
    (logged,) = runs_of(log(tmp_path, *lines))
    assert logged.run.observations.step.tolist() == [*range(9)]
    assert logged.notes == [WORKERS]


def test_settings_and_code_before_the_training_are_left_aside(tmp_path: Path) -> None:
    path = log(
        tmp_path, "lr: 0.0001", "loss = 0.0", "step = 7", *(f"step {step} loss {3 - step / 10}" for step in range(1, 9))
    )
    (logged,) = runs_of(path)
    assert logged.run.observations.step.tolist() == list(range(1, 9))
    assert logged.run.observations["training_loss"][0] == 2.9


def test_a_counter_that_is_set_back_begins_another_run_and_a_resumed_one_does_not(tmp_path: Path) -> None:
    steps = [1, 2, 3, 4, 3, 4, 5, 1, 2, 3]
    path = log(tmp_path, *(f"step {step} loss {3 - step / 10}" for step in steps))
    found = list(runs_of(path))
    assert [one.run.observations.step.tolist() for one in found] == [[1, 2, 3, 4, 5], [1, 2, 3]]
    assert [one.run.name for one in found] == ["run", "run-2"]
    assert any("step 3 after step 4 goes back in time" in note for note in found[0].notes)


def test_batches_of_a_training_epoch_are_counted_on_from_epoch_to_epoch(tmp_path: Path) -> None:
    places = [(epoch, batch) for epoch in (1, 2, 3) for batch in (0, 640, 1280)]
    path = log(tmp_path, *(f"Train Epoch: {epoch} [{batch}/1920 (3%)]\tLoss: 2.5" for epoch, batch in places))
    (logged,) = runs_of(path)
    assert logged.run.observations.step.tolist() == [1920 * (epoch - 1) + batch for epoch, batch in places]


@pytest.mark.parametrize(
    "line",
    [
        "Train: {0} [{1:4d}/1251 ( 40%)]  Loss: 6.01 (6.01)  Time: 0.312s,  820.51/s  LR: 1.000e-03",  # timm
        "Train: [{0}/300][{1}/1251]\teta 0:10:00 lr 0.001\tloss 6.0100 (6.0100)",  # Swin
    ],
)
def test_a_number_of_the_training_before_batches_is_the_epoch(tmp_path: Path, line: str) -> None:
    places = [(epoch, batch) for epoch in (0, 1, 2) for batch in (0, 500, 1250)]
    (logged,) = runs_of(log(tmp_path, *(line.format(*place) for place in places)))
    assert logged.run.observations.step.tolist() == [1251 * epoch + batch for epoch, batch in places]


def test_the_first_report_may_lack_what_the_others_say(tmp_path: Path) -> None:
    others = (f"Iteration {step} (2.2 iter/s, 21.2s/50 iter), loss = {3 - step / 1000}" for step in range(50, 500, 50))
    (logged,) = runs_of(
        log(tmp_path, "Iteration 2 (3.8 s), loss = 5.0", *others, "Iteration 500 of all, norm 1, loss = 0.1")
    )
    assert logged.run.observations.step.tolist() == [2, *range(50, 500, 50)]


@pytest.mark.parametrize("told", ["Initialised from best.pt: Epoch 87 Loss 0.05", "Profiling: Epoch 2 Loss 9.5"])
def test_a_line_before_the_training_that_counts_further_is_no_first_report(told: str, tmp_path: Path) -> None:
    reports = (f"Epoch {epoch} Loss {3 - epoch / 100} Acc 0.5" for epoch in range(1, 41))
    (found,) = runs_of(log(tmp_path, told, *reports))
    assert found.run.observations.step.tolist() == [*range(1, 41)]
    assert found.run.observations["training_loss"][0] == 2.99


def test_steps_in_thousands_are_steps(tmp_path: Path) -> None:
    (logged,) = runs_of(log(tmp_path, *(f"step {tenth / 10:.1f}k loss 2.5" for tenth in range(0, 400, 5))))
    assert logged.run.observations.step.tolist() == list(range(0, 40_000, 500))


def test_an_estimator_s_evaluation_is_no_training_loss(tmp_path: Path) -> None:
    trained = [f"INFO:tensorflow:loss = {3 - step / 1000}, step = {step} (0.5 sec)" for step in range(0, 1000, 100)]
    evaluated = "INFO:tensorflow:Saving dict for global step 1000: accuracy = 0.9, global_step = 1000, loss = 38.1"
    (logged,) = runs_of(log(tmp_path, *trained, evaluated))
    assert logged.run.observations["training_loss"][:-1] == pytest.approx([3 - tenth / 10 for tenth in range(10)])
    assert (logged.run.observations.step[-1], logged.run.observations["validation_loss"][-1]) == (1000, 38.1)
    assert math.isnan(logged.run.observations["training_loss"][-1])


def test_a_norm_of_weights_is_no_gradient_norm(tmp_path: Path) -> None:
    lines = (f"Norm: {20 + epoch}.5, NNZs: 4, Bias: 3.5, T: {150 * epoch}, Avg. loss: 0.05" for epoch in range(1, 9))
    (logged,) = runs_of(log(tmp_path, *lines))
    assert "grad_norm" not in logged.run.observations.columns


def test_a_decimal_comma_is_one_where_no_number_of_the_log_has_a_point(tmp_path: Path) -> None:
    (logged,) = runs_of(log(tmp_path, "Python 3.11", *(f"step {step} loss {9 - step},345" for step in range(1, 10))))
    assert logged.run.observations["training_loss"] == pytest.approx([8.345 - step for step in range(9)])
    assert not logged.notes


def test_a_comma_beside_decimal_points_is_left_out_and_told_once(tmp_path: Path) -> None:
    (logged,) = runs_of(log(tmp_path, *(f"step {step} loss 2.5 grad_norm=0,88" for step in range(1, 10))))
    assert "grad_norm" not in logged.run.observations.columns
    (note,) = logged.notes
    assert note.startswith("line 1: grad_norm is '0,88': a decimal comma, or two numbers?")


def test_a_row_of_one_long_cell_is_read_in_time_that_grows_with_its_length() -> None:
    assert two_cells(f"| {100_000 * 'said '}|") == f"| {100_000 * 'said '}|"
    assert two_cells("|    loss    | 2.5    |") == "loss: 2.5"


def test_what_repeats_without_a_loss_is_named(tmp_path: Path) -> None:
    path = log(tmp_path, *(f"round {step} quality {step / 10}" for step in range(8)))
    with pytest.raises(UserError, match=r"8 lines report 'quality', 'round'; map one with --format console --map"):
        detect_format(path)
    with pytest.raises(UserError, match="reports no loss"):
        list(read_console(path, {}, pytest.fail))
    events = list(read_console(path, {"training_loss": "quality", "step": "round"}, pytest.fail))
    assert events[3][1] == {"step": 3, "training_loss": 0.3}


def test_rewards_alone_are_said_to_be_that_and_no_counter_is_proposed(tmp_path: Path) -> None:
    path = log(tmp_path, *(f"episode {step} total reward {step / 10} steps_done {90 * step}" for step in range(8)))
    with pytest.raises(UserError, match=r"'steps_done'; rewards alone cannot be judged\)"):
        detect_format(path)
    table = tmp_path / "log.csv"
    table.write_text("episode,total_reward,steps_done,eps\n" + "".join(f"{n},{n / 3},{90 * n},0.1\n" for n in range(9)))
    with pytest.raises(UserError, match=r"rewards alone cannot be judged; .* one with .*\('eps'\)"):
        list(runs_of(table))


def test_the_message_names_a_mapping_that_works_with_detection(tmp_path: Path) -> None:
    path = log(tmp_path, *(f"round {step} quality {step / 10}" for step in range(8)))
    assert detect_format(path, {"training_loss": "quality"}) == "console"


@pytest.mark.parametrize(("end", "kept"), [("9.210e-05\n", 21), ("9.210e-05", 21), ("9.2", 20), ("9", 20)])
def test_a_last_line_that_was_cut_off_within_its_number_is_left_out(tmp_path: Path, end: str, kept: int) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"step {step} loss {1e-4 + 1e-6 * step:.3e}\n" for step in range(20)) + f"step 20 loss {end}"
    )
    damage: list[tuple[int, str]] = []
    events = list(read_console(path, {}, lambda *what: damage.append(what)))
    assert len(events) == kept
    assert damage == ([] if kept == 21 else [(21, "cut off; skipped")])


def test_a_loss_that_drops_to_0_is_suspected_and_left_as_it_is(tmp_path: Path) -> None:
    path = log(tmp_path, *(f"step {step} loss {2.5 if step < 5 else 0.0}" for step in range(9)))
    (logged,) = runs_of(path)
    (note,) = logged.notes
    assert "exactly 0 from step 5 on, in 4 records (the loss before was 2.5)" in note
    assert logged.run.observations["training_loss"][-1] == 0.0


@pytest.mark.parametrize("losses", [[0.0] * 5 + [0.01, -0.02, 0.0, 0.0], [1e-3, 1e-5, 0.0, 0.0, 0.0]])
def test_a_loss_around_0_is_no_suspicion(tmp_path: Path, losses: list[float]) -> None:
    (logged,) = runs_of(log(tmp_path, *(f"step {step} loss {loss + 0.0:.6f}" for step, loss in enumerate(losses))))
    assert not any("exactly 0" in note for note in logged.notes)
