"""Which of the columns of a log are read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.importers import runs_of
from tests.importers.layouts import LOSSES, POINTS, STEPS, apart, loss, read


def test_lists_in_a_list_are_no_losses(tmp_path: Path) -> None:
    lines = iter([f"[{', '.join(f'[{step}, {loss(step)}, {loss(step)}]' for step in STEPS)}]"])
    with pytest.raises(UserError):
        read(lines, tmp_path, "loss_history.json")


@pytest.mark.parametrize(
    "names", [("G_loss", "D_loss"), ("Generator Loss", "Discriminator Loss"), ("critic_loss", "gen_loss")]
)
def test_losses_that_play_against_each_other_are_not_added(names: tuple[str, str], tmp_path: Path) -> None:
    lines = (f"Step {step} {names[0]}: {loss(step)} {names[1]}: {loss(step)}" for step in STEPS)
    with pytest.raises(UserError, match="there are several losses"):
        read(lines, tmp_path)


def test_rate_and_norm_are_those_of_the_loss(tmp_path: Path) -> None:
    lines = (
        f"step {step} actor grad_norm 0.001 critic loss {loss(step)} critic grad_norm {step / 10} lr 0.1\n"
        f"state: step {step} learning_rate 0.5"
        for step in STEPS
    )
    (run,) = read(lines, tmp_path)
    assert run.run.observations["grad_norm"].tolist() == [step / 10 for step in STEPS]
    assert {*run.run.observations["learning_rate"].tolist()} == {0.1}


def test_numbered_losses_beside_those_of_two_players_are_not_read(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            yield f"step {step} | loss_disc: 2.5 | loss_0: 2.5 | loss_gen: {loss(step)} | loss_1: {loss(step) + 2.0}"

    with pytest.raises(UserError, match="there are several losses"):
        read(lines(), tmp_path)


def test_rate_and_norm_may_stand_within_what_a_learner_says(tmp_path: Path) -> None:
    record = '{{"step": {}, "config": {{"lr": 9}}, "learner": {{"total_loss": {}, "cur_lr": 0.1, "grad_gnorm": 1.5}}}}'
    (found,) = read((record.format(step, loss(step)) for step in STEPS), tmp_path, "run.jsonl")
    assert found.run.observations["learning_rate"][0] == 0.1
    assert found.run.observations["grad_norm"][0] == 1.5


def test_a_perplexity_beside_a_validation_loss_is_not_of_the_training(tmp_path: Path) -> None:
    (run,) = read((f"epoch {n}: perplexity: {math.exp(loss(n))} eval_loss: {loss(n)}" for n in STEPS), tmp_path)
    assert not run.run.observations.has("training_loss")
    assert len(run.run.evaluations()[1]) == POINTS
    (mapped,) = runs_of(tmp_path / "run.log", mapping={"training_loss": "perplexity"})
    assert mapped.run.observations["training_loss"] == pytest.approx([math.exp(value) for value in LOSSES])


def test_the_norm_of_the_first_group_is_read(tmp_path: Path) -> None:
    (run,) = read((f"step={n},loss={loss(n)},grad_norm={{'0_default': {n}.5}},lr=0.1" for n in STEPS), tmp_path)
    assert run.run.observations["grad_norm"].tolist() == [n + 0.5 for n in STEPS]


def test_a_number_named_after_its_data_may_end_in_nan(tmp_path: Path) -> None:
    (run,) = read((f"{step}:\tlearn: {loss(step) if step < 20 else math.nan}" for step in STEPS), tmp_path)
    assert not np.isfinite(run.run.observations["training_loss"][-1])


def test_a_number_named_after_its_data_that_leaps_is_one(tmp_path: Path) -> None:
    (run,) = read((f"{step}:\tlearn: {loss(step) if step < 20 else 9.5}" for step in STEPS), tmp_path)
    assert run.run.observations["training_loss"][-1] == 9.5


def test_a_gradient_norm_while_the_scale_of_the_loss_is_searched_is_not_measured(tmp_path: Path) -> None:
    norms = {1: "nan", 2: "inf", 25: "nan"}
    lines = (f"{{'loss': {loss(step)}, 'grad_norm': {norms.get(step, 1.5)}, 'epoch': {step / 9}}}" for step in STEPS)
    (run,) = read(lines, tmp_path)
    norm = run.run.observations["grad_norm"]
    assert np.isnan(norm[:2]).all() and np.flatnonzero(np.isinf(norm)).tolist() == [24]


def test_a_number_named_after_its_data_that_rises_is_no_loss(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'learn' does not fall as a loss does"):
        read((f"{step}:\tlearn: {1 - 1 / step}\ttest: {1 - 2 / step}\tbest: 0.3 (7)" for step in STEPS), tmp_path)


def test_of_two_networks_none_is_taken_where_one_has_a_list(tmp_path: Path) -> None:
    lines = (f"{step} [D loss: {loss(step)}, acc.: 0.5] [G loss: [{apart(step)}, 0.4]]" for step in STEPS)
    with pytest.raises(UserError, match=r"there are several losses \('D loss', 'G loss'\)"):
        read(lines, tmp_path)


def test_losses_of_different_lines_are_not_added(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        for step in STEPS:
            yield f"Step {step} inner loss: {loss(step)}"
            yield f"Step {step} outer loss: {loss(step)}"

    with pytest.raises(UserError, match="there are several losses"):
        read(lines(), tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "epoch {0} acc tr {2:.3f} va {2:.3f} loss {1}",
        "epoch {0}, Tr: {2:.4f}, Va: {2:.4f}, Te: {2:.4f}, Loss: {1}",
        "epoch {0}: va_iou={2:.3f}, loss={1}",
        "epoch {0} | va_acc {2:.3f} | loss {1}",
        "epoch {0} loss {1} va_loss {3} expr_loss {4}",
        "step {0} loss {1} pi {3} va {4}",
        "epoch {0} va_loss {3} expr_loss {4}",
        "step {0} unet_loss {3} te_loss {4}",
    ],
)
def test_two_letters_alone_tell_no_data(line: str, tmp_path: Path) -> None:
    values = ((step, loss(step), 0.3 + step / 999, apart(step), loss(step) - apart(step)) for step in STEPS)
    (run,) = read(itertools.starmap(line.format, values), tmp_path)
    assert run.run.observations["training_loss"] == pytest.approx(LOSSES)
    assert not len(run.run.evaluations()[0])


@pytest.mark.parametrize(
    "line",
    [
        "epoch {0} TrLoss: {1} VaLoss: {2}",
        "epoch {0} train_loss {1} te_loss {2}",
        "epoch {0} loss {1} va_loss {2} tr_acc 0.{0} va_acc 0.{0}",
        "epoch {0} loss: tr {1} va {2} acc: tr 0.{0} va 0.{0}",
        "epoch {0} L_tr {1} L_va {2}",
        "epoch {0} tr {1} te {2}",
    ],
)
def test_two_letters_tell_the_data_beside_those_of_the_training(line: str, tmp_path: Path) -> None:
    (run,) = read((line.format(step, loss(step), loss(step) + 0.1) for step in STEPS), tmp_path)
    assert run.run.observations["training_loss"] == pytest.approx(LOSSES)
    assert run.run.evaluations()[1] == pytest.approx(np.add(LOSSES, 0.1))


def test_a_trust_radius_is_no_loss(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="known format"):
        read((f"iter {step} f {loss(step)} |g| {loss(step)} tr {loss(step) / 9}" for step in STEPS), tmp_path)
