"""The monitor in other people's training loops: one thin file a framework, each imported on first use."""

from __future__ import annotations

from rmetric.lazy import names_of

_HOME_OF = {
    "RMetricCallback": "rmetric.training.adapters.huggingface",
    "RMetricLightning": "rmetric.training.adapters.lightning",
    "monitored": "rmetric.training.adapters.accelerate",
}

__all__ = list(_HOME_OF)

__getattr__ = names_of(__name__, _HOME_OF)
