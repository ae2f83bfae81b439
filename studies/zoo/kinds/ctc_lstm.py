"""Speech recognition without alignment: a recurrent network and the CTC loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.formants import BANDS, FORMANTS, spectrograms
from studies.zoo.schedules import stable_then_decay
from studies.zoo.training import Examples, Kind, Parts, register_kind

FRAMES = 30
"""Frames of an utterance."""
VOWELS = 4
"""Most vowels of an utterance; it has at least two."""


class Recogniser(nn.Module):
    """A bidirectional LSTM over frames; 0 is the blank."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(BANDS, width, batch_first=True, bidirectional=True)
        self.vowels = nn.Linear(2 * width, len(FORMANTS) + 1)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """Log-probabilities, (T, B, vowels + 1), of spectrograms, (B, T, bands)."""
        return self.vowels(self.recurrent(spectrograms)[0]).log_softmax(dim=-1).transpose(0, 1)


@register_kind("ctc_lstm")
@dataclass(frozen=True, kw_only=True)
class CtcLstm(Kind):
    """Vowels with pauses between them: the loss falls in a few hundred steps from tens of nats, after a plateau.

    **Source:** Graves et al. 2006, Connectionist Temporal Classification.
    """

    family = "speech"
    optimizer = "Adam"
    why = "CTC loss of whole utterances, with a plateau where only blanks are predicted; recurrent"
    config = LiveRunConfig(workers=1, rows=8, learning_rate=5e-3, warm_up_steps=50, clip=5.0)
    held_out_rows = 64
    schedule = staticmethod(stable_then_decay)

    def make(self, seed: int) -> Parts:
        model = Recogniser()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        vowels_BV = rng.integers(0, len(FORMANTS), (rows, VOWELS))
        spoken_BV = np.arange(VOWELS) < rng.integers(2, VOWELS + 1, (rows, 1))
        # Pause and vowel by turns, each with an end; what is left of the frames is silent.
        lengths_BS = np.stack([rng.integers(1, 4, (rows, VOWELS)), rng.integers(3, 5, (rows, VOWELS))], axis=2)
        ends_BS = lengths_BS.reshape(rows, -1).cumsum(axis=1)
        segment_BT = (np.arange(FRAMES)[:, None] >= ends_BS[:, None, :]).sum(axis=2)
        which_BT = np.minimum(segment_BT // 2, VOWELS - 1)
        voiced_BT = (segment_BT % 2 == 1) & np.take_along_axis(spoken_BV, which_BT, axis=1)
        heard = spectrograms(rng, FORMANTS[np.take_along_axis(vowels_BV, which_BT, axis=1)], voiced_BT, noise=0.4)
        return Examples(torch.from_numpy(heard), torch.from_numpy(np.where(spoken_BV, vowels_BV + 1, 0)))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        frames = torch.full((len(batch.inputs),), FRAMES)
        return functional.ctc_loss(model(batch.inputs), batch.labels, frames, (batch.labels > 0).sum(dim=1))
