"""Vectors of words that tell which words stand near them: skip-gram with negative samples, sparse gradients."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.corpus import documentation
from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Examples, Kind, Parts, register_kind

WORDS, WINDOW, NEGATIVES, WIDTH = 1500, 4, 6, 32


@cache
def words() -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Prose as numbers of its frequent words, others left out, and how often a word is drawn as a negative one."""
    text = bytes(documentation().train.astype(np.uint8)).decode("ascii", "ignore").lower()
    said = re.findall(r"[a-z]+", text)
    counted = Counter(said).most_common(WORDS)
    numbers = {word: number for number, (word, _) in enumerate(counted)}
    often = np.array([count for _, count in counted]) ** 0.75
    return np.array([numbers[word] for word in said if word in numbers]), often.cumsum() / often.sum()


class SkipGram(nn.Module):
    """Two vectors a word: as the one that tells, and as the one that is told."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, sparse=True)
        self.near = nn.Embedding(WORDS, WIDTH, sparse=True)
        nn.init.uniform_(self.words.weight, -0.5 / WIDTH, 0.5 / WIDTH)
        nn.init.zeros_(self.near.weight)

    def forward(self, words: Tensor, others: Tensor) -> Tensor:
        """Logits, (B, others), that the others, (B, others), stand near the words, (B,)."""
        return torch.einsum("bw,bow->bo", self.words(words), self.near(others))


@register_kind("word2vec")
@dataclass(frozen=True, kw_only=True)
class Word2Vec(Kind):
    """The loss stays at its first value, then falls slowly (Mikolov et al. 2013). Labels: one near word, six drawn."""

    family = "language"
    optimizer = "SparseAdam"
    zoo = "zoo_2"
    why = "sparse gradients of two tables: most rows change in no step; negative sampling; a plateau first"
    config = LiveRunConfig(workers=1, rows=256, learning_rate=5e-3, warm_up_steps=0, clip=math.inf)
    held_out_rows = 2048

    def make(self, seed: int) -> Parts:
        model = SkipGram()
        return Parts(model, torch.optim.SparseAdam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        said, often = words()
        cut, rows = len(said) - len(said) // 10, self.rows(step)
        first, last = (cut, len(said)) if step == 0 else (0, cut)
        places = rng.integers(first + WINDOW, last - WINDOW, rows)
        near = said[places + rng.integers(1, WINDOW + 1, rows) * rng.choice([-1, 1], rows)]
        drawn = np.searchsorted(often, rng.random((rows, NEGATIVES)))
        others = np.concatenate([near[:, None], drawn], axis=1)
        return Examples(torch.from_numpy(said[places]), torch.from_numpy(others))

    def loss(self, model: Any, batch: Examples) -> Tensor:
        logits = model(batch.inputs, batch.labels)
        return functional.softplus(-logits[:, 0]).mean() + functional.softplus(logits[:, 1:]).sum(dim=1).mean()
