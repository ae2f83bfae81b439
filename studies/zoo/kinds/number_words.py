"""A transformer with encoder and decoder that reads a number and writes it in words; the rest is padding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import inverse_root
from studies.zoo.text import TokenKind
from studies.zoo.training import Examples, Parts, register_kind

UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORDS = ["<pad>", "<begin>", "<end>", *UNITS, *TENS, "hundred", "thousand"]
DIGITS, LONGEST, WIDTH = 4, 9, 32
"""Digits at most; words at most, the end included."""
PADDING, IGNORED, BLANK = 0, -100, 10
MISTAKES = 0.03
"""Share of the words that are wrong, in training and held out; so the loss ends above 0."""


def words_of(number: int) -> list[str]:
    """A number below 10,000 in words.

    >>> " ".join(words_of(4217))
    'four thousand two hundred seventeen'
    """
    if number < 20:
        return [UNITS[number]]
    if number < 100:
        return [TENS[number // 10 - 2], *(words_of(number % 10) if number % 10 else [])]
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    return [*words_of(number // size), name, *(words_of(number % size) if number % size else [])]


class Translator(nn.Module):
    """One layer of encoder, one of decoder; digits and the words before each place in one row of ids."""

    def __init__(self) -> None:
        super().__init__()
        settings: dict[str, Any] = {
            "d_model": WIDTH,
            "nhead": 4,
            "dim_feedforward": 64,
            "dropout": 0.0,
            "batch_first": True,
        }
        self.digits, self.words = nn.Embedding(BLANK + 1, WIDTH), nn.Embedding(len(WORDS), WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(LONGEST, WIDTH))
        self.encoder, self.decoder = nn.TransformerEncoderLayer(**settings), nn.TransformerDecoderLayer(**settings)
        self.head = nn.Linear(WIDTH, len(WORDS))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the words, (rows, words, vocabulary), of ids, (rows, digits + words)."""
        digits, words = ids.split((DIGITS, LONGEST), dim=1)
        read = self.encoder(self.digits(digits) + self.places[:DIGITS])
        ahead = torch.ones(LONGEST, LONGEST, dtype=torch.bool).triu(1)
        said = self.decoder(
            self.words(words) + self.places, read, tgt_mask=ahead, tgt_key_padding_mask=words == PADDING
        )
        logits: Tensor = self.head(said)
        return logits


@register_kind("number_words")
@dataclass(frozen=True, kw_only=True)
class NumberWords(TokenKind):
    """Translation as in the first transformers: warm-up, then the inverse square root of the step."""

    family = "language"
    optimizer = "Adam"
    why = "encoder and decoder, padded targets, Noam schedule"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=3e-3, warm_up_steps=100)

    def make(self, seed: int) -> Parts:
        model = Translator()
        return Parts(model, torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        numbers = rng.integers(0, 10 ** rng.integers(1, DIGITS + 1, size=self.rows(step)))
        rows = [self._row(number) for number in numbers.tolist()]
        inputs, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
        wrong = torch.from_numpy(rng.random(labels.shape) < MISTAKES) & (labels != IGNORED)
        others = torch.from_numpy(rng.integers(len(WORDS), size=labels.shape))
        return Examples(inputs, labels.where(~wrong, others))

    def _row(self, number: int) -> tuple[list[int], list[int]]:
        digits = [int(digit) for digit in str(number)]
        words = [WORDS.index(word) for word in [*words_of(number), "<end>"]]
        free = LONGEST - len(words)
        read = [BLANK] * (DIGITS - len(digits)) + digits
        return [*read, WORDS.index("<begin>"), *words[:-1], *[PADDING] * free], [*words, *[IGNORED] * free]

    def rate(self, step: int, steps: int) -> float:
        return inverse_root(step, self.config.warm_up_steps)
