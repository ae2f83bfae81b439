"""A campaign as one row an injection: where it struck, what came of it, who saw it, where it was looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from rmetric.training.sdc.detection import SCORED

if TYPE_CHECKING:
    from rmetric.training.sdc.runner import CampaignResult
    from rmetric.training.sdc.strike import Struck

LAG = {"update_rms_threshold": 1}
"""Steps by which a detector is late by its nature: a record holds the update of the step before."""
TRUSTED = tuple(name for name in SCORED if name != "r_metric")
"""Detectors whose first alarm says which step it was; the R-Metric in the paper's setting alarms on healthy steps."""


def outcomes_frame(result: CampaignResult) -> pd.DataFrame:
    """One row an injection; what is not measured or has no meaning is missing.

    ``delay_<detector>``: steps from the flip to the first alarm, missing if it was not seen within 10 steps.
    ``step_error``: the step that the earliest alarm names minus the struck one. ``worker_right``, ``layer_right``,
    ``tensor_right``: the place found by computing the step again, against the truth.
    """
    return pd.DataFrame([_row(struck) for struck in result.struck])


def bit_name(dtype: str, bit: int) -> str:
    """A bit by what it is: ``s``, ``e7`` (top of the exponent) to ``e0``, ``m22`` (top of the mantissa) to ``m0``.

    >>> bit_name("float32", 30), bit_name("float32", 31), bit_name("bfloat16", 6)
    ('e7', 's', 'm6')
    """
    mantissa, width = {"float64": (52, 64), "float32": (23, 32), "float16": (10, 16), "bfloat16": (7, 16)}[dtype]
    return "s" if bit == width - 1 else f"e{bit - mantissa}" if bit >= mantissa else f"m{bit}"


def _row(struck: Struck) -> dict[str, Any]:
    injection, came, marks, repaired = struck.injection, struck.consequences, struck.marks, struck.repaired
    found = struck.diagnosis
    row: dict[str, Any] = {"number": struck.number, **vars(injection)}
    row |= {"transient": injection.transient, "dtype": struck.dtype, "bit_part": struck.bit_part}
    row |= {"bit_name": bit_name(struck.dtype, injection.bit), "before": struck.before, "after": struck.after}
    row |= {**vars(came), "harmful": came.harmful}
    row |= {f"delay_{name}": delay for name, delay in struck.delays.items()}
    row |= {"disagreement": struck.disagreement, "disagreement_alarm": struck.disagreement_alarm}
    row |= {"suspect": struck.suspect, "step_error": _step_error(struck), "visible": marks.visible}
    row |= {"found_stage": found.stage, "found_workers": " ".join(map(str, found.workers))}
    row |= {"found_tensors": " ".join(found.tensors), "named": marks.named}
    row |= {"worker_right": marks.worker, "layer_right": marks.layer, "tensor_right": marks.tensor}
    row["repaired"] = None if repaired is None else repaired.identical
    row["repair_verdicts"] = "" if repaired is None else "; ".join(repaired.verdicts)
    row["repair_steps"] = "" if repaired is None else " ".join(map(str, repaired.steps))
    row["outcome_repaired"] = "" if repaired is None else repaired.outcome
    return row


def _step_error(struck: Struck) -> int | None:
    """How far the step that the earliest alarm names is from the struck one; None without an alarm."""
    named = [delay - LAG.get(name, 0) for name, delay in struck.delays.items() if delay is not None and name in TRUSTED]
    return min([*named, *([0] if struck.disagreement_alarm else [])], default=None)
