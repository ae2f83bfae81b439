"""Keywords are learnt four at first, and every 350 steps four more: a curriculum of classes for a conformer."""

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
from studies.zoo.stages import holding
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind
from studies.zoo.transformer import Attention, FeedForward, Size

FRAMES, VOWELS, KEYWORDS = 24, 3, 16
KNOWN_FROM = {0: 4, 351: 8, 701: 12, 1051: 16}
"""Step → keywords that are trained on from then on."""
IGNORED = -100


@cache
def keywords() -> NDArray[np.int64]:
    """Vowels of each keyword, (KEYWORDS, VOWELS), the same in every run."""
    rng = np.random.default_rng(stable_hash("keyword stages"))
    every = np.stack(np.unravel_index(np.arange(len(FORMANTS) ** VOWELS), VOWELS * (len(FORMANTS),)), axis=1)
    return rng.permutation(every)[:KEYWORDS]


class Conformer(nn.Module):
    """Attention, a gated convolution over neighbours and two layers, each beside a residual path."""

    def __init__(self, width: int) -> None:
        super().__init__()
        size = Size(width=width, causal=False)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.attention, self.feed_forward = Attention(size), FeedForward(size)
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.over_time = nn.Conv1d(width, width, 7, padding=3, groups=width)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, FRAMES, width) to the same."""
        hidden = hidden + self.attention(self.norms[0](hidden))
        gated = functional.glu(self.into(self.norms[1](hidden)), dim=2)
        near = self.over_time(gated.transpose(1, 2)).transpose(1, 2)
        hidden = hidden + self.out(functional.silu(self.norms[2](near)))
        mixed: Tensor = hidden + self.feed_forward(self.norms[3](hidden))
        return mixed


class Spotter(nn.Module):
    """From spectrograms to logits of all keywords; it holds how many of them are known."""

    known: Tensor

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(BANDS, width), nn.Linear(width, KEYWORDS)
        self.layers = nn.Sequential(Conformer(width), Conformer(width), nn.LayerNorm(width))
        self.register_buffer("known", torch.tensor(KNOWN_FROM[0]))

    def forward(self, sounds: Tensor) -> Tensor:
        """Logits, (B, KEYWORDS), of spectrograms, (B, FRAMES, BANDS)."""
        logits: Tensor = self.out(self.layers(self.into(sounds)).mean(1))
        return logits


@register_kind("keyword_stages")
@dataclass(frozen=True, kw_only=True)
class KeywordStages(Kind):
    """New keywords come with the old ones, and the loss leaps up at each stage; held out are those known by then.

    **Source:** Bengio et al. 2009, Curriculum Learning; Gulati et al. 2020, Conformer.
    """

    family = "speech"
    optimizer = "AdamW"
    why = "new classes every 350 steps, of which the last layer has only learnt that they never come"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=20, learning_rate=2e-3, warm_up_steps=50, clip=1.0)

    def make(self, seed: int) -> Parts:
        model = Spotter()
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.01))

    def planned(self, step: int) -> str:
        return "four more keywords" if step in KNOWN_FROM else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        known = holding(KNOWN_FROM, step) if step else KEYWORDS
        labels = rng.integers(0, known, self.rows(step))
        ends = np.sort(rng.integers(4, FRAMES - 4, (len(labels), VOWELS - 1)), axis=1)
        place = (np.arange(FRAMES) >= ends[:, :, None]).sum(1)
        vowels = np.take_along_axis(keywords()[labels], place, axis=1)
        sounds = spectrograms(rng, FORMANTS[vowels], np.ones(vowels.shape, dtype=bool), noise=0.6)
        return Examples(torch.from_numpy(sounds), torch.from_numpy(labels))

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        model.known.fill_(holding(KNOWN_FROM, run.step))

    def loss(self, model: Any, batch: Examples) -> Tensor:
        labels = batch.labels.where(batch.labels < model.known, torch.tensor(IGNORED))
        return functional.cross_entropy(model(batch.inputs), labels)
