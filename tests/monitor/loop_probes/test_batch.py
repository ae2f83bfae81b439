"""What the probe of batches sees of the arguments of a model, and of several passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import warn_if_has_hooks

from rmetric.monitor.loop_invariants import TENSORS_REPEATED
from rmetric.monitor.loop_probes import BatchProbe


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model(3, None),
        lambda model: model({"a": [torch.ones(0), torch.eye(3).to_sparse()]}, None),
        lambda model: model(torch.ones(2, 2, dtype=torch.complex64), None),
    ],
)
def test_what_is_no_plain_tensor_is_not_looked_at(call: Callable[[nn.Module], None]) -> None:
    class Takes(nn.Module):
        def forward(self, *_: Any) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    call(model)
    assert probe.measure() == {} and not probe.closed


def test_tensors_are_found_wherever_they_are_in_the_arguments() -> None:
    class Takes(nn.Module):
        def forward(self, *_: Any, **__: Any) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    scales = []
    for batch in (torch.full((4, 2), 3.0), torch.full((4, 2), 3.0), torch.full((3, 2), 3.0)):
        model(7, {"mask": torch.ones(4, dtype=torch.bool)}, inputs=[batch])
        measured = probe.measure()
        scales.append((measured["input_scale"], measured["batch_repeated"]))
        assert float(measured["input_mean"]) == 3.0  # type: ignore[arg-type]
    assert [float(scale) for scale, _ in scales if scale is not None] == [3.0, 3.0, 3.0]
    assert scales[0][1] is None
    assert [bool(repeated) for _, repeated in scales[1:]] == [True, False]


def test_of_several_tensors_each_is_compared_with_the_one_of_its_shape_before() -> None:
    class Takes(nn.Module):
        def forward(self, *_: Tensor) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    inputs, ones = torch.randn(4, 8), torch.ones(4, 8)
    told = []
    for batch in (
        (inputs, torch.randn(4, 8), ones),
        (inputs.clone(), torch.randn(4, 8), ones),  # ones come again by chance
        (inputs, inputs[:3], ones),
        (inputs,),
        (inputs, inputs, inputs),
    ):
        model(*batch)
        measured = probe.measure()
        told.append([None if (of := measured.get(name)) is None else bool(of) for name in TENSORS_REPEATED])
    nothing = [None] * 4
    assert told == [nothing, [True, False, False, None], [True, None, False, None], nothing, [True, None, None, None]]


def test_a_model_that_a_loop_calls_in_parts_is_looked_at_and_one_that_is_called_as_a_whole_by_itself_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    probe = BatchProbe(model)
    model[1](model[0](torch.full((4, 2), 3.0)))
    assert float(probe.measure()["input_scale"]) == 3.0  # type: ignore[arg-type]
    model(torch.full((4, 2), 5.0))
    assert float(probe.measure()["input_scale"]) == 5.0  # type: ignore[arg-type]
    assert not any(part._forward_pre_hooks for part in model)
    model[0](torch.ones(4, 2))
    assert probe.measure() == {}


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_a_part_that_takes_no_hook_is_passed_by() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(2, 3)), nn.Linear(3, 1))
    probe = BatchProbe(model)
    model[1](model[0](torch.ones(4, 2)))
    assert "batch_key" in probe.measure()


def test_of_a_container_the_first_module_that_is_called_tells_the_batch() -> None:
    parts = nn.ModuleDict({"body": nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 3)]), "head": nn.Linear(3, 1)})
    probe = BatchProbe(parts)
    repeated = []
    for batch in (torch.full((4, 2), 3.0), torch.full((4, 2), 3.0), torch.ones(4, 2)):
        hidden = batch
        for layer in parts["body"]:
            hidden = layer(hidden)
        parts["head"](hidden)
        measured = probe.measure()
        repeated.append(measured["batch_repeated"])
        assert float(measured["input_scale"]) == pytest.approx(float(batch[0, 0]))
    assert repeated[0] is None and [bool(value) for value in repeated[1:]] == [True, False]
    probe.close()
    assert not any(module._forward_pre_hooks for module in parts.modules())


def of_acting(model: nn.Module) -> Tensor:
    for _ in range(9):  # more than are remembered: what was returned before is gone
        acted = model(torch.full((2,), 9.0))
    learned: Tensor = model(torch.full((4, 2), 5.0)).sum()
    learned.backward()
    return acted


def of_pairs(model: nn.Module) -> None:
    (model(torch.full((4, 2), 5.0)) * model(torch.full((3, 2), 9.0)).sum()).sum().backward()


def of_micro_batches(model: nn.Module) -> None:
    for batch in (torch.full((4, 2), 5.0), torch.full((3, 2), 9.0)):
        model(batch).sum().backward()


def of_checkpoints(model: nn.Module) -> None:
    checkpoint(model, torch.full((4, 2), 5.0), use_reentrant=False).sum().backward()


def without_gradient(model: nn.Module) -> Tensor:
    model(torch.full((4, 2), 5.0))
    kept: Tensor = model(torch.full((3, 2), 9.0))
    return kept


@pytest.mark.parametrize("passes", [of_acting, of_pairs, of_micro_batches, of_checkpoints, without_gradient])
def test_of_several_passes_the_first_of_which_the_result_gets_a_gradient_tells_the_batch(
    passes: Callable[[nn.Module], Tensor | None],
) -> None:
    model = nn.Linear(2, 1)
    probe = BatchProbe(model)
    for step in range(4):
        kept = passes(model)  # a loop's names last until they are used again
        measured = probe.measure()
        if step > 1:  # before it is not known that there are several, and that the first is no training
            assert probe.shape == ((4, 2),) and float(measured["input_scale"]) == 5.0  # type: ignore[arg-type]
        warn_if_has_hooks(model.weight if kept is None else kept)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.clone().index_put_((torch.tensor(7), torch.tensor(5)), x[7, 5].nextafter(torch.tensor(9.0))),
        lambda x: x.flip(0),
        lambda x: -x,
        lambda x: x[:-1],
    ],
)
def test_another_batch_has_another_key_and_the_same_one_the_same(other: Callable[[Tensor], Tensor]) -> None:
    model = nn.Identity()
    probe = BatchProbe(model)
    first = torch.randn(16, 8)
    keys = []
    for batch in (first, other(first), first.clone()):
        model(batch)
        key = probe.measure()["batch_key"]
        keys.append(float(key))
    assert keys[0] == keys[2] != keys[1]
    assert all(key == float(torch.tensor(key, dtype=torch.float32)) for key in keys)


def test_the_number_of_targets_that_the_trainer_hands_over_is_none_of_the_inputs() -> None:
    class Takes(nn.Module):
        def forward(self, **_: Any) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    model(num_items_in_batch=torch.tensor(512.0), input_ids=torch.arange(8).reshape(2, 4))
    assert probe.measure()["input_scale"] is None
    model(num_items_in_batch=torch.tensor(512.0), inputs=torch.full((2, 4), 3.0))
    assert float(probe.measure()["input_scale"]) == 3.0


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x[:, :, None].expand(-1, -1, 1_000_000, -1, -1),  # 92 GB, if it were copied
    ],
)
def test_copies_are_found_whatever_the_layout_of_a_batch(layout: Callable[[Tensor], Tensor]) -> None:
    model = nn.Identity()
    probe = BatchProbe(model)
    images = torch.randn(12, 3, 8, 8)
    found = []
    for batch in (images, images[:6].repeat(2, 1, 1, 1), images[:7].repeat(2, 1, 1, 1)[:12]):
        with torch.autocast("cpu", torch.bfloat16):
            model(layout(batch))
        found.append(bool(probe.measure()["examples_repeated"]))
    assert found == [False, True, False]
