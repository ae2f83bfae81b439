"""Data of the zoo that comes with installed packages: no download, the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_sample_image
from torch import Tensor
from torch.nn import functional

from studies.zoo.training import Examples, Kind

HELD_OUT_EVERY = 5
"""Every fifth example is held out."""


@dataclass(frozen=True)
class Labelled:
    """Examples with labels, of which a part is held out."""

    inputs: Tensor
    labels: Tensor

    def draw(self, rng: np.random.Generator, count: int, *, held_out: bool) -> Examples:
        """Some of the examples, drawn with replacement."""
        places = np.arange(len(self.labels))
        mine = places[(places % HELD_OUT_EVERY == 0) == held_out]
        chosen = torch.from_numpy(rng.choice(mine, count))
        return Examples(self.inputs[chosen], self.labels[chosen])

    def of_step(self, kind: Kind, rng: np.random.Generator, step: int) -> Examples:
        """As many of the examples as a kind's step has rows; held-out ones in step 0."""
        return self.draw(rng, kind.rows(step), held_out=step == 0)


@cache
def digits() -> Labelled:
    """1,797 images of handwritten digits, (1, 8, 8), from 0 to 1 (scikit-learn; E. Alpaydin, C. Kaynak 1998)."""
    found = load_digits()
    images = torch.from_numpy(found.images.astype(np.float32) / 16.0).unsqueeze(1)
    return Labelled(images, torch.from_numpy(found.target.astype(np.int64)))


@dataclass(frozen=True, kw_only=True)
class DigitsKind(Kind):
    """A kind that trains on :func:`digits`."""

    noise: ClassVar[float] = 0.0
    """Standard deviation of what is added to each pixel."""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step)
        if not self.noise:
            return drawn
        noise = torch.from_numpy(rng.normal(0.0, self.noise, drawn.inputs.shape).astype(np.float32))
        return Examples(drawn.inputs + noise, drawn.labels)


@dataclass(frozen=True, kw_only=True)
class AugmentedDigitsKind(DigitsKind):
    """A kind that trains on a :func:`view` of each digit."""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = super().batch(rng, step)
        return Examples(view(rng, drawn.inputs), drawn.labels)


def view(rng: np.random.Generator, images: Tensor) -> Tensor:
    """Images that are moved, dimmed and noisy, each in its own way."""
    rows = len(images)
    shifts = rng.integers(0, 3, rows)[:, None], rng.integers(0, 3, rows)[:, None]
    down, right = (shift + np.arange(8) for shift in shifts)
    padded = functional.pad(images, (1, 1, 1, 1))
    moved = padded[np.arange(rows)[:, None, None], 0, down[:, :, None], right[:, None, :]].unsqueeze(1)
    bright = torch.from_numpy(rng.uniform(0.6, 1.4, (rows, 1, 1, 1)).astype(np.float32))
    return bright * moved + 0.1 * torch.from_numpy(rng.standard_normal(images.shape, dtype=np.float32))


@cache
def photographs(size: int = 16) -> Labelled:
    """Square patches of two photographs, (1, size, size), from 0 to 1; the label is 0 for a temple, 1 for a flower.

    **Source:** scikit-learn's ``load_sample_images`` (images under CC BY, by I. Lopez and K. Taylor).
    """
    patches = []
    for name in ("china.jpg", "flower.jpg"):
        grey = torch.from_numpy(load_sample_image(name).astype(np.float32)).mean(dim=2) / 255.0
        found = grey.unfold(0, size, size).unfold(1, size, size)
        patches.append(found.reshape(-1, 1, size, size).contiguous())
    labels = torch.cat([torch.full((len(found),), label) for label, found in enumerate(patches)])
    return Labelled(torch.cat(patches), labels)


@dataclass(frozen=True, kw_only=True)
class PhotographsKind(Kind):
    """A kind that tells :func:`photographs` apart."""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return photographs().of_step(self, rng, step)


@cache
def breast_cancer() -> Labelled:
    """569 tumours by 30 measurements with mean 0 and spread 1; 1 is benign (scikit-learn; W. Wolberg et al. 1995)."""
    found = load_breast_cancer()
    scaled = (found.data - found.data.mean(axis=0)) / found.data.std(axis=0)
    return Labelled(torch.from_numpy(scaled.astype(np.float32)), torch.from_numpy(found.target.astype(np.int64)))
