"""Search: questions find their document among others, and every 200 steps the others are those that misled it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.memory import Memory
from studies.zoo.optimizers import Lamb
from studies.zoo.schedules import linear
from studies.zoo.stages import begins_anew
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

DOCUMENTS, TOPICS, OF_TOPIC, WORDS = 480, 24, 20, 600
"""``OF_TOPIC``: words that documents of a topic draw from; the rest of the words belongs to none."""
LENGTH, ASKED, OWN = 14, 5, 5
"""Words of a document, of a question, and of a document that are of no topic."""
ROUND, NEAREST, NEGATIVES = 200, 24, 7


@cache
def documents() -> Tensor:
    """Words of each document, (DOCUMENTS, LENGTH), the same in every run."""
    rng = np.random.default_rng(stable_hash("mined negatives"))
    topic = np.arange(DOCUMENTS)[:, None] % TOPICS
    common = topic * OF_TOPIC + rng.integers(0, OF_TOPIC, (DOCUMENTS, LENGTH - OWN))
    own = rng.integers(TOPICS * OF_TOPIC, WORDS, (DOCUMENTS, OWN))
    return torch.from_numpy(np.concatenate([common, own], axis=1))


def questions(rng: np.random.Generator, about: NDArray[np.int64]) -> Tensor:
    """Some words of each document, (B, ASKED), in another language: each has a number of its own there."""
    chosen = rng.random((len(about), LENGTH)).argsort(axis=1)[:, :ASKED]
    return documents()[about].gather(1, torch.from_numpy(chosen))


class TwoEncoders(nn.Module):
    """Mean of the words and two layers, for questions and for documents."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.question, self.document = (
            nn.Sequential(nn.EmbeddingBag(WORDS, width), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
            for _ in range(2)
        )

    def scores(self, asked: Tensor, read: Tensor) -> Tensor:
        """How well questions, (B, ASKED), fit all of some documents, (D, LENGTH), or each its own, (B, D, LENGTH)."""
        vectors = self.document(read.flatten(0, -2)).unflatten(0, read.shape[:-1])
        return (vectors @ self.question(asked).unsqueeze(2)).squeeze(2)


@register_kind("mined_negatives")
@dataclass(frozen=True, kw_only=True)
class MinedNegatives(Kind):
    """Drawn at random at first, the wrong documents become the nearest ones of all, and the loss leaps up.

    As it is drawn, a batch has as labels the right document and places among the others. Held out: all documents.

    **Source:** Xiong et al. 2021, Approximate Nearest Neighbor Negative Contrastive Learning (ANCE).
    """

    family = "contrastive"
    optimizer = "LAMB"
    why = "harder examples every 200 steps, chosen by the model itself: stairs up in the loss, while search gets better"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=5e-3, warm_up_steps=50, clip=math.inf)
    schedule = staticmethod(partial(linear, last=0.05))

    def make(self, seed: int) -> Parts:
        model = TwoEncoders()
        any_other = torch.arange(DOCUMENTS - 1).expand(DOCUMENTS, -1)
        wrong = any_other + (any_other >= torch.arange(DOCUMENTS).unsqueeze(1))
        return Parts(model, Lamb(model.parameters(), weight_decay=0.01), {"wrong": Memory(nearest=wrong)})

    def planned(self, step: int) -> str:
        return "negatives are mined anew" if begins_anew(step, ROUND) else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        about = rng.integers(0, DOCUMENTS, self.rows(step))
        places = rng.integers(0, DOCUMENTS, (len(about), NEGATIVES))
        labels = np.concatenate([about[:, None], places], axis=1)
        return Examples(questions(rng, about), torch.from_numpy(labels))

    def experience(self, run: KindRun, batch: Examples) -> Examples:
        wrong = run.beside["wrong"].tensors
        if begins_anew(run.step, ROUND):
            wrong["nearest"] = self._mined(run)
        about, places = batch.labels[:, :1], batch.labels[:, 1:]
        others = wrong["nearest"][about[:, 0]].gather(1, places % wrong["nearest"].shape[1])
        return Examples(batch.inputs, torch.cat([about, others], dim=1))

    @torch.no_grad()
    def _mined(self, run: KindRun) -> Tensor:
        """Wrong documents that fit a question about each document best, (DOCUMENTS, NEAREST)."""
        model: Any = run.model
        asked = questions(run.rng("mined_negatives/questions"), np.arange(DOCUMENTS))
        scores = model.scores(asked, documents())
        return scores.fill_diagonal_(-math.inf).topk(NEAREST, dim=1).indices

    def loss(self, model: Any, batch: Examples) -> Tensor:
        scores = model.scores(batch.inputs, documents()[batch.labels])
        return functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return functional.cross_entropy(model.scores(batch.inputs, documents()), batch.labels[:, 0])
