"""Console output: patterns that repeat, and what is left aside."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.importers import detect_format, read_console, runs_of
from rmetric.importers.console_survey import ConsoleSurvey
from tests.importers.layouts import log, read


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


def test_a_log_with_one_report_of_its_loss_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'loss' stands in no two lines of one kind; give the whole log"):
        read(iter(["Epoch 1/1", "loss=0.66 acc=0.61"]), tmp_path)


def test_a_log_is_surveyed_once_until_it_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    make = ConsoleSurvey.made
    monkeypatch.setattr(ConsoleSurvey, "made", lambda path, mapping: made.append(path) or make(path, mapping))
    path = tmp_path / "train.log"
    for name in ("loss", "cost"):  # of one length, and maybe at the same time by the clock of the file system
        path.write_text("".join(f"step {step} {name} {2.5 - step / 100}\n" for step in range(20)))
        for _ in range(2):
            (logged,) = runs_of(path)
            assert len(logged.run.observations) == 20
    assert made == [path, path]
