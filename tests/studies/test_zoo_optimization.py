"""Learning-rate schedules and optimizers of the zoo, and what it does to weights beside them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from studies.zoo import schedules

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from studies.zoo.kinds.lottery_rewinding import take_out  # noqa: E402
from studies.zoo.kinds.mixer_sharpness import REACH, Mixer, climbed  # noqa: E402
from studies.zoo.optimizers import Lamb, Lion, MuonAndAdamW  # noqa: E402


def test_schedules_pass_their_known_values() -> None:
    assert [schedules.cosine(place) for place in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
    assert [schedules.linear(place) for place in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]
    assert [schedules.drops(place) for place in (0.0, 0.5, 0.75)] == pytest.approx([1.0, 0.1, 0.01])
    assert [schedules.one_cycle(place) for place in (0.0, 0.3, 1.0)] == pytest.approx([0.04, 1.0, 0.0])
    assert [schedules.inverse_root(step, 100) for step in (1, 50, 100, 400)] == [0.01, 0.5, 1.0, 0.5]
    assert [schedules.stable_then_decay(place) for place in (0.0, 0.8, 0.9, 1.0)] == pytest.approx([1.0, 1.0, 0.5, 0.0])


def test_warm_restarts_begin_anew_after_one_and_three_sevenths() -> None:
    before, after = schedules.warm_restarts(1 / 7 - 1e-9), schedules.warm_restarts(1 / 7 + 1e-9)
    assert (before, after) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert schedules.warm_restarts(3 / 7 + 1e-9) == pytest.approx(1.0)
    assert schedules.warm_restarts(1.0) == pytest.approx(0.0)


def test_lion_steps_by_the_sign_of_its_momentum() -> None:
    weights = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    optimizer = Lion([weights], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
    weights.grad = torch.tensor([3.0, 0.0])
    optimizer.step()
    assert weights.tolist() == pytest.approx([0.95 - 0.1, -0.95])
    assert optimizer.state[weights]["momentum"].tolist() == pytest.approx([0.03, 0.0])
    weights.grad = torch.tensor([-0.1, 0.0])  # 0.9 * 0.03 outweighs 0.1 * 0.1
    optimizer.step()
    assert weights[0].item() == pytest.approx(0.85 * 0.95 - 0.1)


def test_muon_and_adamw_each_update_their_own_and_go_on_from_a_state() -> None:
    def stepped(optimizer: MuonAndAdamW, weights: list[Any], steps: range) -> list[Any]:
        for step in steps:
            for index, each in enumerate(weights):
                each.grad = torch.sin(torch.arange(each.numel(), dtype=torch.float32) + step + index).view_as(each)
            optimizer.step()
        return [each.detach().clone() for each in weights]

    def fresh() -> tuple[MuonAndAdamW, list[Any]]:
        weights = [torch.nn.Parameter(torch.ones(4, 3)), torch.nn.Parameter(torch.ones(5))]
        return MuonAndAdamW(weights[:1], weights[1:], lr=0.01), weights

    optimizer, weights = fresh()
    alone = torch.nn.Parameter(torch.ones(5))
    adamw = torch.optim.AdamW([alone], lr=0.01, weight_decay=0.1)
    stepped(optimizer, weights, range(3))
    for step in range(3):
        alone.grad = torch.sin(torch.arange(5.0) + step + 1)
        adamw.step()
    assert torch.equal(weights[1], alone)
    other, copies = fresh()
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for mine, theirs in zip(copies, weights, strict=True):
        mine.data.copy_(theirs.data)
    ends = [stepped(each, of, range(3, 6)) for each, of in ((optimizer, weights), (other, copies))]
    assert all(torch.equal(one, two) for one, two in zip(*ends, strict=True))
    assert not torch.equal(ends[0][0], torch.ones(4, 3))


def test_a_step_of_lamb_is_as_long_as_the_tensor_times_the_rate() -> None:
    weights = nn.Parameter(torch.tensor([3.0, 4.0]))
    weights.grad = torch.tensor([0.1, -2.0])
    Lamb([weights], lr=0.01).step()
    assert float((weights.detach() - torch.tensor([3.0, 4.0])).norm()) == pytest.approx(0.05, rel=1e-4)


def test_the_weights_uphill_are_as_far_as_they_are_to_be_and_have_a_larger_loss() -> None:
    torch.manual_seed(0)
    model, images = Mixer(), torch.rand(16, 1, 8, 8)
    loss = model(images).square().mean()
    uphill = climbed(model, loss)
    moved = [(uphill[name] - weight).detach() for name, weight in model.named_parameters()]
    assert float(torch.stack([each.norm() for each in moved]).norm()) == pytest.approx(REACH, rel=1e-3)
    assert bool(torch.func.functional_call(model, uphill, (images,)).square().mean() > loss)


def test_of_the_weights_that_are_left_the_smaller_half_goes_each_time() -> None:
    torch.manual_seed(0)
    layer = prune.identity(nn.Linear(16, 8), "weight")
    size = layer.weight_orig.detach().abs()
    for left in (64, 32):
        take_out(layer, 0.5)
        kept = layer.weight_mask > 0.0
        assert int(kept.sum()) == left
        assert float(size[kept].min()) > float(size[~kept].max())
