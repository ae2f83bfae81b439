"""What the gradient of a model's outputs says of the targets."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.monitor.loop_probes import TargetProbe

ONE, SEVERAL = torch.full((48,), 2), torch.arange(48) % 5
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "smoothed": lambda logits, labels: functional.cross_entropy(logits, labels, label_smoothing=0.1),
    "summed and scaled": lambda logits, labels: 1024.0 * functional.cross_entropy(logits, labels, reduction="sum"),
    "half precision": lambda logits, labels: functional.cross_entropy(logits.bfloat16(), labels),
    "of tokens": lambda logits, labels: functional.cross_entropy(logits.view(8, 6, 5).movedim(2, 1), labels.view(8, 6)),
    "half of them masked": lambda logits, labels: functional.cross_entropy(
        logits, labels.where(torch.arange(48) % 6 < 3, -100)
    ),
    "probabilities": lambda logits, labels: functional.nll_loss(logits, labels),
}


def measured(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> dict[str, Tensor | None]:
    """What a probe measures, where a model returns these outputs."""
    model = nn.Identity()
    probe = TargetProbe(model)
    loss(model(outputs.requires_grad_()) * 1.0).backward()
    found = probe.measure()
    assert not probe.closed
    return found


def seen(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> float | None:
    """What a probe says of the targets."""
    alike = measured(loss, outputs)["targets_alike"]
    return None if alike is None else float(alike)


def classes(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[float, float] | None:
    """What a probe says of the classes: their number, and the cross-entropy, nats."""
    found = measured(loss, outputs)
    return None if "classes" not in found else (float(found["classes"]), float(found["cross_entropy"]))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_targets_of_one_class_are_known_from_the_gradient_of_the_outputs(loss: Callable[..., Tensor]) -> None:
    logits = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    assert seen(lambda outputs: loss(outputs, ONE), logits.clone()) == 1.0
    assert seen(lambda outputs: loss(outputs, SEVERAL), logits.clone()) == 0.0


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda outputs: (outputs - torch.randn(48, 3)).square().mean(), (48, 3)),  # a regression
        (lambda outputs: functional.cross_entropy(outputs, ONE[:8]), (8, 5)),  # so few may be of one class by chance
        (lambda outputs: functional.cross_entropy(outputs, torch.full((48,), -100), reduction="sum"), (48, 5)),
        (lambda outputs: functional.cross_entropy(outputs * math.nan, ONE), (48, 5)),
    ],
)
def test_outputs_that_are_no_logits_and_few_targets_say_nothing(
    loss: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    assert math.isnan(seen(loss, torch.randn(shape, generator=torch.Generator().manual_seed(0))) or 0.0)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("lead", [2.0, 5.0, 12.0, 30.0])
def test_targets_of_a_loss_that_is_maximised_are_not_the_class_that_all_are_predicted_to_be(
    loss: Callable[..., Tensor], lead: float
) -> None:
    logits = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    logits[:, 4] += lead
    assert seen(lambda outputs: -loss(outputs, SEVERAL % 4), logits) != 1.0


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_targets_of_one_class_are_known_where_the_loss_scales_the_logits(scale: float) -> None:
    logits = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    assert seen(lambda outputs: functional.cross_entropy(scale * outputs, ONE), logits) == 1.0


@pytest.mark.parametrize("lead", [0.0, 5.0, 12.0])
@pytest.mark.parametrize("weight", [None, torch.tensor([0.01, 1.0, 5.0, 1.0, 100.0])], ids=["alike", "weighted"])
def test_targets_of_one_class_are_known_however_well_they_are_predicted(lead: float, weight: Tensor | None) -> None:
    logits = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    logits += lead * functional.one_hot(ONE, 5)
    assert seen(lambda outputs: functional.cross_entropy(outputs, ONE, weight), logits.clone()) == 1.0
    assert seen(lambda outputs: functional.cross_entropy(outputs, SEVERAL, weight), logits.clone()) == 0.0


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_classes_are_counted_and_their_cross_entropy_is_known(loss: Callable[..., Tensor]) -> None:
    logits = 0.1 * torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    kept = SEVERAL.where(torch.arange(48) % 6 < 3, -100) if loss is LOSSES["half of them masked"] else SEVERAL
    found = classes(lambda outputs: loss(outputs, SEVERAL), logits.clone())
    assert found == pytest.approx((5.0, float(functional.cross_entropy(logits, kept))), rel=1e-2)


def test_classes_are_found_in_the_second_dimension_too() -> None:
    logits = torch.randn(6, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6 * 7 * 5).reshape(6, 7, 5) % 3
    found = classes(lambda outputs: functional.cross_entropy(outputs, labels), logits.clone())
    assert found == pytest.approx((3.0, float(functional.cross_entropy(logits, labels))))


SOFT = torch.randn(48, 5, generator=torch.Generator().manual_seed(1)).softmax(1)


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs: (outputs - SOFT).square().mean(),
        lambda outputs: functional.cross_entropy(outputs, SOFT),
        lambda outputs: functional.binary_cross_entropy_with_logits(outputs, (SOFT > 0.2).float()),
        lambda outputs: functional.cross_entropy(outputs * math.nan, SEVERAL),
    ],
    ids=["regression", "soft targets", "several labels", "not finite"],
)
def test_outputs_that_are_no_logits_of_one_target_have_no_classes(loss: Callable[[Tensor], Tensor]) -> None:
    found = classes(loss, 0.1 * torch.randn(48, 5, generator=torch.Generator().manual_seed(0)))
    assert found is not None and math.isnan(sum(found))


@pytest.mark.slow
@pytest.mark.parametrize("targets", [16, 17, 33, 65, 1000])
def test_with_many_classes_a_few_targets_are_enough(targets: int) -> None:
    logits = torch.randn(targets, 30_000, generator=torch.Generator().manual_seed(0))
    assert seen(lambda outputs: functional.cross_entropy(outputs, torch.full((targets,), 7)), logits) == 1.0


def test_a_tensor_that_a_model_returns_again_and_again_keeps_no_hook() -> None:
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.randn(48, 5, requires_grad=True)

        def forward(self) -> Tensor:
            return self.logits

    model = Returns()
    probe = TargetProbe(model)
    for _ in range(3):
        functional.cross_entropy(model(), ONE).backward()
        assert probe.measure()["targets_alike"] == 1.0
        assert not model.logits._backward_hooks
    model()
    probe.close()
    assert not model.logits._backward_hooks and not model._forward_hooks


def test_a_model_that_returns_one_number_an_example_has_no_classes() -> None:
    assert seen(lambda outputs: outputs.square().mean(), torch.randn(24, 1)) is None
    assert seen(lambda outputs: outputs.square().mean(), torch.randn(24)) is None


def test_logits_that_a_compiled_model_makes_its_loss_of_say_nothing() -> None:
    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, data: Tensor) -> dict[str, Tensor]:
            logits = self.layer(data)
            return {"loss": functional.cross_entropy(logits, ONE), "logits": logits}

    model = torch.compile(Answers(), backend="aot_eager")
    probe = TargetProbe(model)
    model(torch.randn(48, 8))["loss"].backward()
    assert probe.measure() == {"targets_alike": None}
    assert not probe.closed


def test_logits_are_found_beside_the_loss_that_a_model_returns() -> None:
    class Answers(nn.Module):
        def forward(self, logits: Tensor) -> dict[str, Tensor]:
            return {"loss": functional.cross_entropy(logits, ONE), "logits": logits}

    model = Answers()
    probe = TargetProbe(model)
    model(torch.randn(48, 5, requires_grad=True))["loss"].backward()
    assert probe.measure()["targets_alike"] == 1.0
    with torch.no_grad():
        model(torch.randn(48, 5))
    assert probe.measure() == {"targets_alike": None}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_rare_class_that_alone_is_left_to_learn_is_not_the_only_one(kind: torch.dtype) -> None:
    labels = (torch.arange(240) % 12 == 0).long()
    logits = torch.tensor([20.0, 0.0]).repeat(240, 1)
    assert seen(lambda outputs: functional.cross_entropy(outputs.to(kind), labels), logits) != 1.0
