"""Singular values that are smoothed: the top alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import SmoothSingularValues
from rmetric.monitor.repair.smooth_singular_values import smooth_
from tests.live.live import make_live_run, train, watched
from tests.monitor.common import Scheduled
from tests.monitor.repair.common import at_once


def test_only_the_top_of_the_spectrum_is_smoothed() -> None:
    torch.manual_seed(0)
    left, right = torch.linalg.qr(torch.randn(12, 8))[0], torch.linalg.qr(torch.randn(8, 8))[0]
    values = torch.tensor([40.0, 6.0, 1.0, 1.0, 0.9, 0.8, 0.5, 0.1])
    weight = (left * values) @ right
    limit = 1.2 * float(values.square().mean().sqrt())
    before, after = smooth_(weight, times=1.2)  # type: ignore[misc]
    found = torch.linalg.svdvals(weight)
    assert before == pytest.approx(40.0, rel=1e-4)
    assert after == pytest.approx(limit * (1 + math.log(40.0 / limit)), rel=1e-4)
    assert found[0] == pytest.approx(after, rel=1e-4)
    assert found[1:].tolist() == pytest.approx(values[1:].tolist(), rel=1e-3)


def test_a_flat_or_broken_matrix_is_left_alone() -> None:
    flat, broken = torch.eye(4), torch.full((3, 3), torch.nan)
    assert smooth_(flat, times=3.0) is None
    assert smooth_(broken, times=3.0) is None
    assert torch.equal(flat, torch.eye(4))


def test_experts_are_smoothed_one_by_one() -> None:
    experts = torch.stack([torch.diag(torch.tensor([9.0, 1.0, 1.0, 1.0])), torch.eye(4)])
    smooth_(experts, times=1.0)
    assert float(experts[0, 0, 0]) < 9.0
    assert torch.allclose(experts[1], torch.eye(4), atol=1e-6)


class Mixture(nn.Module):
    """Experts of its own form, behind a position embedding and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, 2, 3))
        self.convolution = nn.Conv1d(1, 3, 2)
        self.experts = nn.Parameter(torch.randn(4, 3, 3))

    def forward(self, data: Tensor) -> Tensor:
        return (self.convolution(data).mT + self.position) @ self.experts.mean(dim=0)


def test_kernels_and_embeddings_are_no_matrices_and_experts_of_any_form_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Mixture(), nn.Flatten(), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = SmoothSingularValues(times=0.1, when=at_once())
    monitor = TrainingMonitor(model, optimizer, detectors=(Scheduled({1}),), policy=policy, announce=False)
    with monitor:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 1, 3)).square().mean()
            loss.backward()
            monitor.step(loss)
            optimizer.step()
        [repair] = monitor.repairs
    assert [*repair.details["spectral_norms"]] == ["0.experts", "2.weight"]


def test_matrices_of_the_layers_are_smoothed_after_the_update() -> None:
    run = make_live_run("tiny-moe")
    with watched(run, detectors=(Scheduled({1}),), policy=SmoothSingularValues(times=1.1, when=at_once())) as monitor:
        train(run, 1)
        embedding = run.model.get_input_embeddings().weight.detach().clone()
        losses = train(run, 3)
        [repair] = monitor.repairs
    changed = repair.details["spectral_norms"]
    assert any("experts" in name for name in changed)
    assert not any(name.startswith(("lm_head", "model.embed")) for name in changed)
    assert all(after < before for before, after in changed.values())
    assert embedding.shape == run.model.get_input_embeddings().weight.shape
    assert all(map(math.isfinite, losses))
