"""Real training with torch: watch it, break it on purpose, explain it.

Names are resolved on first use: a part of this package that needs a library does not make the others need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME_OF = {
    "Alert": "rmetric.training.monitor",
    "LiveRun": "rmetric.training.live_run",
    "LiveRunConfig": "rmetric.training.live_run",
    "TrainingMonitor": "rmetric.training.monitor",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
