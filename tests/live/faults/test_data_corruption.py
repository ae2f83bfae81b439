from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rmetric.errors import UserError
from rmetric.faults import Fault, make_fault
from rmetric.live.run import Batch, LiveRun
from tests.live.faults.common import Notes, same_bits, trained

ROWS, LENGTH = 4, 16
ALL_DIFFERENT = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH)


def _corrupted(run: LiveRun, fault: Fault, steps: int = 1, labels: Tensor = ALL_DIFFERENT) -> list[Batch]:
    """What the fault makes of a batch in which every token is another one, in each of some steps."""
    seen: list[Batch] = []

    def keep(batch: Batch) -> Batch:
        seen.append(batch)
        return batch

    with run.at("batch", lambda batch: Batch(ALL_DIFFERENT, labels)), fault.inject(run), run.at("batch", keep):
        trained(run, steps)
    return seen


@pytest.mark.parametrize(
    ("share", "count"), [(0.0, 0), (0.02, 2), (0.05, 3), (0.10, 6), (0.5, 32), (1.0, 64), (0.001, 2)]
)
def test_exactly_that_share_of_the_tokens_changes_places(
    make_run: Callable[..., LiveRun], share: float, count: int
) -> None:
    (batch,) = _corrupted(make_run(), make_fault("DATA_CORRUPTION", token_share=share))
    assert int((batch.input_ids != ALL_DIFFERENT).sum()) == count
    assert torch.equal(batch.input_ids.flatten().sort().values, ALL_DIFFERENT.flatten())
    assert torch.equal(batch.labels, batch.input_ids)  # the text is garbled, and it is what has to be predicted


def test_of_labels_the_text_stays_as_it_is(make_run: Callable[..., LiveRun]) -> None:
    (batch,) = _corrupted(make_run(), make_fault("DATA_CORRUPTION", "high", what="labels"))
    assert torch.equal(batch.input_ids, ALL_DIFFERENT)
    assert int((batch.labels != ALL_DIFFERENT).sum()) == 6
    assert torch.equal(batch.labels.flatten().sort().values, ALL_DIFFERENT.flatten())


@pytest.mark.parametrize("what", ["tokens", "labels"])
def test_positions_that_do_not_count_are_left_alone(make_run: Callable[..., LiveRun], what: str) -> None:
    masked = ALL_DIFFERENT.clone()
    masked[:, 12:] = -100
    (batch,) = _corrupted(make_run(), make_fault("DATA_CORRUPTION", token_share=0.5, what=what), labels=masked)
    assert torch.equal(batch.input_ids[:, 12:], ALL_DIFFERENT[:, 12:])
    assert (batch.labels[:, 12:] == -100).all()
    assert int((batch.labels != masked).sum()) == 24


def test_other_positions_are_hit_in_every_step_and_with_every_seed(make_run: Callable[..., LiveRun]) -> None:
    fault = make_fault("DATA_CORRUPTION", "high")
    first, second = _corrupted(make_run(), fault, steps=2)
    (again,) = _corrupted(make_run(), fault)
    (other,) = _corrupted(make_run(seed=1), fault)
    assert torch.equal(first.input_ids, again.input_ids)
    assert not torch.equal(first.input_ids, second.input_ids)
    assert not torch.equal(first.input_ids, other.input_ids)


def test_the_onset_is_noted_once(make_run: Callable[..., LiveRun]) -> None:
    run = trained(make_run(), 2)
    notes = Notes(run)
    with make_fault("DATA_CORRUPTION", "high", what="labels").inject(run):
        trained(run, 3)
    assert notes.told == [
        {"event": "CORRUPTION", "step": 3, "fault": "DATA_CORRUPTION", "what": "labels", "tokens": 6, "of": 64}
    ]


def test_the_batch_itself_is_not_written_to(make_run: Callable[..., LiveRun]) -> None:
    before = ALL_DIFFERENT.clone()
    _corrupted(make_run(), make_fault("DATA_CORRUPTION", token_share=1.0))
    assert torch.equal(ALL_DIFFERENT, before)


def test_wrong_parameters_are_the_users_error() -> None:
    with pytest.raises(UserError, match=r"DATA_CORRUPTION has token_share=1.5; choose at most 1"):
        make_fault("DATA_CORRUPTION", token_share=1.5)


@pytest.mark.parametrize("what", ["tokens", "labels"])
def test_the_twin_is_untouched(make_run: Callable[..., LiveRun], twin_of: Callable[..., LiveRun], what: str) -> None:
    run = trained(make_run(), 2)
    twin = twin_of(run)
    with make_fault("DATA_CORRUPTION", "high", what=what).inject(run):
        trained(run, 3)
        trained(twin, 3)
    assert same_bits(twin.state_dict(), trained(make_run(), 5).state_dict())
    assert not same_bits(run.state_dict(), twin.state_dict())
