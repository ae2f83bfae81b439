"""Whether an update is certainly wrong, by the record of its step."""

from __future__ import annotations

import math

from rmetric.detectors.numerics import OF_THE_STEP, broken_evaluation
from rmetric.measurements import Observation
from rmetric.monitor.pipeline import StepPipeline

VETO_DETECTORS = ("numerics",)
"""Detectors whose alarm vetoes an update: they look only for numbers that no healthy step produces."""


def vetoed(pipeline: StepPipeline) -> bool:
    """Return whether the gradient of the latest step is not finite, or a detector's alarm vetoes the update."""
    last = pipeline.last
    broken = last is not None and math.isinf(last["grad_norm"])
    alerted = not {*VETO_DETECTORS}.isdisjoint(pipeline.exceeded) and not _evaluation_alone_is_broken(last)
    return broken or alerted


def _evaluation_alone_is_broken(last: Observation | None) -> bool:
    """Return whether a validation loss is all that is wrong: then the update is not."""
    return last is not None and broken_evaluation(last) and not any(math.isinf(last[name]) for name in OF_THE_STEP)
