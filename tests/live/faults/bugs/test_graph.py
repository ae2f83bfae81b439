"""What bugs of the graph and of the mode do to gradients, losses and statistics."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.faults import make_fault
from tests.live.faults.classifier import ClassifierRun
from tests.live.faults.common import MAKE, Notes, same_bits, trained


def _gradients(run: Any) -> set[str]:
    """Names of the tensors that get a gradient in a step."""
    notes = Notes(run)
    trained(run, 1)
    return {name for name, gradient in notes.gradients.items() if gradient.any()}


def test_the_first_tensors_are_frozen_and_stay(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    before = {name: item.detach().clone() for name, item in run.model.named_parameters()}
    with make_fault("HALF_FROZEN", share=0.5).inject(run):
        assert _gradients(run) == {"4.weight", "4.bias", "6.weight", "6.bias"}
    kept = {name for name, item in run.model.named_parameters() if same_bits(item, before[name])}
    assert kept == {"0.weight", "0.bias", "1.weight", "1.bias"}


@pytest.mark.parametrize(
    ("depth", "reached"),
    [
        (0.0, {"1.weight", "1.bias", "4.weight", "4.bias", "6.weight", "6.bias"}),
        (0.5, {"4.weight", "4.bias", "6.weight", "6.bias"}),
        (1.0, {"6.weight", "6.bias"}),
    ],
)
def test_no_gradient_reaches_what_is_below_a_detached_layer(make_run: MAKE, depth: float, reached: set[str]) -> None:
    run = trained(make_run("classifier"), 2)
    with make_fault("DETACHED_PART", depth=depth).inject(run):
        assert _gradients(run) == reached
    assert len(_gradients(run)) == 8


def test_a_decoder_layer_is_detached_as_a_whole(make_run: MAKE) -> None:
    run = make_run("tiny-llama")
    notes = Notes(run)
    with make_fault("DETACHED_PART", depth=0.0).inject(run):
        (note,) = notes.told
        assert note["modules"] == ["model.layers.0"]
        reached = _gradients(run)
    assert not any(name.startswith("model.layers.0.") for name in reached)
    assert any(name.startswith("model.layers.1.") for name in reached)


def test_a_model_of_one_layer_has_nothing_to_cut_off() -> None:
    run = ClassifierRun()
    run.model = torch.nn.Sequential(run.model[0])
    with pytest.raises(UserError, match="at least two layers"), make_fault("DETACHED_PART").inject(run):
        pass


# --- modes -----------------------------------------------------------------------------------------------------------


def _drops(run: Any) -> bool:
    """Whether dropout changes anything in a training step."""
    changed: list[bool] = []
    hook = run.model[3].register_forward_hook(
        lambda module, inputs, output: changed.append(not torch.equal(inputs[0], output))
    )
    trained(run, 1)
    hook.remove()
    return any(changed)


def test_dropout_is_off_in_training(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    assert _drops(run)
    with make_fault("DROPOUT_STATE", dropout="off").inject(run):
        assert not _drops(run)
    assert _drops(run)


def test_dropout_is_on_in_evaluation(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    with make_fault("DROPOUT_STATE", dropout="on").inject(run):
        assert len({run.held_out_loss("judge") for _ in range(5)}) == 5
    assert len({run.held_out_loss("judge") for _ in range(5)}) == 1


@pytest.mark.parametrize("name", ["EVAL_MODE_IN_TRAINING", "NORM_STATISTICS_FROZEN"])
def test_training_uses_and_keeps_the_running_statistics(make_run: MAKE, name: str) -> None:
    run = trained(make_run("classifier"), 2)
    mean, modes = run.model[1].running_mean.clone(), []
    with make_fault(name).inject(run), run.at("loss", lambda loss: modes.append(run.model[1].training) or loss):
        trained(run, 2)
    assert modes == [False] * 4
    assert torch.equal(run.model[1].running_mean, mean)


def test_stale_statistics_are_those_of_evaluation_alone(make_run: MAKE) -> None:
    run, calm = trained(make_run("classifier"), 2), trained(make_run("classifier"), 2)
    mean = run.model[1].running_mean.clone()
    with make_fault("NORM_STATISTICS_FROZEN", statistics="stale").inject(run):
        losses = [float(run.train_step()) for _ in range(3)]
    assert losses == [float(calm.train_step()) for _ in range(3)]
    assert torch.equal(run.model[1].running_mean, mean)
    assert run.held_out_loss("judge") != calm.held_out_loss("judge")


@pytest.mark.parametrize("name", ["DROPOUT_STATE", "EVAL_MODE_IN_TRAINING", "NORM_STATISTICS_FROZEN"])
def test_a_model_whose_mode_makes_no_difference_is_the_users_error(make_run: MAKE, name: str) -> None:
    with pytest.raises(UserError, match=r"dropout|batch norm"), make_fault(name).inject(make_run("tiny-llama")):
        pass
