"""The run that a campaign strikes."""

from __future__ import annotations

from functools import lru_cache

import torch

from rmetric.training.corpus import standard_library
from rmetric.training.live_run import LiveRun, LiveRunConfig
from rmetric.training.models import tiny_model
from rmetric.training.sdc.plan import Settings

AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def fresh_run(settings: Settings) -> LiveRun:
    """Model, optimizer and text as planned, on the CPU."""
    model = tiny_model(settings.model, seed=settings.seed, context=max(settings.length, 64))
    model.set_attn_implementation("eager")  # a fused kernel hides its two products
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    config = LiveRunConfig(
        seed=settings.seed,
        rows=settings.rows,
        length=settings.length,
        workers=settings.workers,
        learning_rate=settings.learning_rate,
        autocast=AUTOCAST[settings.dtype],
    )
    return LiveRun(model, optimizer, standard_library(), config)


@lru_cache(maxsize=1)
def shared_run(settings: Settings) -> LiveRun:
    """One run a process, for snapshots to be loaded into; a single thread, so that sums come out the same in each."""
    torch.set_num_threads(1)
    return fresh_run(settings)
