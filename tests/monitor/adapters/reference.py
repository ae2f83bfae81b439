"""A plain training loop, written out: what an adapter must have seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rmetric.live.models import tiny_model

LENGTH = 12
VOCABULARY = 32
CLIP = 0.1
LEARNING_RATE = 1e-2


def small_model() -> PreTrainedModel:
    """The model of all adapter tests: always the same weights."""
    return tiny_model("tiny-llama", seed=0, vocabulary=VOCABULARY, hidden=16, feed_forward=32, layers=1)


def tokens(rows: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """A data set of random tokens, as the model takes them."""
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, VOCABULARY, (rows, LENGTH)))
    return [{"input_ids": row, "labels": row} for row in ids]


def stacked(rows: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of a data set as a batch."""
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


@dataclass
class Trace:
    """What happened in each step."""

    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    """Before clipping."""
    sigma_sq: list[float] = field(default_factory=list)
    """Variance of the micro-batches' own gradient norms."""


def train(model: nn.Module, micro_batches: Sequence[dict[str, Tensor]], accumulated: int) -> Trace:
    """Train with AdamW, ``accumulated`` micro-batches a step and clipping at :data:`CLIP`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    trace = Trace()
    for first in range(0, len(micro_batches), accumulated):
        gradients, losses = [], []
        for batch in micro_batches[first : first + accumulated]:
            loss = model(**batch).loss
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
            losses.append(loss.item())
        norms = [math.hypot(*(part.norm().item() for part in gradient)) for gradient in gradients]
        for parameter, *parts in zip(model.parameters(), *gradients, strict=True):
            parameter.grad = torch.stack(parts).mean(dim=0)
        trace.loss.append(float(np.mean(losses)))
        trace.sigma_sq.append(float(np.var(norms)))
        trace.grad_norm.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
    return trace


def without_times(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events of a log without what differs between two runs of the same thing: how long they took."""
    return [
        {name: value for name, value in event.items() if not name.startswith(("step_time", "time_s"))}
        for event in events
        if event.get("component") != "step time"
    ]
