"""Tables of a campaign: sensitivity by kernel and by bit, detection, localisation, repair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from rmetric.detectors import DETECTORS
from rmetric.evaluation.scores import Score, poisson_upper
from rmetric.reporting.table import Cell, Column, Table
from studies.sdc.detection import SCORED, WITHIN_STEPS
from studies.sdc.outcome import BIT_ORDER, DEFINITIONS, LASTING, OUTCOMES
from studies.sdc.plan import STAGES

if TYPE_CHECKING:
    from studies.sdc.twin import HealthyRepair

SENSITIVITY, BITS, DETECTION, LOCALISATION, REPAIR = (
    "sdc_sensitivity", "sdc_bits", "sdc_detection", "sdc_localisation", "sdc_repair",
)  # fmt: skip
NO_FLIP = "there is none of this kind"
EXCESS = (
    "Largest excess: the most by which a held-out loss of the window lay above the twin's; ∞ where it was not finite, "
    "or the run had ended."
)
INTERVAL = "In brackets: exact 95 % intervals of shares (Clopper–Pearson)."


def sensitivity_table(frame: pd.DataFrame, about: str) -> Table:
    """One row a stage, target and kernel."""
    rows: list[dict[str, Cell]] = [
        {"stage": str(keys[0]), "target": str(keys[1]), "kernel": str(keys[2]), **_outcomes(group)}
        for keys, group in sorted(
            frame.groupby(["stage", "target", "kernel"], sort=False),
            key=lambda item: (STAGES.index(item[0][0]), item[0][1:]),
        )
    ]
    columns = [
        Column("stage", "Stage"),
        Column("target", "Target"),
        Column("kernel", "Kernel"),
        *_outcome_columns(),
    ]
    caption = f"What came of single flipped bits, by what they result. {about} {DEFINITIONS} {EXCESS} {INTERVAL}"
    return Table(SENSITIVITY, "Silent data corruption: sensitivity by kernel", caption, columns, rows)


def bits_table(frame: pd.DataFrame, about: str) -> Table:
    rows: list[dict[str, Cell]] = [
        {"stage": str(keys[0]), "bit": str(keys[1]), **_outcomes(group)}
        for keys, group in sorted(
            frame.groupby(["stage", "bit_name"], sort=False),
            key=lambda item: (STAGES.index(item[0][0]), BIT_ORDER.index(item[0][1])),
        )
    ]
    columns = [Column("stage", "Stage"), Column("bit", "Bit"), *_outcome_columns()]
    caption = (
        "What came of single flipped bits, by stage and bit: s sign, e7 the top bit of the exponent (of float16 e4; "
        f"memory and payload are float32 in any campaign), m mantissa. {about} {DEFINITIONS} {EXCESS} {INTERVAL}"
    )
    return Table(BITS, "Silent data corruption: sensitivity by bit", caption, columns, rows)


def _outcome_columns() -> list[Column]:
    heads = {"non_finite": "NaN"}
    columns = [Column("injections", "Flips", 0)]
    columns += [Column(name, heads.get(name, name.capitalize()), 0) for name in OUTCOMES]
    return [*columns, Column("harmful", "Harmful", 2), Column("worst_pct", "Largest excess, %", None)]


def _outcomes(group: pd.DataFrame) -> dict[str, Cell]:
    counts: dict[str, Cell] = {name: int((group["outcome"] == name).sum()) for name in OUTCOMES}
    return {
        "injections": len(group),
        **counts,
        "harmful": Score.share(int(group["harmful"].sum()), len(group)),
        "worst_pct": float(f"{100.0 * group['largest_excess'].max():.3g}"),
    }


def detection_table(
    frame: pd.DataFrame, healthy_alarms: Mapping[str, int], healthy_steps: Mapping[str, int], about: str
) -> Table:
    """One row a detector.

    Parameters
    ----------
    frame
        Of the outcomes.
    healthy_alarms, healthy_steps
        Detector → steps of the healthy twin above its threshold, and steps that it could judge.
    """
    rows = [
        _detector_row(frame, DETECTORS[name].title or name, frame[f"delay_{name}"].notna(), frame[f"delay_{name}"])
        | _false_alarms(healthy_alarms[name], healthy_steps[name])
        for name in SCORED
    ]
    alarm = frame["disagreement_alarm"].astype(bool)
    rows.append(
        _detector_row(frame, "workers disagree (norm)", alarm, pd.Series(0.0, frame.index).where(alarm))
        | _false_alarms(healthy_alarms["disagreement"], healthy_steps["disagreement"])
    )
    visible = frame["visible"].astype(bool)
    rows.append(
        _detector_row(frame, "checksums of two computations", visible, pd.Series(0.0, frame.index).where(visible))
        | {"per_1000": Score.undefined("equal steps have equal checksums"), "bound": None}
    )
    columns = [
        Column("detector", "Detector"),
        Column("harmful", "Seen, harmful", 2),
        Column("lasting", "Seen, lasting", 2),
        Column("benign", "Flagged, benign", 2),
        Column("delay", "Median delay, steps", 0),
        Column("per_1000", "False alarms per 1,000", 1),
        Column("bound", "Upper bound", 1),
    ]
    caption = (
        f"Which flips are seen within {WITHIN_STEPS} steps, at the detectors' published thresholds; an alarm that the "
        "healthy twin has at the same step does not count, nor what the clock says (step times, λ). "
        "Lasting: NaN, dead or diverged. Delay: of the harmful ones "
        "that were seen. False alarms: steps of the healthy twin above the threshold per 1,000 it could judge, with "
        "the exact one-sided 95 % upper bound. Checksums: the step computed twice, every step; the price is the whole "
        f"compute once more. {about} {INTERVAL}"
    )
    return Table(DETECTION, "Silent data corruption: who sees it", caption, columns, rows)


def _detector_row(frame: pd.DataFrame, title: str, seen: pd.Series, delay: pd.Series) -> dict[str, Cell]:
    harmful, lasting = frame["harmful"].astype(bool), frame["outcome"].isin(LASTING)
    delays = pd.to_numeric(delay[harmful & seen])
    return {
        "detector": title,
        "harmful": Score.share(int((seen & harmful).sum()), int(harmful.sum()), "no flip was harmful"),
        "lasting": Score.share(int((seen & lasting).sum()), int(lasting.sum()), "no flip did lasting harm"),
        "benign": Score.share(int((seen & ~harmful).sum()), int((~harmful).sum()), "no flip was benign"),
        "delay": float(delays.median()) if len(delays) else Score.undefined("no harmful flip was seen"),
    }


def _false_alarms(alarms: int, steps: int) -> dict[str, Cell]:
    if not steps:
        return {"per_1000": Score.undefined("no healthy step could be judged"), "bound": None}
    return {"per_1000": 1000.0 * alarms / steps, "bound": 1000.0 * poisson_upper(alarms) / steps}


def localisation_table(frame: pd.DataFrame, about: str) -> Table:
    """One row a stage, and all."""
    groups = [(stage, frame[frame["stage"] == stage]) for stage in STAGES] + [("all", frame)]
    rows = [{"stage": name, **_localised(group)} for name, group in groups if len(group)]
    columns = [
        Column("stage", "Stage"),
        Column("injections", "Flips", 0),
        Column("visible", "Visible", 2),
        Column("step", "Step", 2),
        Column("worker", "Worker", 2),
        Column("layer", "Layer", 2),
        Column("tensor", "Tensor", 2),
        Column("named", "Tensors named", 1),
    ]
    caption = (
        "Where a flip was, found by computing the faulty step once more and comparing checksums of module outputs, of "
        "each worker's gradients and of their sum, and of the memory before the step with that at the end of the step "
        "before; share of right answers. Visible: something differed. Worker, layer, tensor: of the visible ones; the "
        "tensor counts as right if it is among those named, of which the last column has the mean. Step: of the "
        "harmful ones, those whose earliest alarm (all detectors but the R-Metric; workers' disagreement) names the "
        f"faulty step. {about} {INTERVAL}"
    )
    return Table(LOCALISATION, "Silent data corruption: where it was", caption, columns, rows)


def _localised(group: pd.DataFrame) -> dict[str, Cell]:
    visible, harmful = group[group["visible"].astype(bool)], group[group["harmful"].astype(bool)]

    def right(column: str) -> Score:
        known = visible[column].dropna()
        return Score.share(int(known.astype(bool).sum()), len(known), "it has none, or nothing was visible")

    return {
        "injections": len(group),
        "visible": Score.share(len(visible), len(group)),
        "step": Score.share(int((harmful["step_error"] == 0).sum()), len(harmful), "no flip was harmful"),
        "worker": right("worker_right"),
        "layer": right("layer_right"),
        "tensor": right("tensor_right"),
        "named": float(visible["named"].mean()) if len(visible) else Score.undefined("nothing was visible"),
    }


def repair_table(frame: pd.DataFrame, policy: Sequence[str], healthy: HealthyRepair | None, about: str) -> Table:
    """One row a kind of harmful flip."""
    tried = frame[frame["repaired"].notna()]
    kinds = {
        "transient": tried[tried["transient"].astype(bool)],
        "transient, lasting harm": tried[tried["transient"].astype(bool) & tried["outcome"].isin(LASTING)],
        "in memory or recurring": tried[~tried["transient"].astype(bool)],
    }
    rows: list[dict[str, Cell]] = [
        {
            "kind": kind,
            "flips": len(group),
            "identical": Score.share(int(group["repaired"].astype(bool).sum()), len(group), NO_FLIP),
            "benign": Score.share(int((group["outcome_repaired"] == "benign").sum()), len(group), NO_FLIP),
        }
        for kind, group in kinds.items()
    ]
    columns = [
        Column("kind", "Harmful flips"),
        Column("flips", "Flips", 0),
        Column("identical", "Bit-identical to the twin", 3),
        Column("benign", "Benign with the policy", 3),
    ]
    caption = (
        f"Every harmful flip once more with {', '.join(policy)}. Bit-identical: all parameters and the optimizer's "
        f"state at the end of the window are those of the twin. {about} {INTERVAL}"
    )
    return Table(REPAIR, "Silent data corruption: repaired", caption, columns, rows, _healthy_notes(healthy))


def _healthy_notes(healthy: HealthyRepair | None) -> list[str]:
    if healthy is None:
        return []
    bound = 100.0 * poisson_upper(healthy.false_repairs) / healthy.steps
    return [
        f"A healthy run of {healthy.steps:,} steps with the policy: {healthy.false_repairs} false repairs (at most "
        f"{bound:.2g} % of the steps, 95 %), {healthy.suspicions} steps computed twice in vain "
        f"({healthy.computations_pct:.2g} % of the compute), {healthy.cpu_pct:.2g} % more processor time than with a "
        f"monitor alone, {'bit-identical' if healthy.identical else 'NOT identical'} to the run without it."
    ]
