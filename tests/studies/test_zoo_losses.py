"""Losses and gradients of the zoo against their formulas."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from studies.zoo.kinds.adversarial_training import REACH, attacked  # noqa: E402
from studies.zoo.kinds.consistency_training import LEAST, MOST, Consistency, level  # noqa: E402
from studies.zoo.kinds.cox_survival import CoxSurvival  # noqa: E402
from studies.zoo.kinds.domain_adversarial import Adversarial  # noqa: E402
from studies.zoo.kinds.private_digits import LARGEST, shares  # noqa: E402
from studies.zoo.training import Examples  # noqa: E402
from tests.studies.zoo_digits import some_digits  # noqa: E402


def network() -> nn.Module:
    """A small classifier of digits."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def test_no_example_has_a_longer_gradient_than_allowed_and_short_ones_stay() -> None:
    model, batch = network(), some_digits(12)
    found = shares(model, batch).tolist()
    assert min(found) < 1.0
    for share, image, label in zip(found, batch.inputs, batch.labels, strict=True):
        model.zero_grad()
        functional.cross_entropy(model(image.unsqueeze(0)), label.unsqueeze(0)).backward()
        norm = math.sqrt(sum(float(each.grad.square().sum()) for each in model.parameters()))
        assert share * norm == pytest.approx(min(norm, LARGEST), rel=1e-4)


def test_an_attack_stays_within_reach_and_raises_the_loss() -> None:
    model, batch = network(), some_digits(32)
    changed = attacked(model, batch.inputs, batch.labels)
    assert float((changed - batch.inputs).abs().max()) <= REACH + 1e-6
    before, after = (functional.cross_entropy(model(each), batch.labels) for each in (batch.inputs, changed))
    assert bool(after > before)


def test_the_partial_likelihood_is_that_of_who_dies_first_of_those_left() -> None:
    risk = [0.5, -1.0, 0.2]
    labels = torch.tensor([[2.0, 1.0], [1.0, 0.0], [3.0, 1.0]])  # the second one leaves first, alive
    first_death = math.log(math.exp(risk[0]) + math.exp(risk[2])) - risk[0]
    loss = CoxSurvival().loss(nn.Identity(), Examples(torch.tensor(risk).unsqueeze(1), labels))
    assert float(loss) == pytest.approx(first_death / 2, rel=1e-5)  # the last death is certain


def test_the_gradient_of_the_plant_comes_back_with_its_sign_turned() -> None:
    torch.manual_seed(0)
    model, features = Adversarial(), torch.rand(4, 32, requires_grad=True)
    (plain,) = torch.autograd.grad(model.plant(features).sum(), features)
    model.strength.fill_(0.5)
    told = model.plant_of(features)
    (turned,) = torch.autograd.grad(told.sum(), features)
    torch.testing.assert_close(told, model.plant(features).squeeze(-1))
    torch.testing.assert_close(turned, -0.5 * plain)


def test_an_image_with_the_least_noise_stays() -> None:
    torch.manual_seed(0)
    model, images = Consistency(), torch.rand(4, 64)
    torch.testing.assert_close(model.clean(model.network, images, torch.full((4, 1), LEAST)), images)
    torch.testing.assert_close(level(torch.tensor([0.0, 1.0])), torch.tensor([LEAST, MOST]))
