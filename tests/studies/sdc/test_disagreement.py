"""Tests of studies.sdc.gradients and sketch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from studies.sdc.campaign import fresh_run
from studies.sdc.gradients import TOO_FEW, GradientSketch, disagreement, watching_workers
from studies.sdc.plan import Settings
from tests.live.live import make_live_run
from tests.live.processes import run_processes
from tests.studies.sdc import scenarios


def _workers(*norms: float) -> torch.Tensor:
    """Workers of one direction and these norms."""
    direction = torch.ones(8, dtype=torch.float64) / math.sqrt(8)
    return torch.stack([torch.cat([torch.tensor([norm]), norm * direction]) for norm in norms]).double()


def test_a_worker_out_of_proportion_is_the_suspect() -> None:
    found = disagreement(_workers(1.0, 1.1, 9.0, 0.9))
    assert found.suspect == 2
    assert found.alarm
    assert found.score == pytest.approx(math.log(9.0 / 1.05))
    assert found.cosine == pytest.approx(np.ones(4))


def test_agreement_is_no_alarm() -> None:
    assert not disagreement(_workers(1.0, 1.1, 0.9)).alarm


def test_a_turned_gradient_shows_in_the_cosine_alone() -> None:
    taken = _workers(1.0, 1.0, 1.0, 1.0)
    taken[3, 1:] *= -1
    found = disagreement(taken)
    assert found.ratio == pytest.approx(np.ones(4))
    assert found.cosine[3] == pytest.approx(-1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_an_alarm(value: float) -> None:
    found = disagreement(_workers(1.0, value, 1.0))
    assert found.suspect == 1
    assert found.score == math.inf
    assert math.isnan(found.cosine[1])


def test_of_several_gradients_that_are_not_finite_no_sound_one_is_accused() -> None:
    found = disagreement(_workers(math.nan, 2.0, math.inf))
    assert found.ratio.tolist() == [math.inf, 1.0, math.inf]
    assert found.suspect == 0
    assert disagreement(_workers(math.nan, math.nan, math.nan)).score == math.inf


def test_a_dead_worker_is_an_alarm_and_all_dead_are_none() -> None:
    assert disagreement(_workers(1.0, 0.0, 1.0)).suspect == 1
    assert disagreement(_workers(1.0, 0.0, 1.0)).score == math.inf
    assert disagreement(_workers(0.0, 0.0, 0.0)).score == 0.0


def test_two_workers_have_no_median() -> None:
    found = disagreement(_workers(1.0, 9.0))
    assert found.reason == TOO_FEW
    assert math.isnan(found.score)
    assert found.suspect is None
    assert not found.alarm


def test_a_sketch_keeps_the_norm_and_the_angle() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(300, 70)
    with GradientSketch(model) as sketch:
        taken, whole = [], []
        for _ in range(2):
            model.zero_grad()
            model(torch.randn(4, 300)).square().sum().backward()
            taken.append(sketch.take())
            whole.append(torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]).double())
    assert taken[0][0] == pytest.approx(float(whole[0].norm()))
    true = torch.cosine_similarity(whole[0], whole[1], dim=0)
    assert torch.cosine_similarity(taken[0][1:], taken[1][1:], dim=0) == pytest.approx(float(true), abs=0.15)
    assert all(not parameter._backward_hooks for parameter in model.parameters())


def test_the_workers_of_a_live_run_are_watched_and_the_run_is_unchanged() -> None:
    settings = Settings(rows=3, length=16, workers=3)
    alone, run = fresh_run(settings), fresh_run(settings)
    with watching_workers(run) as watch:
        for _ in range(2):
            assert torch.equal(run.train_step(), alone.train_step())
        assert watch.workers == (0, 1, 2)
        assert not watch.last.reason
        assert 0.0 <= watch.last.score < math.log(3.0)
    assert all(not parameter._backward_hooks for parameter in run.model.parameters())


def test_one_worker_has_nobody_to_disagree_with() -> None:
    run = make_live_run()
    with watching_workers(run) as watch:
        run.train_step()
    assert watch.last.reason == TOO_FEW


@pytest.mark.slow
def test_processes_find_the_one_whose_payload_was_changed(tmp_path: Path) -> None:
    ended = run_processes(scenarios.__name__, "payload", tmp_path, processes=3)
    assert [process.errors for process in ended if process.code] == []
    assert [process.found for process in ended] == [{"before": None, "suspect": 1, "alarm": True}] * 3
