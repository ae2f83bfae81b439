"""A campaign as a frame, and its files."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pandas as pd

from rmetric.evaluation.scores import Score
from rmetric.files import write_atomically
from rmetric.log_reader import read_log
from rmetric.reporting.style import write_figures
from rmetric.reporting.table import Table
from rmetric.reporting.table import write as write_table
from studies.sdc import figure
from studies.sdc.detection import SCORED, judged_steps_of
from studies.sdc.outcome import LASTING, OUTCOMES
from studies.sdc.tables import (
    BITS,
    DETECTION,
    LOCALISATION,
    REPAIR,
    SENSITIVITY,
    bits_table,
    detection_table,
    localisation_table,
    repair_table,
    sensitivity_table,
)

if TYPE_CHECKING:
    from studies.sdc.run import CampaignResult, InjectionResult
    from studies.sdc.twin import HealthyRepair

LAG = {"update_rms_threshold": 1}
"""Steps by which a detector is late by its nature: a record holds the update of the step before."""
TRUSTED = tuple(name for name in SCORED if name != "r_metric")
"""Detectors whose first alarm says which step it was; the R-Metric in the paper's setting alarms on healthy steps."""


def outcomes_frame(result: CampaignResult) -> pd.DataFrame:
    """One row an injection; what is not measured or has no meaning is missing.

    ``delay_<detector>``: steps from the flip to the first alarm, missing if it was not seen within 10 steps.
    ``step_error``: the step that the earliest alarm names minus the faulty one. ``worker_right``, ``layer_right``,
    ``tensor_right``: the place found by computing the step again, against the truth.
    """
    return pd.DataFrame([_row(item) for item in result.results])


def bit_name(dtype: str, bit: int) -> str:
    """A bit by what it is: ``s``, ``e7`` (top of the exponent) to ``e0``, ``m22`` (top of the mantissa) to ``m0``.

    >>> bit_name("float32", 30), bit_name("float32", 31), bit_name("bfloat16", 6)
    ('e7', 's', 'm6')
    """
    mantissa, width = {"float64": (52, 64), "float32": (23, 32), "float16": (10, 16), "bfloat16": (7, 16)}[dtype]
    return "s" if bit == width - 1 else f"e{bit - mantissa}" if bit >= mantissa else f"m{bit}"


def _row(result: InjectionResult) -> dict[str, Any]:
    injection, effect, score, repaired = result.injection, result.effect, result.diagnosis_score, result.repaired
    found = result.diagnosis
    row: dict[str, Any] = {"number": result.number, **vars(injection)}
    row |= {"transient": injection.transient, "dtype": result.dtype, "bit_part": result.bit_part}
    row |= {"bit_name": bit_name(result.dtype, injection.bit), "before": result.before, "after": result.after}
    row |= {**vars(effect), "harmful": effect.harmful}
    row |= {f"delay_{name}": delay for name, delay in result.delays.items()}
    row |= {"disagreement": result.disagreement, "disagreement_alarm": result.disagreement_alarm}
    row |= {"suspect": result.suspect, "step_error": _step_error(result), "visible": score.visible}
    row |= {"found_stage": found.stage, "found_workers": " ".join(map(str, found.workers))}
    row |= {"found_tensors": " ".join(found.tensors), "named": score.named}
    row |= {"worker_right": score.worker, "layer_right": score.layer, "tensor_right": score.tensor}
    row["repaired"] = None if repaired is None else repaired.identical
    row["repair_verdicts"] = "" if repaired is None else "; ".join(repaired.verdicts)
    row["repair_steps"] = "" if repaired is None else " ".join(map(str, repaired.steps))
    row["outcome_repaired"] = "" if repaired is None else repaired.outcome
    return row


def _step_error(result: InjectionResult) -> int | None:
    """Distance of the step that the earliest alarm names from the faulty one; None without an alarm."""
    named = [delay - LAG.get(name, 0) for name, delay in result.delays.items() if delay is not None and name in TRUSTED]
    return min([*named, *([0] if result.disagreement_alarm else [])], default=None)


CAMPAIGN, OUTCOMES_CSV, SUMMARY = "campaign.json", "outcomes.csv", "summary.json"
TABLES = (SENSITIVITY, BITS, DETECTION, LOCALISATION, REPAIR)
MADE = (*(f"{name}.*" for name in (*TABLES, figure.NAME)), "captions.md", OUTCOMES_CSV, SUMMARY)
"""Patterns of what is written, but for the campaign: it may be the one that was done again, and be lost."""


