"""What bugs of the data do to batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.faults import make_fault
from tests.live.faults.common import MAKE, batches_with, right_and_wrong, same_bits, trained


def test_an_example_is_nan_and_so_is_the_loss(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 2)
    (batch,) = batches_with(run, "NAN_BATCH")
    assert batch.inputs.isnan().any(dim=1).tolist() == [True] + 7 * [False]
    assert run.non_finite_step == 3
    assert run.model[1].running_mean.isnan().any()


def test_where_inputs_are_tokens_the_loss_is_nan(make_run: MAKE) -> None:
    run = trained(make_run("tiny-llama"), 2)
    with make_fault("NAN_BATCH").inject(run):
        assert math.isnan(run.train_step())
    assert make_fault("NAN_BATCH").duration_steps == 1


def test_the_same_batch_comes_again(make_run: MAKE) -> None:
    first, *others = batches_with(make_run("classifier"), "SAME_BATCH_FOR_EVER", steps=4)
    assert all(batch is first for batch in others)


@pytest.mark.parametrize(("workers", "distinct"), [(2, 4), (4, 2), (16, 1)])
def test_workers_with_one_seed_return_the_same_examples(make_run: MAKE, workers: int, distinct: int) -> None:
    right, batch = right_and_wrong(make_run, "classifier", "WORKERS_SHARE_SEED", workers=workers)
    assert batch.inputs.shape == right.inputs.shape
    for row in range(8):
        assert torch.equal(batch.inputs[row], right.inputs[row % distinct])
        assert batch.labels[row] == right.labels[row % distinct]


def test_rows_that_cannot_be_shared_out_equally_are_repeated_too(make_run: MAKE) -> None:
    (batch,) = batches_with(make_run("tiny-llama", rows=6), "WORKERS_SHARE_SEED", workers=4)
    assert batch.input_ids.shape == (6, 16)
    assert len(batch.input_ids.unique(dim=0)) == 1


def test_inputs_are_at_the_wrong_scale_and_labels_right(make_run: MAKE) -> None:
    right, batch = right_and_wrong(make_run, "classifier", "WRONG_NORMALISATION")
    torch.testing.assert_close(batch.inputs, 255.0 * right.inputs)
    assert torch.equal(batch.labels, right.labels)


def test_without_shuffling_a_class_comes_after_the_other(make_run: MAKE) -> None:
    batches = batches_with(make_run("classifier"), "SHUFFLING_OFF", steps=7, steps_a_class=2)
    assert [batch.labels.unique().tolist() for batch in batches] == [[0], [0], [1], [1], [2], [2], [0]]
    examples = torch.cat([batch.inputs for batch in batches])
    assert len(examples.unique(dim=0)) == len(examples) == 7 * 8  # none of them comes twice
    for batch in batches:  # a cloud of points around the place of its class
        assert batch.inputs.mean(dim=0).argmax() == batch.labels[0]


def test_a_class_that_is_not_to_be_had_is_the_next_one(make_run: MAKE) -> None:
    run = make_run("classifier")

    def without_class_1(batch: Any) -> Any:
        batch.labels[batch.labels == 1] = 2
        return batch

    run.batch = lambda draw=run.batch: without_class_1(draw())  # type: ignore[method-assign]
    assert [batch.labels.unique().tolist() for batch in batches_with(run, "SHUFFLING_OFF", 3, steps_a_class=1)] == [
        [0],
        [2],
        [2],
    ]


def test_labels_are_those_of_the_next_class(make_run: MAKE) -> None:
    for share, moved in ((0.5, 4), (1.0, 8)):
        right, batch = right_and_wrong(make_run, "classifier", "LABEL_MAP_SHIFT", share=share)
        wrong = batch.labels != right.labels
        assert int(wrong.sum()) == moved
        assert torch.equal(batch.labels[wrong], (right.labels[wrong] + 1) % 3)
        assert torch.equal(batch.inputs, right.inputs)


def test_tokens_have_other_numbers_in_text_and_labels_alike(make_run: MAKE) -> None:
    right, batch = right_and_wrong(make_run, "tiny-llama", "LABEL_MAP_SHIFT", share=1.0)
    assert torch.equal(batch.input_ids, batch.labels)
    tokens = int(make_run("tiny-llama").held_out_batch("validation").labels.max()) + 1
    assert torch.equal(batch.input_ids, (right.input_ids + 1) % tokens)


def test_padding_keeps_its_label(make_run: MAKE) -> None:
    run = make_run("tiny-llama")

    def pad(batch: Any) -> Any:
        batch.labels[:, -3:] = -100
        return batch

    with run.at("batch", pad):
        (batch,) = batches_with(run, "LABEL_MAP_SHIFT", share=1.0)
    assert (batch.labels[:, -3:] == -100).all()
    assert (batch.labels[:, :-3] >= 0).all()


def test_labels_belong_to_the_next_example(make_run: MAKE) -> None:
    right, batch = right_and_wrong(make_run, "classifier", "LABELS_MISALIGNED", share=1.0)
    assert torch.equal(batch.labels, right.labels.roll(-1))
    assert torch.equal(batch.inputs, right.inputs)


def test_labels_of_tokens_are_shifted_once_more(make_run: MAKE) -> None:
    right, batch = right_and_wrong(make_run, "tiny-llama", "LABELS_MISALIGNED", share=0.5)
    assert torch.equal(batch.labels[:2, :-1], right.labels[:2, 1:])
    assert torch.equal(batch.labels[2:], right.labels[2:])
    assert torch.equal(batch.input_ids, right.input_ids)


def test_evaluation_has_the_right_data(make_run: MAKE) -> None:
    for name in ("WRONG_NORMALISATION", "LABEL_MAP_SHIFT", "LABELS_MISALIGNED", "SHUFFLING_OFF", "NAN_BATCH"):
        run = trained(make_run("classifier"), 2)
        before = run.held_out_loss("judge")
        with make_fault(name).inject(run):
            assert run.held_out_loss("judge") == before


@pytest.mark.parametrize(
    ("name", "message"),
    [("WRONG_NORMALISATION", "floating-point numbers"), ("SHUFFLING_OFF", "a class an example")],
)
def test_a_batch_that_lacks_what_is_needed_is_the_users_error(make_run: MAKE, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message), make_fault(name).inject(make_run("tiny-llama")):
        pass


def test_a_mean_over_padding_is_too_small_by_another_share_in_each_micro_batch(make_run: MAKE) -> None:
    run, calm, losses = make_run("classifier"), make_run("classifier"), []
    with make_fault("LOSS_OVER_PADDING", padding=0.5).inject(run):
        for _ in range(30):
            run.model.load_state_dict(calm.model.state_dict())
            losses.append((float(run.train_step()), float(calm.train_step())))
    shares = [small / right for small, right in losses]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert 0.35 < sum(shares) / len(shares) < 0.65
    assert max(shares) - min(shares) > 0.3
    assert not same_bits(run.model.state_dict(), calm.model.state_dict())
