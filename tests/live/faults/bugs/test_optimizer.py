"""What bugs of the optimizer do to its steps."""

from __future__ import annotations

import math

import pytest
import torch

from rmetric.errors import UserError
from rmetric.faults import make_fault
from tests.live.faults.common import MAKE, Notes, same_bits, trained


def test_a_lost_state_is_that_of_a_fresh_optimizer(make_run: MAKE) -> None:
    run = trained(make_run("tiny-llama"), 3)
    fresh = make_run("tiny-llama")
    fresh.load_state_dict({**run.state_dict(), "optimizer": fresh.optimizer.state_dict()})
    with make_fault("OPTIMIZER_STATE_LOST").inject(run):
        trained(run, 1)
    assert same_bits(run.state_dict(), trained(fresh, 1).state_dict())
    assert {int(state["step"]) for state in run.optimizer.state.values()} == {1}


def test_an_optimizer_without_state_cannot_lose_it(make_run: MAKE) -> None:
    with (
        pytest.raises(UserError, match="SGD has no state here"),
        make_fault("OPTIMIZER_STATE_LOST").inject(make_run("classifier")),
    ):
        pass


def test_forgotten_parameters_stay_and_their_gradients_add_up(make_run: MAKE) -> None:
    run = trained(make_run("classifier", clip=math.inf), 2)
    before = {name: item.detach().clone() for name, item in run.model.named_parameters()}
    with make_fault("PARAMETERS_NOT_IN_OPTIMIZER", share=0.5).inject(run):
        left = trained(run, 3).model[6].weight.grad.clone()
        heir = make_run("classifier", clip=math.inf)
        heir.model.load_state_dict(run.model.state_dict())
        heir.step = run.step
        notes = Notes(heir)
        trained(run, 1)
        trained(heir, 1)
        torch.testing.assert_close(run.model[6].weight.grad, left + notes.gradients["6.weight"])
        kept = {name for name, item in run.model.named_parameters() if same_bits(item, before[name])}
        assert run.model[0].weight.grad is None
    assert kept == {"4.weight", "4.bias", "6.weight", "6.bias"}
    assert all(item.grad is None for item in run.model.parameters())


def test_one_tensor_at_least_is_still_known(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    with make_fault("PARAMETERS_NOT_IN_OPTIMIZER", share=1.0).inject(run):
        assert [id(item) for group in run.optimizer.param_groups for item in group["params"]] == [
            id(run.model[0].weight)
        ]


def test_too_much_weight_decay_shrinks_the_weights(make_run: MAKE) -> None:
    run, calm = trained(make_run("tiny-llama"), 2), trained(make_run("tiny-llama"), 2)
    norms = [sum(float(item.detach().norm()) for item in each.model.parameters()) for each in (run, calm)]
    assert norms[0] == norms[1]
    with make_fault("WEIGHT_DECAY_TOO_LARGE", "high").inject(run):
        trained(run, 10)
    shrunk, kept = (
        sum(float(item.detach().norm()) for item in each.model.parameters()) for each in (run, trained(calm, 10))
    )
    assert shrunk < 0.8 * kept
    assert run.optimizer.param_groups[0]["weight_decay"] == 0.01


@pytest.mark.parametrize(
    ("model", "key", "value"), [("tiny-llama", "betas", (0.999, 0.999)), ("classifier", "momentum", 0.999)]
)
def test_momentum_or_the_first_beta_is_wrong(make_run: MAKE, model: str, key: str, value: object) -> None:
    run = trained(make_run(model), 2)
    (group,), before = run.optimizer.param_groups, run.optimizer.param_groups[0][key]
    with make_fault("MOMENTUM_WRONG", "high").inject(run):
        assert group[key] == value
    assert group[key] == before


@pytest.mark.parametrize(
    ("name", "optimizer", "missing"),
    [
        ("MOMENTUM_WRONG", torch.optim.Adagrad, "momentum"),
        ("WEIGHT_DECAY_TOO_LARGE", torch.optim.Rprop, "weight decay"),
    ],
)
def test_an_optimizer_without_the_setting_is_the_users_error(
    make_run: MAKE, name: str, optimizer: type[torch.optim.Optimizer], missing: str
) -> None:
    run = make_run("classifier")
    run.optimizer = optimizer(run.model.parameters())  # type: ignore[call-arg]
    with pytest.raises(UserError, match=f"needs an optimizer with {missing}"), make_fault(name).inject(run):
        pass
