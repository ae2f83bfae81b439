"""What is fitted about the robust R-Metric: tails, weights, threshold; read from one versioned file."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from rmetric.errors import UserError
from rmetric.metric import Weights
from rmetric.robust.surprise import Tail

VERSION = 2


class RobustSettings(NamedTuple):
    """All that is learned from healthy and failing runs. Immutable and plain: a checkpoint holds a copy."""

    version: int
    weights: Weights
    """Of the surprise of λ, σ² and ΔL; the largest is 1."""
    threshold: float
    """An alert is due above it."""
    budget_per_step: float
    """False alarms per healthy step that the threshold keeps on the fit half."""
    tails: dict[str, Tail]
    """Statistic → its tail in healthy runs. One that is absent counts only where it is infinite."""

    @classmethod
    def shipped(cls) -> RobustSettings:
        """Those that come with this package."""
        return _shipped()

    @classmethod
    def read(cls, path: Path) -> RobustSettings:
        """From a file that ``python -m rmetric.robust.fit`` wrote; raises :class:`UserError` for another."""
        try:
            return cls.of(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} holds no settings of the robust R-Metric ({error}); fit them again") from error

    @classmethod
    def of(cls, text: str) -> RobustSettings:
        """From the JSON text of such a file."""
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}, not {VERSION}")
        return cls(
            version=VERSION,
            weights=Weights(*(float(content["weights"][name]) for name in ("lambda", "sigma_sq", "delta_l"))),
            threshold=float(content["threshold"]),
            budget_per_step=float(content["budget_per_step"]),
            tails={
                name: Tail(tuple(map(float, tail["bars"])), tuple(map(float, tail["surprises"])))
                for name, tail in content["tails"].items()
            },
        )


@cache
def _shipped() -> RobustSettings:
    return RobustSettings.of(resources.files("rmetric.robust").joinpath("settings.json").read_text(encoding="utf-8"))
