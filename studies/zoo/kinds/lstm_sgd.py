"""An LSTM language model, plain SGD with a large rate and hard clipping."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rmetric.live.corpus import BYTES
from rmetric.live.run import LiveRunConfig
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind

WIDTH = 64


class LstmModel(nn.Module):
    """Embedding, one recurrent layer, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.recurrent = nn.Embedding(BYTES, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, BYTES)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, (rows, tokens, bytes), of ids, (rows, tokens)."""
        logits: Tensor = self.head(self.recurrent(self.tokens(ids))[0])
        return logits


@register_kind("lstm_sgd")
@dataclass(frozen=True, kw_only=True)
class LstmSgd(NextByteKind):
    """Language models as they were before transformers: every step is clipped, the rate falls in stairs."""

    family = "language"
    optimizer = "SGD"
    why = "recurrent, plain SGD, always clipped, rate halved in stairs"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=4.0, warm_up_steps=0, clip=0.25)

    def make(self, seed: int) -> Parts:
        model = LstmModel()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=self.config.learning_rate))

    def rate(self, step: int, steps: int) -> float:
        return 0.5 ** min(4 * step // steps, 3)
