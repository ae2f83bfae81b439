"""What bugs of the weights do to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from rmetric.errors import UserError
from rmetric.faults import make_fault
from tests.live.faults.bugs import scenarios
from tests.live.faults.classifier import ClassifierRun
from tests.live.faults.common import MAKE, Notes, same_bits, trained
from tests.live.processes import process_group, run_processes


def _copies(run: Any) -> dict[str, torch.Tensor]:
    return {name: item.detach().clone() for name, item in run.model.named_parameters()}


def test_some_layers_begin_anew_and_the_others_stay(make_run: MAKE) -> None:
    run = trained(make_run("classifier"), 3)
    before, state = _copies(run), torch.get_rng_state()
    notes = Notes(run)
    with make_fault("LAYER_REINITIALISED", share=0.5).inject(run):
        pass
    (note,) = notes.told
    changed = {
        name.rsplit(".", 1)[0] for name, item in run.model.named_parameters() if not same_bits(item, before[name])
    }
    assert changed == {*note["modules"]}
    assert len(changed) == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_noise_of_the_size_that_was_asked_for_is_added_in_each_step(make_run: MAKE) -> None:
    run = trained(make_run("tiny-llama", learning_rate=0.0), 1)
    before = _copies(run)
    with make_fault("WEIGHTS_ROT", noise=0.01).inject(run):
        trained(run, 4)
    for name, item in run.model.named_parameters():
        if item.numel() > 1000:
            change, size = (item.detach() - before[name]).std(), before[name].square().mean().sqrt()
            assert float(change / size) == pytest.approx(0.02, rel=0.1), name  # four steps, independent


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_weights_are_rounded_after_each_update(make_run: MAKE, precision: str) -> None:
    run, calm = trained(make_run("classifier"), 2), trained(make_run("classifier"), 2)
    with make_fault("BF16_WEIGHTS", precision=precision).inject(run):
        trained(run, 1)
    coarse = getattr(torch, precision)
    for item, exact in zip(run.model.parameters(), trained(calm, 1).model.parameters(), strict=True):
        assert torch.equal(item, exact.to(coarse).float())


def test_weights_that_are_short_already_are_the_users_error(make_run: MAKE) -> None:
    run = make_run("classifier")
    run.model.bfloat16()
    with pytest.raises(UserError, match="16 bits or fewer already"), make_fault("BF16_WEIGHTS").inject(run):
        pass


def test_gradients_are_those_of_old_weights_and_updates_go_to_the_true_ones(make_run: MAKE) -> None:
    run, old = trained(make_run("tiny-llama"), 2), trained(make_run("tiny-llama"), 2)
    with make_fault("STALE_WEIGHTS").inject(run):
        trained(run, 2)
        notes, true = Notes(run), _copies(run)
        trained(run, 1)
    old.step = 4
    expected = Notes(old)
    trained(old, 1)
    assert same_bits(notes.gradients, expected.gradients)
    assert not any(same_bits(item, true[name]) for name, item in run.model.named_parameters())


def test_old_weights_are_made_anew_now_and_then(make_run: MAKE) -> None:
    run, calm = trained(make_run("tiny-llama"), 2), trained(make_run("tiny-llama"), 2)
    equal = []
    with make_fault("STALE_WEIGHTS", refresh_every=2).inject(run):
        for _ in range(4):
            calm.load_state_dict(run.state_dict())
            mine, right = Notes(run), Notes(calm)
            trained(run, 1)
            trained(calm, 1)
            equal.append(same_bits(mine.gradients, right.gradients))
    assert equal == [True, False, True, False]


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    with process_group(tmp_path, rank=0, processes=1):
        yield


@pytest.mark.usefixtures("alone")
def test_gradients_are_not_averaged_as_long_as_the_bug_lasts() -> None:
    run = ClassifierRun(workers=1)
    run.model = DistributedDataParallel(run.model)
    with make_fault("WORKERS_DRIFT").inject(run):
        assert not run.model.require_backward_grad_sync
        trained(run, 1)
    assert run.model.require_backward_grad_sync
    trained(run, 1)


@pytest.mark.parametrize("name", ["HALF_FROZEN", "DETACHED_PART"])
@pytest.mark.usefixtures("alone")
def test_what_would_leave_processes_waiting_is_the_users_error(name: str) -> None:
    run = ClassifierRun(workers=1)
    run.model = DistributedDataParallel(run.model)
    with pytest.raises(UserError, match="for models in one process"), make_fault(name).inject(run):
        pass


def test_one_process_has_nobody_to_drift_from(make_run: MAKE) -> None:
    with (
        pytest.raises(UserError, match="several processes"),
        make_fault("WORKERS_DRIFT").inject(make_run("classifier")),
    ):
        pass


@pytest.mark.long
def test_replicas_drift_apart(tmp_path: Path) -> None:
    for ended in run_processes(scenarios.__name__, "drift", tmp_path):
        assert ended.code == 0, ended.errors
        before, after = ended.found
        assert before == 0.0
        assert after > 1e-3
