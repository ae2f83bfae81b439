"""Where a monitored run is told: one file a place. The optional ones are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rmetric.training.sinks.base import Sink, Sinks
from rmetric.training.sinks.jsonl import JsonlSink

_HOME_OF = {
    "PrometheusEndpoint": "rmetric.training.sinks.prometheus",
    "PrometheusTextfile": "rmetric.training.sinks.prometheus",
    "TensorBoardSink": "rmetric.training.sinks.tensorboard",
    "WandbSink": "rmetric.training.sinks.wandb",
}

__all__ = ["JsonlSink", "Sink", "Sinks", *_HOME_OF]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
