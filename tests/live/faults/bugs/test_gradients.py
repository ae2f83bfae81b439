"""What bugs of the gradients do to them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.faults import make_fault
from tests.live.faults.common import MAKE, Notes, same_bits, trained


def _seen(run: Any, steps: int = 1) -> dict[str, torch.Tensor]:
    """Gradients of the last step as the monitor sees them."""
    notes = Notes(run)
    trained(run, steps)
    return notes.gradients


def test_without_zero_grad_a_step_adds_to_what_was_left_of_the_step_before(make_run: MAKE) -> None:
    run, calm = trained(make_run("classifier", clip=math.inf), 2), trained(make_run("classifier", clip=math.inf), 2)
    with make_fault("MISSING_ZERO_GRAD", "high").inject(run):
        first = _seen(run)
        assert same_bits(first, _seen(calm))
        heir = make_run("classifier", clip=math.inf).load_state_dict(run.state_dict())
        both, own = _seen(run), _seen(heir)
    for name in own:
        torch.testing.assert_close(both[name], first[name] + own[name])
    assert all(item.grad is None for item in run.model.parameters())


def test_gradients_are_cleared_all_the_same_now_and_then(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    left = []
    with make_fault("MISSING_ZERO_GRAD", clear_every=3).inject(run):
        for _ in range(5):
            trained(run, 1)
            left.append(any(item.grad is not None for item in run.model.parameters()))
    assert left == [False, True, True, False, True]  # steps 3 to 7


@pytest.mark.parametrize(("share", "flipped"), [(0.1, 1), (0.5, 4), (1.0, 8)])
def test_the_sign_of_a_share_of_the_tensors_is_wrong(make_run: MAKE, share: float, flipped: int) -> None:
    run, calm = trained(make_run("classifier"), 2), trained(make_run("classifier"), 2)
    with make_fault("GRADIENT_SIGN", share=share).inject(run):
        wrong, right = _seen(run), _seen(calm)
    assert sum(same_bits(wrong[name], -right[name]) and bool(right[name].any()) for name in right) == flipped
    assert sum(same_bits(wrong[name], right[name]) for name in right) == len(right) - flipped


def test_stale_gradients_are_those_of_the_step_before(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    with make_fault("STALE_GRADIENTS", share=1.0).inject(run):
        first = _seen(run)
        assert same_bits(_seen(run), first)
    assert not same_bits(_seen(run), first)


def test_stale_gradients_come_in_about_the_share_of_the_steps(make_run: MAKE) -> None:
    run, before, stale = make_run("classifier"), {}, 0
    with make_fault("STALE_GRADIENTS", share=0.2).inject(run):
        for _ in range(100):
            now = _seen(run)
            stale, before = stale + same_bits(now, before), now
    assert 8 <= stale <= 35


def test_what_is_accumulated_is_a_sum(make_run: MAKE) -> None:
    run, calm = trained(make_run("classifier"), 2), trained(make_run("classifier"), 2)
    with make_fault("ACCUMULATION_NOT_DIVIDED", micro_batches=16).inject(run):
        large, right = _seen(run), _seen(calm)
    for name in right:
        torch.testing.assert_close(large[name], 16.0 * right[name])


def _norm_of_update(run: Any) -> float:
    """Norm of what an SGD without momentum changes in a step, over the learning rate."""
    run.optimizer.param_groups[0].update(momentum=0.0, weight_decay=0.0)
    before = [item.detach().clone() for item in run.model.parameters()]
    trained(run, 1)
    changes = [(item.detach() - old).norm() for item, old in zip(run.model.parameters(), before, strict=True)]
    return float(torch.stack(changes).norm()) / run.optimizer.param_groups[0]["lr"]


def test_clipping_too_low_and_not_at_all(make_run: MAKE) -> None:
    norms = {}
    for name, severity in (("GRADIENT_CLIPPED_TOO_LOW", "medium"), ("NO_CLIPPING", "medium")):
        with make_fault(name, severity).inject(run := trained(make_run("classifier"), 2)):
            norms[name] = _norm_of_update(run)
    assert norms["GRADIENT_CLIPPED_TOO_LOW"] == pytest.approx(1e-3, rel=1e-2)
    assert norms["NO_CLIPPING"] > 0.2
    assert _norm_of_update(trained(make_run("classifier"), 2)) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(("name", "clip"), [("NO_CLIPPING", math.inf), ("GRADIENT_CLIPPED_TOO_LOW", 1e-4)])
def test_where_clipping_cannot_be_changed_so_is_the_users_error(make_run: MAKE, name: str, clip: float) -> None:
    with pytest.raises(UserError, match=f"{name} changes nothing"), make_fault(name).inject(make_run(clip=clip)):
        pass
