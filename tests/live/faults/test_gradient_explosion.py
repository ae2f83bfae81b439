from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from rmetric.errors import UserError
from rmetric.faults import make_fault
from rmetric.live.run import LiveRun
from tests.live.faults.common import Notes, same_bits, trained

LAYER = "model.layers.1."


def _steps(run: LiveRun, count: int) -> list[dict[str, torch.Tensor]]:
    """The gradients of the next steps, before clipping."""
    notes = run.observer if isinstance(run.observer, Notes) else Notes(run)
    return [dict(notes.gradients) for _ in range(count) if trained(run, 1)]


def test_the_gradients_of_one_layer_grow_geometrically_to_the_scale(make_run: Callable[..., LiveRun]) -> None:
    run, calm = (make_run(learning_rate=0.0) for _ in range(2))  # the same weights in every step
    with make_fault("GRADIENT_EXPLOSION", scale=64.0, ramp_steps=3, layer=1).inject(run):
        exploded = _steps(run, 5)
    expected = _steps(calm, 5)
    for step, factor in enumerate((4.0, 16.0, 64.0, 64.0, 64.0)):
        for name, gradient in expected[step].items():
            multiple = factor if name.startswith(LAYER) else 1.0
            torch.testing.assert_close(exploded[step][name], multiple * gradient, rtol=1e-6, atol=0.0)
    assert same_bits(_steps(run, 1), _steps(calm, 1))  # over


def test_under_clipping_the_update_is_that_of_the_exploding_layer_alone(make_run: Callable[..., LiveRun]) -> None:
    run = make_run(clip=1.0)
    clipped: dict[str, float] = {}

    def measure(*_: object) -> None:
        clipped.update({name: float(value.grad.norm()) for name, value in run.model.named_parameters()})

    handle = run.optimizer.register_step_pre_hook(measure)
    with make_fault("GRADIENT_EXPLOSION", scale=1e6, ramp_steps=1, layer=1).inject(run):
        run.train_step()
    handle.remove()
    total = math.hypot(*clipped.values())
    elsewhere = math.hypot(*(norm for name, norm in clipped.items() if not name.startswith(LAYER)))
    assert total == pytest.approx(1.0, rel=1e-4)
    assert 0.0 < elsewhere < 1e-4


def test_the_layer_is_drawn_from_the_seed_and_noted_once(make_run: Callable[..., LiveRun]) -> None:
    hit = []
    for seed in (0, 0, 1, 2, 3, 4):
        run = make_run(seed=seed)
        notes = Notes(run)
        trained(run, 2)
        with make_fault("GRADIENT_EXPLOSION").inject(run):
            trained(run, 2)
        (note,) = notes.told
        assert (note["event"], note["step"], note["final_factor"]) == ("CORRUPTION", 3, 100.0)
        hit.append(note["tensor"])
    assert hit[0] == hit[1]
    assert set(hit) == {"model.layers.0.*", "model.layers.1.*"}


def test_layers_are_counted_from_either_end(make_run: Callable[..., LiveRun]) -> None:
    for layer, name in ((0, "model.layers.0.*"), (1, "model.layers.1.*"), (-1, "model.layers.1.*")):
        run = make_run()
        notes = Notes(run)
        with make_fault("GRADIENT_EXPLOSION", layer=layer).inject(run):
            run.train_step()
        assert notes.told[0]["tensor"] == name


@pytest.mark.parametrize("layer", [2, -3])
def test_a_layer_that_is_not_there_is_the_users_error(make_run: Callable[..., LiveRun], layer: int) -> None:
    with (
        pytest.raises(
            UserError, match=f"GRADIENT_EXPLOSION cannot be brought upon layer {layer}; choose 0 to 1, or -1"
        ),
        make_fault("GRADIENT_EXPLOSION", layer=layer).inject(make_run()),
    ):
        pass


def test_a_frozen_layer_cannot_explode(make_run: Callable[..., LiveRun]) -> None:
    run = make_run()
    run.model.model.layers[0].requires_grad_(False)
    with (
        pytest.raises(UserError, match=r"nothing in model.layers.0 is trained, so its gradients cannot explode"),
        make_fault("GRADIENT_EXPLOSION", layer=0).inject(run),
    ):
        pass
