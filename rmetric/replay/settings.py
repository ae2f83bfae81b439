"""Settings of a replay: the R-Metric, by a preset or as the log itself was written with, and what of a log is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.errors import UserError
from rmetric.importers import AUTO
from rmetric.metric import PRESETS, RMetric
from rmetric.registry import Registry
from rmetric.replay.events import is_finite_number

ThreeWeights = tuple[float, float, float]
"""Weights of λ, σ² and ΔL."""

LOGGED = "logged"
"""The preset that takes weights and threshold from the log's own configuration."""

PRESET_NAMES: Registry[str] = Registry("preset")
for _name in (*PRESETS, LOGGED):
    PRESET_NAMES.add(_name, _name)

_WEIGHT_NAMES = (
    ("w1_lambda", "lambda"),
    ("w2_sigma_sq", "sigma_sq", "sigma_squared"),
    ("w3_delta_l", "delta_l"),
)
"""The authors wrote them under three sets of names."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """Choice of the R-Metric. Raises :class:`UserError` for an unknown preset or weights that cannot be."""

    preset: str = "paper"
    """A name of :data:`rmetric.metric.PRESETS`, or ``logged``: weights and threshold as the log's configuration has
    them."""
    weights: ThreeWeights | None = None
    """Weights of λ, σ² and ΔL in place of the preset's."""
    threshold: float | None = None
    """Threshold of R in place of the preset's."""

    def __post_init__(self) -> None:
        _ = PRESET_NAMES[self.preset]
        self.metric({})

    def metric(self, config: Mapping[str, Any]) -> tuple[RMetric, list[str]]:
        """A fresh metric for a log with that configuration, and notes on what the configuration leaves open."""
        preset = PRESETS.get(self.preset, RMetric.paper)()
        weights, threshold = _logged_weights(config), _logged_threshold(config)
        notes = self._notes(preset, weights, threshold)
        if self.preset != LOGGED:
            weights = threshold = None
        changes = {
            "weights": weights if self.weights is None else self.weights,
            "threshold": threshold if self.threshold is None else self.threshold,
        }
        try:
            return preset.fresh(**{name: value for name, value in changes.items() if value is not None}), notes
        except ValueError as error:
            raise UserError(str(error)) from error

    def _notes(self, preset: RMetric, weights: ThreeWeights | None, threshold: float | None) -> list[str]:
        if self.preset == LOGGED:
            given = {"weights": (weights, self.weights), "threshold": (threshold, self.threshold)}
            missing = [name for name, values in given.items() if values == (None, None)]
            return [f"the log states no {' and no '.join(missing)}; the paper's are used"] if missing else []
        if self.weights is None and weights is not None and weights != tuple(preset.weights):
            shown = ", ".join(f"{weight:g}" for weight in weights)
            return [f"the log was written with the weights {shown}; --preset logged replays with them"]
        return []


def parse_weights(text: str) -> ThreeWeights:
    """Three weights out of ``a,b,c``; raises ``ValueError`` if they are no three numbers.

    >>> parse_weights("0.1, 0.45, 0.7")
    (0.1, 0.45, 0.7)
    """
    parts = [float(part) for part in text.split(",")]
    if len(parts) != 3 or not all(part >= 0 and math.isfinite(part) for part in parts):
        raise ValueError(f"{text!r} must be three finite numbers of at least 0: the weights of λ, σ² and ΔL")
    return parts[0], parts[1], parts[2]


def _logged_weights(config: Mapping[str, Any]) -> ThreeWeights | None:
    """The weights that a log's configuration states; ``None`` unless it has all three.

    >>> _logged_weights({"r_metric_weights": {"lambda": 0, "sigma_squared": 0.5, "delta_l": 0.78}})
    (0.0, 0.5, 0.78)
    """
    stated = config.get("r_metric_weights")
    if not isinstance(stated, dict):
        return None
    found = [next((stated[name] for name in names if name in stated), None) for names in _WEIGHT_NAMES]
    numbers = [float(value) for value in found if value is not None and is_finite_number(value) and value >= 0]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _logged_threshold(config: Mapping[str, Any]) -> float | None:
    """The threshold of R that a log's configuration states, or ``None``."""
    thresholds = config.get("alert_thresholds")
    stated = thresholds.get("r_metric") if isinstance(thresholds, dict) else config.get("r_metric_alert_threshold")
    return float(stated) if stated is not None and is_finite_number(stated) else None


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Choices of a replay, as :func:`~rmetric.replay.one_log.replay_log` takes them."""

    settings: ReplaySettings = field(default_factory=ReplaySettings)
    """Which R-Metric."""
    log_format: str = AUTO
    """Name of the log's format; ``auto`` judges by its content."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Our name → the log's name of a column."""


AS_IT_IS = ReplayOptions()
"""The paper's R-Metric, the format judged by the content, nothing mapped."""
