"""The monitor in other people's training loops: one thin file a framework, each imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME_OF = {
    "RMetricCallback": "rmetric.training.adapters.huggingface",
    "RMetricLightning": "rmetric.training.adapters.lightning",
    "monitored": "rmetric.training.adapters.accelerate",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
