"""Parts of the third set's kinds against what they claim to compute."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from studies.zoo.data import digits  # noqa: E402
from studies.zoo.kinds.adversarial_training import REACH, attacked  # noqa: E402
from studies.zoo.kinds.cox_survival import CoxSurvival  # noqa: E402
from studies.zoo.kinds.deep_cluster import clusters_of  # noqa: E402
from studies.zoo.kinds.private_digits import LARGEST, shares  # noqa: E402
from studies.zoo.optimizers import Lamb  # noqa: E402
from studies.zoo.probes import probe_error  # noqa: E402
from studies.zoo.training import Examples  # noqa: E402


def network() -> nn.Module:
    """A small classifier of digits."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


def some_digits(count: int, *, held_out: bool = False) -> Examples:
    """The same examples each time."""
    return digits().draw(np.random.default_rng(0), count, held_out=held_out)


def test_features_that_say_nothing_have_the_error_of_the_mean_and_pixels_a_smaller_one() -> None:
    held_out = some_digits(256, held_out=True)
    assert float(probe_error(lambda images: torch.ones(len(images), 3), held_out)) == pytest.approx(0.09, abs=0.002)
    assert float(probe_error(lambda images: images.flatten(1), held_out)) < 0.05


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


def test_clusters_that_lie_apart_are_found() -> None:
    drawn = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 2)))
    features = drawn.float() + torch.tensor([0.0, 30.0]).repeat_interleave(20).unsqueeze(1)
    assert clusters_of(features, np.array([0, 39])).tolist() == [0] * 20 + [1] * 20


def test_a_step_of_lamb_is_as_long_as_the_tensor_times_the_rate() -> None:
    weights = nn.Parameter(torch.tensor([3.0, 4.0]))
    weights.grad = torch.tensor([0.1, -2.0])
    Lamb([weights], lr=0.01).step()
    assert float((weights.detach() - torch.tensor([3.0, 4.0])).norm()) == pytest.approx(0.05, rel=1e-4)


def test_the_partial_likelihood_is_that_of_who_dies_first_of_those_left() -> None:
    risk = [0.5, -1.0, 0.2]
    labels = torch.tensor([[2.0, 1.0], [1.0, 0.0], [3.0, 1.0]])  # the second one leaves first, alive
    first_death = math.log(math.exp(risk[0]) + math.exp(risk[2])) - risk[0]
    loss = CoxSurvival().loss(nn.Identity(), Examples(torch.tensor(risk).unsqueeze(1), labels))
    assert float(loss) == pytest.approx(first_death / 2, rel=1e-5)  # the last death is certain
