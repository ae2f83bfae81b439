"""Parts of the fourth set's kinds against what they claim to compute."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from rmetric.live.corpus import BYTES  # noqa: E402
from studies.zoo.kinds.consistency_training import LEAST, MOST, Consistency, level  # noqa: E402
from studies.zoo.kinds.denoiser_mixture import GAPS, spoilt  # noqa: E402
from studies.zoo.kinds.denoiser_mixture import MOST as MARKS  # noqa: E402
from studies.zoo.kinds.domain_adversarial import Adversarial  # noqa: E402
from studies.zoo.kinds.lottery_rewinding import take_out  # noqa: E402
from studies.zoo.kinds.mined_negatives import DOCUMENTS, MinedNegatives, documents, questions  # noqa: E402
from studies.zoo.kinds.mixer_sharpness import REACH, Mixer, climbed  # noqa: E402
from studies.zoo.training import KindRun  # noqa: E402


def test_the_weights_uphill_are_as_far_as_they_are_to_be_and_have_a_larger_loss() -> None:
    torch.manual_seed(0)
    model, images = Mixer(), torch.rand(16, 1, 8, 8)
    loss = model(images).square().mean()
    uphill = climbed(model, loss)
    moved = [(uphill[name] - weight).detach() for name, weight in model.named_parameters()]
    assert float(torch.stack([each.norm() for each in moved]).norm()) == pytest.approx(REACH, rel=1e-3)
    assert bool(torch.func.functional_call(model, uphill, (images,)).square().mean() > loss)


@pytest.mark.parametrize("way", range(len(GAPS)))
def test_what_is_shown_and_what_is_missing_are_the_passage(way: int) -> None:
    passage = np.arange(48)
    tokens, begins = spoilt(np.random.default_rng(0), passage, way)
    shown, missing = tokens[1:begins].tolist(), tokens[begins:].tolist()
    assert tokens[0] == BYTES + MARKS + way
    assert len(missing) == GAPS[way][0] * (1 + GAPS[way][1])
    for gap in range(GAPS[way][0]):
        place, begin = shown.index(BYTES + gap), missing.index(BYTES + gap) + 1
        shown[place : place + 1] = missing[begin : begin + GAPS[way][1]]
    assert shown == passage.tolist()


def test_of_the_weights_that_are_left_the_smaller_half_goes_each_time() -> None:
    torch.manual_seed(0)
    layer = prune.identity(nn.Linear(16, 8), "weight")
    size = layer.weight_orig.detach().abs()
    for left in (64, 32):
        take_out(layer, 0.5)
        kept = layer.weight_mask > 0.0
        assert int(kept.sum()) == left
        assert float(size[kept].min()) > float(size[~kept].max())


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


def test_a_document_is_never_its_own_negative_and_is_asked_for_by_its_words() -> None:
    run = KindRun(MinedNegatives(), 0, 400)
    about = np.arange(DOCUMENTS)
    asked = questions(np.random.default_rng(0), about)
    assert bool((asked[:, :, None] == documents()[:, None]).any(2).all())
    wrong = run.beside["wrong"].tensors
    for nearest in (wrong["nearest"], MinedNegatives()._mined(run)):
        assert not bool((nearest == torch.from_numpy(about)[:, None]).any())
