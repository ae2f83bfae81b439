"""Tests of studies.sdc.localise and localise: the place of real flips, and of none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmetric.live.run import LiveRun
from studies.sdc.campaign import Campaign, fresh_run
from studies.sdc.localise import Diagnosis, gather_evidence, localise, score_diagnosis
from studies.sdc.plan import Injection, Settings
from studies.sdc.products import Product, products_of

SETTINGS = Settings(rows=3, length=16, workers=3)
SIGN = 31


@pytest.fixture(scope="module")
def worker() -> tuple[LiveRun, tuple[Product, ...], Campaign]:
    run = fresh_run(SETTINGS)
    products = products_of(run)
    for _ in range(4):
        run.train_step()
    return run, products, Campaign.drawn(SETTINGS, seed=1, injections=18, onsets=(5,))


@pytest.mark.slow
def test_worker_layer_and_tensor_of_flipped_signs_are_found(
    worker: tuple[LiveRun, tuple[Product, ...], Campaign],
) -> None:
    run, products, campaign = worker
    state, visible = run.state_dict(), 0
    for injection in (replace(item, bit=SIGN) for item in campaign.injections):
        evidence = gather_evidence(run, injection)
        run.load_state_dict(state)
        score = score_diagnosis(localise(evidence, products), injection)
        assert evidence.injected.memory == evidence.recomputed.memory
        if score.visible:  # not the sign of a zero: a masked score, the gradient of a token that is not in the batch
            visible += 1
            assert score.worker is (None if injection.stage == "memory" else True), injection
            assert score.tensor, injection
            assert score.named <= 3
    assert visible >= len(campaign.injections) * 3 // 4


def test_equal_computations_have_nothing_to_be_seen(worker: tuple[LiveRun, tuple[Product, ...], Campaign]) -> None:
    run, products, campaign = worker
    later = replace(campaign.injections[0], step=900)
    state = run.state_dict()
    evidence = gather_evidence(run, later)
    run.load_state_dict(state)
    assert evidence.injected.outputs == evidence.recomputed.outputs
    assert len(evidence.injected.outputs) > 60
    assert len(evidence.injected.contributions) == 3 * len(evidence.injected.gradients)
    assert localise(evidence, products) == Diagnosis(None)
    assert not score_diagnosis(Diagnosis(None), later).visible


def test_a_wrong_diagnosis_is_marked_wrong() -> None:
    truth = Injection(
        step=5, stage="payload", target="payload", kernel="mlp", tensor="model.layers.1.mlp.up_proj.weight", layer=1,
        worker=2,
    )  # fmt: skip
    wrong = score_diagnosis(Diagnosis("backward", (1,), ("model.layers.0.mlp.up_proj.weight",)), truth)
    assert (wrong.worker, wrong.layer, wrong.tensor, wrong.named) == (False, False, False, 1)
    right = score_diagnosis(Diagnosis("backward", (2,), (truth.tensor, "model.layers.1.x")), truth)
    assert (right.worker, right.layer, right.tensor, right.named) == (True, True, True, 2)
