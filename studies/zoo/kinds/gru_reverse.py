"""A recurrent encoder and decoder that say a sequence backwards; lengths differ and the rest is padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.text import TokenKind
from studies.zoo.training import Examples, Parts, register_kind

SYMBOLS, SHORTEST, LONGEST, WIDTH = 12, 3, 8, 48
PADDING, IGNORED = 0, -100


class EncoderDecoder(nn.Module):
    """The encoder's last state starts the decoder, which is fed the place it is at."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS + 1, WIDTH, padding_idx=PADDING)
        self.places = nn.Parameter(torch.randn(LONGEST, WIDTH))
        self.encoder, self.decoder = (nn.GRU(WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, SYMBOLS + 1)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, (rows, places, symbols), of ids, (rows, places)."""
        _, state = self.encoder(self.symbols(ids))
        logits: Tensor = self.head(self.decoder(self.places.expand(len(ids), -1, -1), state)[0])
        return logits


@register_kind("gru_reverse")
@dataclass(frozen=True, kw_only=True)
class GruReverse(TokenKind):
    """A task with an answer: the loss stays on plateaus and then falls towards 0."""

    family = "language"
    optimizer = "Adam"
    why = "sequence to sequence, padding that does not count, plateaus and fast falls"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=2e-3, warm_up_steps=20)

    def make(self, seed: int) -> Parts:
        model = EncoderDecoder()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        ids = torch.from_numpy(rng.integers(1, SYMBOLS + 1, size=(rows, LONGEST)))
        free = torch.arange(LONGEST) < torch.from_numpy(LONGEST - rng.integers(SHORTEST, LONGEST + 1, size=(rows, 1)))
        ids = ids.masked_fill(free, PADDING)  # on the left, so that the last state is that of the last symbol
        return Examples(ids, ids.flip(1).masked_fill(free.flip(1), IGNORED))
