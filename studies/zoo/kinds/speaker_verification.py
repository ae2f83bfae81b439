"""Who is speaking: utterances of a speaker are to be near each other, and later no other speaker nearer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.formants import BANDS, FORMANTS, spectrograms
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

SPEAKERS, HELD_OUT_SPEAKERS, FRAMES = 96, 64, 24
MARGIN, HARD_FROM = 0.3, 600
"""First step in which the nearest counts of those other speakers that are farther than the same one, not just any."""


@cache
def voices() -> NDArray[np.float32]:
    """By what each speaker's three formants are multiplied, (speakers, 3); the last speakers are held out."""
    rng = np.random.default_rng(stable_hash("voices"))
    return np.exp(rng.normal(0.0, 0.2, (SPEAKERS + HELD_OUT_SPEAKERS, 3))).astype(np.float32)


class Voiceprint(nn.Module):
    """Convolutions over time, mean and spread over it, one vector of length 1."""

    hard: Tensor

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(BANDS, width, 3), nn.ReLU(), nn.Conv1d(width, width, 3), nn.ReLU())
        self.out = nn.Linear(2 * width, 24)
        self.register_buffer("hard", torch.tensor(False))

    def forward(self, sounds: Tensor) -> Tensor:
        """Vectors, (B, 24), of spectrograms, (B, BANDS, FRAMES)."""
        hidden = self.layers(sounds)
        return functional.normalize(self.out(torch.cat([hidden.mean(2), hidden.std(2)], dim=1)), dim=1)


@register_kind("speaker_verification")
@dataclass(frozen=True, kw_only=True)
class SpeakerVerification(Kind):
    """Triplets of a batch in which each speaker has two utterances; with the hard ones the loss jumps up
    (Schroff et al. 2015, FaceNet, section 3.2).

    Held out are speakers nobody has trained on: cross entropy of which other utterance is by the same one.
    """

    family = "speech"
    optimizer = "RMSprop"
    why = "triplets, of which from step 600 on the semi-hard ones of the batch are taken: a jump of the loss"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-3, warm_up_steps=0, clip=1.0)

    def make(self, seed: int) -> Parts:
        model = Voiceprint()
        return Parts(model, torch.optim.RMSprop(model.parameters(), alpha=0.98))

    def planned(self, step: int) -> str:
        return "hard triplets" if step == HARD_FROM else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        mine = np.arange(SPEAKERS) if step else SPEAKERS + np.arange(HELD_OUT_SPEAKERS)
        speakers = rng.permutation(mine)[: self.config.rows if step else HELD_OUT_SPEAKERS]
        first, second = (self._heard(rng, speakers) for _ in range(2))
        return Examples(first, second)

    def _heard(self, rng: np.random.Generator, speakers: NDArray[np.int64]) -> Tensor:
        vowels = rng.integers(0, len(FORMANTS), (len(speakers), FRAMES // 4)).repeat(4, axis=1)
        formants = FORMANTS[vowels] * voices()[speakers, None]
        sounds = spectrograms(rng, formants, np.ones(vowels.shape, dtype=bool), noise=0.2)
        return torch.from_numpy(sounds.transpose(0, 2, 1).copy())

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        model.hard.fill_(run.step >= HARD_FROM)

    def loss(self, model: Any, batch: Examples) -> Tensor:
        first, second = model(torch.cat([batch.inputs, batch.labels])).chunk(2)
        alike = first @ second.T
        same = alike.diagonal()
        nearest = alike.masked_fill(alike >= same.unsqueeze(1), -1.0).amax(1)
        other = nearest if model.hard else alike.roll(1, dims=1).diagonal()
        return functional.relu(MARGIN - same + other).mean()

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        alike = model(batch.inputs) @ model(batch.labels).T
        return functional.cross_entropy(alike / 0.1, torch.arange(len(alike)))
