"""Live runs for tests: tiny models, short batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rmetric.live.corpus import standard_library
from rmetric.live.models import tiny_model
from rmetric.live.run import LanguageModelRun, LiveRun, LiveRunConfig
from rmetric.log_reader import read_log
from rmetric.monitor import TrainingMonitor
from rmetric.records import Run


def make_live_run(model: str = "tiny-llama", *, seed: int = 0, **config: Any) -> LanguageModelRun:
    """A fresh run; a batch of 4 × 16 unless told otherwise."""
    settings = {"seed": seed, "rows": 4, "length": 16, "workers": 1, **config}
    module = tiny_model(model, seed=seed)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    return LanguageModelRun(module, optimizer, standard_library(), LiveRunConfig(**settings))


def watched(run: LanguageModelRun, **options: Any) -> TrainingMonitor:
    """A monitor on a run that tells nobody; slow steps only, so that no test depends on this machine's hardware."""
    monitor = TrainingMonitor(run.model, run.optimizer, **{"hardware": False, "announce": False, **options})
    run.observer = monitor
    return monitor


def train(run: LiveRun, steps: int) -> list[float]:
    """Losses of some steps."""
    return [run.train_step().item() for _ in range(steps)]


def read(log: Path) -> Run:
    """A log without any damage."""
    return read_log(log)
