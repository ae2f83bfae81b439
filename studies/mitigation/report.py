"""Table of what each mitigation was worth: held-out loss at the end, over the healthy twin that nobody watched."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd

from rmetric.evaluation.ground_truth import TOLERANCE
from studies.mitigation.plan import HEALTHY, MITIGATIONS, MONITOR, NOTHING

KEYS = ["model", "seed", "fault"]
COLUMNS = [
    "mitigation", "fault", "meant for it", "doing nothing", "with it", "better in", "within 5 %: nothing, with it",
    "interventions a run", "time of a healthy step",
]  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row a mitigation and fault; losses are medians over seeds, in units of the twin's.

    A run whose loss is not finite counts as infinite. ``better in``: seeds that end lower by more than 1 %, of all.
    ``time of a healthy step``: processor time of the fastest tenth, which other work on the machine hardly moves, in
    units of a step under a monitor without a policy.
    """
    frame = pd.DataFrame(rows)
    frame["held_out"] = frame["held_out"].astype(float).fillna(math.inf)
    alone = frame[frame["mitigation"] == NOTHING].set_index(KEYS)["held_out"]
    twins = alone.xs(HEALTHY, level="fault")
    frame = frame.join(twins.rename("twin"), on=["model", "seed"]).join(alone.rename("alone"), on=KEYS)
    frame["with_it"], frame["alone"] = frame["held_out"] / frame["twin"], frame["alone"] / frame["twin"]
    under_monitor = frame[frame["mitigation"] == MONITOR].set_index(KEYS)["step_s"]
    frame["time"] = frame["step_s"] / frame.join(under_monitor.rename("monitored"), on=KEYS)["monitored"]
    watched = frame[~frame["mitigation"].isin([NOTHING, MONITOR])]
    groups = watched.groupby(["mitigation", "model", "fault"], sort=False)
    return pd.DataFrame([_row(key, own) for key, own in groups], columns=COLUMNS)


def _row(key: Sequence[Hashable], own: pd.DataFrame) -> list[object]:
    mitigation, model, fault = map(str, key)
    meant = fault in MITIGATIONS[mitigation].meant_for
    within = [int((own[column] <= 1.0 + TOLERANCE).sum()) for column in ("alone", "with_it")]
    better = int((own["with_it"] < 0.99 * own["alone"]).sum())
    return [
        mitigation, f"{fault} ({model})", "" if fault == HEALTHY else "yes" if meant else "no",
        _ratio(own["alone"]), _ratio(own["with_it"]), f"{better} of {len(own)}", f"{within[0]}, {within[1]}",
        round(float(own["interventions"].mean()), 1),
        f"{own['time'].median():.2f}" if fault == HEALTHY else "",
    ]  # fmt: skip


def _ratio(values: pd.Series) -> str:
    median = float(values.median())
    return f"{median:.3f}" if math.isfinite(median) else "not finite"
