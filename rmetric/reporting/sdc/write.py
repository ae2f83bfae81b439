"""A campaign to its files."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pandas as pd

from rmetric.evaluation.scores import Score
from rmetric.records import read_run, write_atomically
from rmetric.reporting.figures.save import write as write_figure
from rmetric.reporting.figures.save import write_captions
from rmetric.reporting.formats import Table
from rmetric.reporting.formats import write as write_table
from rmetric.reporting.sdc import figure
from rmetric.reporting.sdc.outcomes import outcomes_frame
from rmetric.reporting.sdc.tables import (
    bits_table,
    detection_table,
    localisation_table,
    repair_table,
    sensitivity_table,
    share,
)
from rmetric.training.sdc.detection import SCORED, judged_steps_of
from rmetric.training.sdc.outcome import LASTING, OUTCOMES

if TYPE_CHECKING:
    from rmetric.training.sdc.healthy import Healthy
    from rmetric.training.sdc.runner import CampaignResult

CAMPAIGN, OUTCOMES_CSV, SUMMARY = "campaign.json", "outcomes.csv", "summary.json"


def write_results(result: CampaignResult, healthy: Healthy | None, out: Path, command: str) -> list[Table]:
    """Tables, map, ``outcomes.csv``, ``campaign.json`` and, last, ``summary.json``; returns the tables for the screen.

    Parameters
    ----------
    result
        The campaign; its logs must still be in ``result.out``.
    healthy
        What the policy did to a healthy run; None: not measured.
    out
        Existing folder. Results of an earlier campaign in it are replaced.
    command
        What was typed; it stands in the summary and the captions.
    """
    (out / SUMMARY).unlink(missing_ok=True)
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
    drawing = figure.draw(frame, about)
    write_figure(drawing, out)
    write_captions([drawing], command, out)
    result.campaign.save(out / CAMPAIGN)
    write_atomically(out / OUTCOMES_CSV, frame.to_csv(index=False, lineterminator="\n").encode())
    content = summary(result, frame, healthy, command)
    write_atomically(out / SUMMARY, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    return tables


def healthy_alarms(result: CampaignResult) -> tuple[dict[str, int], dict[str, int]]:
    """Detector → steps of the twin above its threshold, and steps that it could judge; ``disagreement`` too."""
    from rmetric.training.sdc.disagreement import NORM_FACTOR  # imports torch
    from rmetric.training.sdc.twin import NAME

    judged = judged_steps_of(read_run(result.out / NAME).observations)
    scores = np.array(list(result.twin.disagreement.values()))
    alarms = {name: above for name, (above, _) in judged.items()}
    steps = {name: known for name, (_, known) in judged.items()}
    alarms["disagreement"] = int((scores > math.log(NORM_FACTOR)).sum())
    steps["disagreement"] = int((~np.isnan(scores)).sum())
    return alarms, steps


def summary(result: CampaignResult, frame: pd.DataFrame, healthy: Healthy | None, command: str) -> dict[str, Any]:
    """The figures that others read: ``repaired_share`` (0 to 1, of the harmful transient flips), and
    ``repair_overhead_pct`` (computations done twice in a healthy run, per cent); null where not measured."""
    tried = frame[frame["repaired"].notna() & frame["transient"].astype(bool)]
    repaired = share(int(tried["repaired"].astype(bool).sum()), len(tried))
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
    return share(int(harmful[f"delay_{name}"].notna().sum()), len(harmful))


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _about(result: CampaignResult) -> str:
    settings, count = result.campaign.settings, len(result.campaign.injections)
    onsets = ", ".join(map(str, result.campaign.onsets))
    return (
        f"{count:,} injections into {settings.model} ({settings.dtype}, seed {settings.seed}, {settings.workers} "
        f"workers), struck at steps {onsets}, watched for {settings.window} steps. Top bits are drawn more often than "
        "their share of all bits, so sums over bits are those of this draw."
    )
