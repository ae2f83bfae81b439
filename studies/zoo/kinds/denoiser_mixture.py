"""A language model that fills in short gaps, long gaps and endings, told by a token which of them it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rmetric.live.corpus import BYTES
from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import inverse_root
from studies.zoo.text import TokenKind, next_bytes
from studies.zoo.training import Examples, Parts, register_kind
from studies.zoo.transformer import Size, Transformer

GAPS = ((3, 3), (2, 12), (1, 16))
"""Number and length of the gaps of each way to spoil a passage; the last one is at the end."""
MOST = max(count for count, _ in GAPS)
VOCABULARY = BYTES + MOST + len(GAPS)
"""Bytes, a token in place of each gap, and one that says in which way the passage is spoilt."""
IGNORED = -100


def spoilt(rng: np.random.Generator, passage: NDArray[np.int64], way: int) -> tuple[NDArray[np.int64], int]:
    """A passage with gaps, and then what belongs into them; and where the latter begins."""
    count, length = GAPS[way]
    kept = len(passage) - count * length
    at_end = way == len(GAPS) - 1
    places = np.array([kept]) if at_end else np.sort(rng.choice(np.arange(1, kept), count, replace=False))
    shown, missing, done = [np.array([BYTES + MOST + way])], [], 0
    for gap, place in enumerate(places + length * np.arange(count)):
        mark = np.array([BYTES + gap])
        shown += [passage[done:place], mark]
        missing += [mark, passage[place : place + length]]
        done = place + length
    shown.append(passage[done:])
    return np.concatenate(shown + missing), sum(map(len, shown))


@register_kind("denoiser_mixture")
@dataclass(frozen=True, kw_only=True)
class DenoiserMixture(TokenKind):
    """One decoder for all three ways; only what belongs into gaps counts, a fifth to a half of a row.

    **Source:** Tay et al. 2023, UL2: Unifying Language Learning Paradigms. **Deviation:** the passage is read causally.
    """

    family = "language"
    optimizer = "Adafactor"
    why = "three tasks in a batch by chance, of unlike length and hardness; Adafactor; warm-up and inverse root"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=10, length=48, learning_rate=0.03, warm_up_steps=100)

    def make(self, seed: int) -> Parts:
        model = Transformer(Size(vocabulary=VOCABULARY))
        return Parts(model, torch.optim.Adafactor(model.parameters(), lr=0.03))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = [
            next_bytes(rng, self.config.rows, self.config.length, held_out=step == 0) for _ in range(1 if step else 3)
        ]
        passages = torch.cat([each.inputs for each in drawn]).numpy()
        longest = 1 + self.config.length + 2 * MOST
        rows, counted = np.zeros((len(passages), longest), np.int64), np.zeros((len(passages), longest), bool)
        for row, passage in enumerate(passages):
            tokens, begins = spoilt(rng, passage, int(rng.integers(len(GAPS))))
            rows[row, : len(tokens)] = tokens
            counted[row, begins : len(tokens)] = True
        labels = np.where(counted, rows, IGNORED)
        return Examples(torch.from_numpy(rows[:, :-1]), torch.from_numpy(labels[:, 1:]))

    def rate(self, step: int, steps: int) -> float:
        return inverse_root(step, self.config.warm_up_steps)
