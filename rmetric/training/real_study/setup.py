"""A fresh run of a tiny model, as the plan has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.training.case_study.setup import device_of
from rmetric.training.corpus import standard_library
from rmetric.training.live_run import LiveRun, LiveRunConfig
from rmetric.training.models import tiny_model
from rmetric.training.real_study.plan import RealSpec, RealStudyPlan

OPTIMIZERS: dict[str, tuple[Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer], float]] = {
    "adamw": (torch.optim.AdamW, 1e-3),
    "sgd": (partial(torch.optim.SGD, lr=0.3, momentum=0.9), 0.3),
    "adafactor": (torch.optim.Adafactor, 1e-2),
}
"""Name → optimizer and peak learning rate, with which a tiny Llama learns about as fast as under AdamW."""


def fresh_run(plan: RealStudyPlan, spec: RealSpec) -> LiveRun:
    """The run before its first step; it depends on model, optimizer and seed alone."""
    if spec.optimizer not in OPTIMIZERS:
        raise UserError(f"unknown optimizer {spec.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
    device = device_of(plan.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # several processes share the cores, and sums come out the same in each
    model = tiny_model(spec.model, seed=spec.seed, context=max(plan.length, 64)).to(device)  # type: ignore[arg-type]
    make, learning_rate = OPTIMIZERS[spec.optimizer]
    config = LiveRunConfig(
        seed=spec.seed, rows=plan.rows, length=plan.length, workers=plan.workers, learning_rate=learning_rate
    )
    return LiveRun(model, make(model.parameters()), standard_library(), config)
