"""What the second set of bugs does to batches, losses, gradients and weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rmetric.faults import make_fault
from tests.live.faults.common import MAKE, batches_with, right_and_wrong, trained


def test_a_few_batches_come_in_turn(make_run: MAKE) -> None:
    run = make_run("classifier")
    served = batches_with(run, "FEW_BATCHES", 7, batches=3)
    assert [next(i for i, other in enumerate(served) if other is batch) for batch in served] == [0, 1, 2, 0, 1, 2, 0]


def test_the_inputs_of_some_batches_are_0(make_run: MAKE) -> None:
    zeros = [not batch.inputs.any() for batch in batches_with(make_run("classifier"), "INPUTS_ZEROED", 40)]
    assert 20 <= sum(zeros) <= 36
    assert all(not batch.inputs.any() for batch in batches_with(make_run("classifier"), "INPUTS_ZEROED", 4, share=1.0))


def test_a_feature_holds_the_target_and_the_others_stay(make_run: MAKE) -> None:
    usual, leaking = right_and_wrong(make_run, "classifier", "TARGET_LEAKS")
    assert leaking.inputs[:, 0].tolist() == pytest.approx((usual.labels / usual.labels.max()).tolist())
    assert torch.equal(leaking.inputs[:, 1:], usual.inputs[:, 1:])


def test_classes_beyond_the_range_begin_again_at_0(make_run: MAKE) -> None:
    usual, wrapped = right_and_wrong(make_run, "classifier", "LABELS_WRAPPED")
    assert wrapped.labels.tolist() == (usual.labels % 2).tolist() != usual.labels.tolist()


def test_each_token_has_the_number_of_another(make_run: MAKE) -> None:
    usual, other = right_and_wrong(make_run, "tiny-llama", "TOKENIZER_MISMATCH")
    pairs = {*zip(usual.input_ids.flatten().tolist(), other.input_ids.flatten().tolist(), strict=True)}
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
    assert any(old != new for old, new in pairs)


@pytest.mark.parametrize(
    ("fault", "parameters"), [("LOSS_SUMMED", {"terms": 8}), ("GRADIENTS_SCALED", {"factor": 8.0})]
)
def test_gradients_are_eight_times_as_large(make_run: MAKE, fault: str, parameters: dict[str, Any]) -> None:
    def gradients(run: Any) -> Tensor:
        seen: list[Tensor] = []
        with run.at(
            "gradients", lambda: seen.append(torch.cat([item.grad.flatten() for item in run.model.parameters()]))
        ):
            trained(run, 1)
        return seen[0]

    run = make_run("classifier")
    with make_fault(fault, **parameters).inject(run):
        assert torch.allclose(gradients(run), 8.0 * gradients(make_run("classifier")), rtol=1e-5)


def test_the_schedule_begins_again(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 9)
    with make_fault("SCHEDULE_RESTARTED").inject(run):
        trained(run, 1)
        assert run.optimizer.param_groups[0]["lr"] == run.rate_at(1) != run.rate_at(10)


def test_the_average_takes_the_weights_place(make_run: MAKE) -> None:
    def moved(run: Any, steps: int) -> float:
        before = [item.detach().clone() for item in run.model.parameters()]
        trained(run, steps)
        return max(
            float((item.detach() - old).abs().max()) for item, old in zip(run.model.parameters(), before, strict=True)
        )

    run, calm = trained(make_run("classifier"), 4), trained(make_run("classifier"), 4)
    with make_fault("AVERAGE_NOT_TAKEN_OUT", every=1, decay=0.99).inject(run):
        assert 0.0 < moved(run, 5) < 0.05 * moved(calm, 5)


def test_an_eighth_of_the_embedding_is_noise(make_run: MAKE) -> None:
    run = make_run("tiny-llama")
    table = run.model.get_input_embeddings().weight
    before = table.detach().clone()
    with make_fault("EMBEDDING_CORRUPTED").inject(run):
        changed = (table != before).any(dim=1)
    assert int(changed.sum()) == len(table) // 8
    assert float(table.detach()[changed].std() / before.std()) == pytest.approx(20.0, rel=0.1)


def test_dropout_leaves_out_nearly_everything(make_run: MAKE) -> None:
    run = make_run("classifier")
    with make_fault("DROPOUT_TOO_HIGH").inject(run):
        assert run.model[3].p == 0.95
    assert run.model[3].p == 0.2


@pytest.mark.parametrize(
    ("fault", "setting"),
    [
        ("FEW_BATCHES", {"batches": 0}), ("INPUTS_ZEROED", {"share": 0.0}), ("LABELS_WRAPPED", {"share": 2.0}),
        ("LOSS_SUMMED", {"terms": 1}), ("GRADIENTS_SCALED", {"factor": 1.0}), ("DROPOUT_TOO_HIGH", {"rate": 1.0}),
        ("AVERAGE_NOT_TAKEN_OUT", {"every": 0}), ("EMBEDDING_CORRUPTED", {"share": 0.0}),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_the_users_error(fault: str, setting: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=fault):
        make_fault(fault, **setting)
