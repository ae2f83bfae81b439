"""A pretrained language model for kinds that fine-tune: the same for all seeds, trained once a process."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import torch

from rmetric.live.corpus import Corpus, corpus_of, documentation
from studies.zoo.text import next_bytes, token_loss
from studies.zoo.transformer import Size, Transformer

STEPS, ROWS, LENGTH, RATE, SEED = 400, 8, 32, 3e-3, 0


def pretrained() -> Transformer:
    """A copy of a small transformer that has read the source of the standard library; random numbers stay."""
    return copy.deepcopy(_trained())


@cache
def _trained() -> Transformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Transformer(Size())
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
        for step in range(STEPS):
            rng = np.random.default_rng((SEED, step))
            loss = token_loss(model, next_bytes(rng, ROWS, LENGTH, held_out=False))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model.requires_grad_(True)


@cache
def other_domain() -> Corpus:
    """Prose in capital letters: the help texts of Python, far enough from what the model has read."""
    text = documentation()
    capitals = np.concatenate([text.train, text.held_out]).astype(np.uint8).tobytes().upper()
    return corpus_of(f"{text.name}, in capitals", np.frombuffer(capitals, dtype=np.uint8), text.vocabulary)
