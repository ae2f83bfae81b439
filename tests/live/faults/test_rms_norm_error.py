from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.faults import make_fault
from rmetric.live.corpus import Corpus
from rmetric.live.run import LiveRun
from rmetric.network.structure import norms
from tests.live.architectures import NAMES
from tests.live.faults.common import Notes
from tests.live.faults.structural import MakeRun, assert_named, logits_of, run_of


def outputs_of(run: LiveRun) -> dict[str, tuple[Tensor, Tensor]]:
    """What goes into each norm on the residual stream and what comes out of it."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    hooks = [
        norm.module.register_forward_hook(
            lambda module, inputs, output, name=norm.name: seen.__setitem__(name, (inputs[0], output))
        )
        for norm in norms(run.model)
    ]
    logits_of(run)
    for hook in hooks:
        hook.remove()
    return seen


def normalised(module: nn.Module, states: Tensor, epsilon: float) -> Tensor:
    if isinstance(module, nn.LayerNorm):
        states = states - states.mean(-1, keepdim=True)
    result = module.weight * states * (states.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return result if getattr(module, "bias", None) is None else result + module.bias


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("scale", "epsilon"), [(32.0, None), (1.0, 0.5), (0.25, 10.0)])
def test_the_first_norm_of_one_layer_uses_another_scale_and_epsilon(
    name: str, scale: float, epsilon: float | None, text: Corpus
) -> None:
    run = run_of(name, text)
    notes = Notes(run)
    with make_fault("RMS_NORM_ERROR", scale=scale, epsilon=epsilon, layer=1).inject(run):
        seen = outputs_of(run)
    note = assert_named(run, notes.told, "RMS_NORM_ERROR")
    (wrong,) = note["modules"]
    assert wrong.rpartition(".")[2] in ("input_layernorm", "ln_1", "operator_norm")
    assert (note["scale"], note["epsilon"]) == (scale, epsilon or pytest.approx(1e-5, abs=1e-5))
    for norm in norms(run.model):
        states, output = seen[norm.name]
        right = getattr(norm.module, norm.epsilon_attribute)
        expected = normalised(norm.module, states, right)
        if norm.name == wrong:
            assert norm.layer == 1
            assert not torch.allclose(output, expected, rtol=0.1)
            expected = normalised(norm.module, states, epsilon or right) * scale
        assert torch.allclose(output, expected, rtol=1e-4, atol=1e-5), norm.name


def test_who_watched_the_norm_before_sees_the_wrong_values(text: Corpus) -> None:
    run = run_of("tiny-llama", text)
    seen: list[Tensor] = []
    norms(run.model)[0].module.register_forward_hook(lambda module, inputs, output: seen.append(output))
    logits_of(run)
    with make_fault("RMS_NORM_ERROR", scale=3.0, layer=0).inject(run):
        logits_of(run)
    assert torch.allclose(seen[1], 3.0 * seen[0])


def test_the_gradient_goes_through_the_wrong_scale(make_run: MakeRun) -> None:
    run, healthy = make_run(), make_run()
    notes, others = Notes(run), Notes(healthy)
    with make_fault("RMS_NORM_ERROR", scale=1e-3, layer=0).inject(run):
        run.train_step()
    healthy.train_step()
    name = "model.layers.0.self_attn.v_proj.weight"
    assert notes.gradients[name].norm() < 0.01 * others.gradients[name].norm()


def test_severities_differ_in_the_scale() -> None:
    scales = [make_fault("RMS_NORM_ERROR", severity).parameters["scale"] for severity in ("low", "medium", "high")]
    assert scales == sorted({*scales})


def test_a_layer_that_is_not_there_is_refused_in_words(make_run: MakeRun) -> None:
    fault = make_fault("RMS_NORM_ERROR", layer=7)
    with pytest.raises(UserError, match=r"cannot be brought upon layer 7; choose one of \[0, 1\]"):
        fault.inject(make_run()).__enter__()
