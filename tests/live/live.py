"""Live runs for tests: tiny models, short batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rmetric.live.corpus import standard_library
from rmetric.live.models import tiny_model
from rmetric.live.run import LanguageModelRun, LiveRun, LiveRunConfig
from rmetric.log_reader import read_log
from rmetric.measurements import MACHINE_MEASUREMENTS
from rmetric.monitor import TrainingMonitor
from rmetric.records import Run
from tests.helpers import lines_of


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


def without_times(log: Path) -> list[dict[str, Any]]:
    """Events of a log without what the machine's mood has an influence on: times, and what they say of the hardware."""
    timed = {*MACHINE_MEASUREMENTS, "lambda_norm", "r_metric", "alerts", "time_s"}
    return [
        {name: value for name, value in event.items() if name not in timed}
        for event in lines_of(log.read_bytes())
        if event["event"] not in ("ALERT", "HARDWARE_EVENT", "TENSOR_GRAD_NORMS")
    ]
