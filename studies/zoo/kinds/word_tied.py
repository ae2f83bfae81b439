"""A model of the next word from the three before it, with one table of words for both ends; Adafactor."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.corpus import documentation
from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Examples, Kind, Parts, register_kind

WORDS, BEFORE, WIDTH, RARE = 1000, 3, 48, 0
HELD_OUT_WORDS = 512


@cache
def _passages() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids of each word, those before it included, (words, 4): those to train on, and the held-out end."""
    text = documentation()
    words = re.findall(r"\w+|[^\w\s]", bytes([*text.train, *text.held_out]).decode(errors="ignore").lower())
    known = {word: index + 1 for index, (word, _) in enumerate(Counter(words).most_common(WORDS - 1))}
    ids = np.array([known.get(word, RARE) for word in words])
    passages = np.lib.stride_tricks.sliding_window_view(ids, BEFORE + 1)
    cut = len(passages) * 9 // 10
    return passages[:cut], passages[cut:]


class TiedModel(nn.Module):
    """The words before, side by side, through one hidden layer, compared with every word (Bengio 2003)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(WORDS, WIDTH), nn.Linear(BEFORE * WIDTH, WIDTH)
        nn.init.normal_(self.words.weight, std=WIDTH**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, (rows, words), of the ids of the words before, (rows, 3)."""
        return functional.linear(self.mix(self.words(ids).flatten(1)).tanh(), self.words.weight)


@register_kind("word_tied")
@dataclass(frozen=True, kw_only=True)
class WordTied(Kind):
    """Words are rare, so most rows of the table get no gradient in most steps."""

    family = "language"
    optimizer = "Adafactor"
    why = "words with tied embeddings, Adafactor's own clipping"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=0.02, warm_up_steps=50)

    def make(self, seed: int) -> Parts:
        model = TiedModel()
        return Parts(model, torch.optim.Adafactor(model.parameters(), lr=0.02))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        passages = _passages()[step == 0]
        rows = self.config.rows if step else HELD_OUT_WORDS
        chosen = torch.from_numpy(passages[rng.integers(0, len(passages), size=rows)])
        return Examples(chosen[:, :-1], chosen[:, -1])