def write_results(result: CampaignResult, healthy: HealthyRepair | None, out: Path, command: str) -> list[Table]:
    """Tables, map, ``outcomes.csv``, ``campaign.json`` and, last, ``summary.json``; returns the tables for the screen.

    Results of an earlier campaign are replaced. The logs must still be in ``result.out``. Without ``healthy`` nobody
    measured what the policy does to a healthy run.
    """
    for pattern in MADE:
        for old in out.glob(pattern):
            old.unlink()
    frame, about = outcomes_frame(result), _about(result)
    alarms, steps = healthy_alarms(result)
    tables = [
        sensitivity_table(frame, about),
        bits_table(frame, about),
        detection_table(frame, alarms, steps, about),
        localisation_table(frame, about),
    ]
    if result.policy:
        tables.append(repair_table(frame, result.policy, healthy, about))
    for table in tables:
        write_table(table, out)
    write_figures([figure.draw(frame, about)], command, out)
    result.campaign.save(out / CAMPAIGN)
    write_atomically(out / OUTCOMES_CSV, frame.to_csv(index=False, lineterminator="\n").encode())
    content = summary(result, frame, healthy, command)
    write_atomically(out / SUMMARY, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    return tables


def healthy_alarms(result: CampaignResult) -> tuple[dict[str, int], dict[str, int]]:
    """Detector → steps of the twin above its threshold, and steps that it could judge; ``disagreement`` too."""
    from studies.sdc.gradients import NORM_FACTOR  # imports torch
    from studies.sdc.twin import TWIN_LOG

    judged = judged_steps_of(read_log(result.out / TWIN_LOG).observations)
    scores = np.array(list(result.twin.disagreement.values()))
    alarms = {name: above for name, (above, _) in judged.items()}
    steps = {name: known for name, (_, known) in judged.items()}
    alarms["disagreement"] = int((scores > math.log(NORM_FACTOR)).sum())
    steps["disagreement"] = int((~np.isnan(scores)).sum())
    return alarms, steps


def summary(result: CampaignResult, frame: pd.DataFrame, healthy: HealthyRepair | None, command: str) -> dict[str, Any]:
    """The figures that others read: ``repaired_share`` (0 to 1, of the harmful transient flips), and
    ``repair_overhead_pct`` (computations done twice in a healthy run, per cent); null where not measured."""
    tried = frame[frame["repaired"].notna() & frame["transient"].astype(bool)]
    repaired = Score.share(int(tried["repaired"].astype(bool).sum()), len(tried))
    settings = asdict(result.campaign.settings)
    return {
        "command": command,
        **settings,
        "injections": len(frame),
        "onsets": list(result.campaign.onsets),
        "outcomes": {name: int((frame["outcome"] == name).sum()) for name in OUTCOMES},
        "harmful": int(frame["harmful"].sum()),
        "lasting": int(frame["outcome"].isin(LASTING).sum()),
        "harmful_transient": int((frame["harmful"] & frame["transient"]).sum()),
        "policy": list(result.policy),
        "repaired": int(tried["repaired"].astype(bool).sum()) if len(tried) else None,
        "repair_tried": len(tried),
        "repaired_share": _plain(repaired.value),
        "repaired_share_low": _plain(repaired.low),
        "repaired_share_high": _plain(repaired.high),
        "repair_overhead_pct": None if healthy is None else healthy.computations_pct,
        "repair_cpu_pct": None if healthy is None else healthy.cpu_pct,
        "healthy_steps": None if healthy is None else healthy.steps,
        "false_repairs": None if healthy is None else healthy.false_repairs,
        "healthy_identical": None if healthy is None else healthy.identical,
        "seen_within_10_steps_of_harmful": {name: _plain(_seen(frame, name).value) for name in SCORED},
        "seconds": round(result.seconds, 1),
    }


def _seen(frame: pd.DataFrame, name: str) -> Score:
    harmful = frame[frame["harmful"].astype(bool)]
    return Score.share(int(harmful[f"delay_{name}"].notna().sum()), len(harmful))


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _about(result: CampaignResult) -> str:
    settings, count = result.campaign.settings, len(result.campaign.injections)
    onsets = ", ".join(map(str, result.campaign.onsets))
    return (
        f"{count:,} injections into {settings.model} ({settings.dtype}, seed {settings.seed}, {settings.workers} "
        f"workers), flipped at steps {onsets}, watched for {settings.window} steps. Top bits are drawn more often than "
        "their share of all bits, so sums over bits are those of this draw."
    )
