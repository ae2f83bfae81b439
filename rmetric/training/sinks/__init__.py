"""Where a monitored run is told: one file a place. The optional ones are imported on first use."""

from __future__ import annotations

from rmetric.lazy import names_of
from rmetric.training.sinks.base import Sink, Sinks
from rmetric.training.sinks.jsonl import JsonlSink

_HOME_OF = {
    "PrometheusEndpoint": "rmetric.training.sinks.prometheus",
    "PrometheusTextfile": "rmetric.training.sinks.prometheus",
    "TensorBoardSink": "rmetric.training.sinks.tensorboard",
    "WandbSink": "rmetric.training.sinks.wandb",
}

__all__ = ["JsonlSink", "Sink", "Sinks", *_HOME_OF]

__getattr__ = names_of(__name__, _HOME_OF)
