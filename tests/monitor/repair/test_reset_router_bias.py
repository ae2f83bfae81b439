"""Routers that prefer no expert any more, and still tell tokens apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.monitor.repair import ResetRouterBias
from rmetric.monitor.repair.reset_router_bias import reset_
from rmetric.network.structure import expert_blocks
from tests.live.live import make_live_run, train, watched
from tests.monitor.common import Scheduled
from tests.monitor.repair.common import at_once


def test_a_reset_router_prefers_no_expert_but_tells_tokens_apart() -> None:
    torch.manual_seed(0)
    router = nn.Linear(16, 4, bias=True)
    inputs = torch.randn(400, 16) + 3.0
    with torch.no_grad():
        router.weight[2] += 2.0
        router.bias[1] = 5.0
    weight = router.weight.detach().clone()
    spread = reset_(router, inputs.mean(0))
    after = router(inputs).detach()
    assert spread > 1.0
    assert float(after.mean(0).max() - after.mean(0).min()) < 1e-4
    centred = inputs - inputs.mean(0)
    across = centred - torch.outer(centred @ inputs.mean(0), inputs.mean(0)) / inputs.mean(0).square().sum()
    assert torch.allclose(across @ router.weight.detach().T, across @ weight.T, atol=1e-3)


def test_the_spread_that_is_told_has_the_routers_own_bias_in_it() -> None:
    router = nn.Linear(4, 3)
    nn.init.zeros_(router.weight)
    router.bias.data.copy_(torch.tensor([10.0, 0.0, 2.0]))
    assert reset_(router, torch.ones(4)) == 10.0
    assert router.bias.tolist() == [0.0, 0.0, 0.0]


def test_routers_are_reset_after_the_step_that_follows_the_intervention() -> None:
    run = make_live_run("tiny-moe")
    with watched(run, detectors=(Scheduled({1}),), policy=ResetRouterBias(when=at_once())) as monitor:
        train(run, 1)
        train(run, 1)
        assert monitor.repairs == []
        assert all(block.router._forward_pre_hooks for block in expert_blocks(run.model))
        train(run, 1)
        assert not any(block.router._forward_pre_hooks for block in expert_blocks(run.model))
        [repair] = monitor.repairs
    assert set(repair.details["bias_spread"]) == {block.name for block in expert_blocks(run.model)}
    assert all(spread > 0 for spread in repair.details["bias_spread"].values())


def test_a_dense_model_is_refused() -> None:
    with pytest.raises(UserError, match="policy ResetRouterBias needs a mixture-of-experts model"):
        watched(make_live_run(), policy=ResetRouterBias())
