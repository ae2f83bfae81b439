"""Features that the zoo learns: probes of them, clusters, a pretrained network."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from studies.zoo.kinds.deep_cluster import clusters_of  # noqa: E402
from studies.zoo.pretrained import pretrained  # noqa: E402
from studies.zoo.probes import probe_error  # noqa: E402
from tests.studies.zoo_digits import some_digits  # noqa: E402


def test_features_that_say_nothing_have_the_error_of_the_mean_and_pixels_a_smaller_one() -> None:
    held_out = some_digits(256, held_out=True)
    assert float(probe_error(lambda images: torch.ones(len(images), 3), held_out)) == pytest.approx(0.09, abs=0.002)
    assert float(probe_error(lambda images: images.flatten(1), held_out)) < 0.05


def test_clusters_that_lie_apart_are_found() -> None:
    drawn = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 2)))
    features = drawn.float() + torch.tensor([0.0, 30.0]).repeat_interleave(20).unsqueeze(1)
    assert clusters_of(features, np.array([0, 39])).tolist() == [0] * 20 + [1] * 20


@pytest.mark.slow
def test_pretraining_leaves_random_numbers_and_hands_out_copies() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = pretrained(), pretrained()
    assert torch.equal(before, torch.get_rng_state())
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert not torch.equal(next(first.parameters()), next(second.parameters()))
