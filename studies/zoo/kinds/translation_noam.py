"""Translation as of 2017: encoder and decoder, smoothed labels, a rate that rises and falls as a root."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.schedules import inverse_root
from studies.zoo.training import Examples, Kind, Parts, register_kind

WORDS, SHORTEST, LONGEST, WIDTH = 24, 4, 8, 32
PADDING, START = 0, WORDS + 1
SMOOTHING = 0.1


@cache
def dictionary() -> NDArray[np.int64]:
    """The other language's word for each word, from 1; padding stays."""
    return np.concatenate([[PADDING], 1 + np.random.default_rng(stable_hash("dictionary")).permutation(WORDS)])


class Translator(nn.Module):
    """One layer of the encoder and one of the decoder, each with its normalisation after the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS + 2, WIDTH), nn.Parameter(0.3 * torch.randn(LONGEST, WIDTH))
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.05, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.05, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS + 1)

    def forward(self, source: Tensor, before: Tensor) -> Tensor:
        """Logits of each word, (B, LONGEST, WORDS + 1), of the source and of the right words before."""
        padded = source == PADDING
        read = self.encoder(self.words(source) + self.places, src_key_padding_mask=padded)
        later = torch.ones(LONGEST, LONGEST, dtype=torch.bool).triu(1)
        written = self.decoder(self.words(before) + self.places, read, tgt_mask=later, memory_key_padding_mask=padded)
        logits: Tensor = self.head(written)
        return logits


@register_kind("translation_noam")
@dataclass(frozen=True, kw_only=True)
class TranslationNoam(Kind):
    """Word by word with a dictionary, in another order: the second half first.

    **Source:** Vaswani et al. 2017, Attention Is All You Need, section 5.
    """

    family = "language"
    optimizer = "Adam"
    why = "encoder and decoder, teacher forcing, label smoothing, warm-up and inverse root"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=24, learning_rate=4e-3, warm_up_steps=150, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Translator()
        return Parts(model, torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        source = 1 + rng.zipf(1.3, (rows, LONGEST)) % WORDS
        lengths = rng.integers(SHORTEST, LONGEST + 1, (rows, 1))
        places = np.arange(LONGEST)
        source[places >= lengths] = PADDING
        order = np.where(places < lengths, (places + lengths // 2) % lengths, places)
        target = dictionary()[np.take_along_axis(source, order, axis=1)]
        return Examples(torch.from_numpy(source), torch.from_numpy(target))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        before = functional.pad(batch.labels[:, :-1], (1, 0), value=START)
        logits = model(batch.inputs, before).flatten(0, 1)
        return functional.cross_entropy(logits, batch.labels.flatten(), ignore_index=PADDING, label_smoothing=SMOOTHING)

    def rate(self, step: int, steps: int) -> float:
        return inverse_root(step, self.config.warm_up_steps)
