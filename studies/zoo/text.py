"""Text for the zoo's language models: bytes that every machine has, and the loss of the next one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.corpus import Corpus, standard_library
from studies.zoo.training import Examples, Kind

HELD_OUT_PASSAGES = 32
"""Rows of a held-out batch, each of many tokens."""


def next_bytes(
    rng: np.random.Generator, rows: int, length: int, *, held_out: bool, corpus: Corpus | None = None
) -> Examples:
    """Passages of a text, and as labels the same passages one byte later; each of shape (rows, length).

    Parameters
    ----------
    rng
        Where the passages begin.
    rows, length
        Of a batch to train on; a held-out one has :data:`HELD_OUT_PASSAGES` rows.
    held_out
        Whether they come from the end of the text, on which no step trains.
    corpus
        The text; by default the source of the standard library.
    """
    corpus = corpus or standard_library()
    tokens = corpus.held_out if held_out else corpus.train
    starts = rng.integers(0, len(tokens) - length - 1, size=HELD_OUT_PASSAGES if held_out else rows)
    passages = torch.from_numpy(tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64))
    return Examples(passages[:, :-1], passages[:, 1:])


def token_loss(model: nn.Module, batch: Examples) -> Tensor:
    """Mean cross-entropy of the labels, nats a token; a label of -100 does not count."""
    return functional.cross_entropy(model(batch.inputs).flatten(0, 1), batch.labels.flatten())


@dataclass(frozen=True, kw_only=True)
class TokenKind(Kind):
    """A kind whose model gives logits of each token of a row."""

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return token_loss(model, batch)


@dataclass(frozen=True, kw_only=True)
class NextByteKind(TokenKind):
    """A kind that predicts the next byte of a text."""

    @staticmethod
    def text() -> Corpus | None:
        """The text; ``None``: the source of the standard library."""
        return None

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return next_bytes(rng, self.config.rows, self.config.length, held_out=step == 0, corpus=self.text())
