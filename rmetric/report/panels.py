"""The charts of a report: which measurements go into which chart, with their titles and units."""

from __future__ import annotations

from typing import Any, NamedTuple

R_ROBUST = "r_robust"
"""Name of the curve of the robust R-Metric, which is computed from a log and is no measurement of it."""


class Panel(NamedTuple):
    title: str
    unit: str
    """Empty: a plain number."""
    curves: tuple[tuple[str, str], ...]
    """Measurement and its label in the chart; the second one is dashed."""

    @property
    def name(self) -> str:
        """Name of the first measurement: that of the chart in the page."""
        return self.curves[0][0]

    def to_dict(self) -> dict[str, Any]:
        """Panel as the page reads it: name, title, unit, curves."""
        curves = [{"name": name, "label": label} for name, label in self.curves]
        return {"name": self.name, "title": self.title, "unit": self.unit, "curves": curves}


PANELS = (
    Panel("Loss", "nats", (("training_loss", "training"), ("validation_loss", "validation"))),
    Panel("Gradient norm", "", (("grad_norm", "norm"),)),
    Panel("Robust R-Metric", "decades of rarity", ((R_ROBUST, "R"),)),
    Panel("Variance of the gradients, σ²", "norm²", (("sigma_sq", "σ²"),)),
    Panel("Learning rate", "", (("learning_rate", "rate"),)),
    Panel("Step time", "s", (("step_time_s", "mean"), ("step_time_max_s", "longest"))),
    Panel("Hardware events, λ", "events/h", (("lambda", "λ"),)),
    Panel("Validation drift, ΔL", "nats", (("delta_l", "ΔL"),)),
    Panel("RMS of the update", "", (("update_rms", "RMS"),)),
    Panel("Agreement of the gradient with the steps before", "-1 to 1", (("grad_agreement", "agreement"),)),
)
"""All charts, in the order of the page. A chart that no run has anything for is left out."""
CURVES = tuple(name for panel in PANELS for name, _ in panel.curves if name != R_ROBUST)
"""Measurements that are drawn."""
