"""Every policy gives back all that it has hung on the model: the tables of hooks and the outputs are what they were."""

from __future__ import annotations

import copy
import io

import pytest
import torch

from rmetric.faults import make_fault
from rmetric.monitor.repair import (
    ClipGradients,
    LowerLearningRate,
    Policy,
    QkNormalisation,
    RecomputeStep,
    ResetRouterBias,
    RestoreState,
    SkipUpdate,
    SmoothSingularValues,
)
from rmetric.monitor.repair.policy import InterventionRule
from tests.live.live import make_live_run, train, watched
from tests.monitor.common import Scheduled, batch_of
from tests.monitor.repair.common import Toy, equal, hooks_of


def policies() -> list[Policy]:
    """All of them, each at work as soon as a detector alerts."""
    return [
        RestoreState(),
        RecomputeStep(),
        ClipGradients(),
        *(
            kind(when=InterventionRule(on=("scheduled",)))
            for kind in (LowerLearningRate, SmoothSingularValues, QkNormalisation, ResetRouterBias)
        ),
        SkipUpdate(),
    ]


@pytest.mark.parametrize("kind", [*(type(policy).__name__ for policy in policies()), "all"])
def test_the_model_is_as_it_was_before(kind: str) -> None:
    chosen = [policy for policy in policies() if kind in ("all", type(policy).__name__)]
    run = make_live_run("tiny-moe", rows=2, length=8)
    train(run, 1)
    before = hooks_of(run.model, run.optimizer)
    monitor = watched(run, detectors=(Scheduled({1}),), policy=chosen)
    assert hooks_of(run.model, run.optimizer) != before
    with monitor:
        train(run, 1)
        with make_fault("SILENT_DATA_CORRUPTION", "high", target="gradient").inject(run):
            train(run, 2)
        assert monitor.enabled
    assert hooks_of(run.model, run.optimizer) == before
    twin = make_live_run("tiny-moe", rows=2, length=8)
    twin.model.load_state_dict(run.model.state_dict())
    ids = batch_of(run).input_ids
    run.model.eval()
    twin.model.eval()
    with torch.no_grad():
        assert torch.equal(run.model(input_ids=ids).logits, twin.model(input_ids=ids).logits)


def test_a_copy_and_a_file_of_the_model_have_no_hook_that_does_anything() -> None:
    toy = Toy()
    with toy.watch(policy=RecomputeStep()) as monitor:
        file = io.BytesIO()
        torch.save(toy.model, file)
        loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        for other in (copy.deepcopy(toy.model), loaded):
            other(torch.randn(4, 6))
        toy.train(4, monitor)
        assert monitor.repairs == []
    assert b"StepStart" not in file.getvalue()
    twin = Toy()
    twin.train(4)
    assert equal(toy.bits(), twin.bits())
