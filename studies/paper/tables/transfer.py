"""Table 7: weights fitted on one architecture, used on another."""

from __future__ import annotations

import math

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score
from rmetric.reporting.table import Cell, Column, Table
from studies import captions

SCORES = (
    ("transferred", "F1, source's weights", 3),
    ("native", "F1, target's own", 3),
    ("paper", "F1, paper's", 3),
    ("loss_pct", "Loss by transfer (%)", 1),
    ("against_paper_pct", "Gain over paper's (%)", 1),
)


def tables(ev: Evaluator) -> list[Table]:
    """One row a pair of architectures; the diagonal shows what fitting gains at home."""
    frame = ev.transfer
    rows: list[dict[str, Cell]] = []
    for source, target in dict.fromkeys(zip(frame["source"], frame["target"], strict=True)):
        row: dict[str, Cell] = {"source": source, "target": target}
        for protocol in PROTOCOLS:
            pair = (frame["source"] == source) & (frame["target"] == target) & (frame["protocol"] == protocol)
            item = frame[pair].iloc[0]
            fitted = not math.isnan(float(item["threshold"]))
            missing: Score = item["transferred"]
            row[f"weights_{protocol}"] = " / ".join(f"{w:.2f}" for w in item["weights"]) if fitted else missing
            row[f"threshold_{protocol}"] = Score(float(item["threshold"])) if fitted else missing
            row |= {f"{key}_{protocol}": item[key] for key, _, _ in SCORES}
        rows.append(row)
    columns = [Column("source", "Fitted on"), Column("target", "Scored on")]
    for protocol in PROTOCOLS:
        columns += [
            Column(f"weights_{protocol}", f"λ / σ² / ΔL, {protocol}", protocol=protocol),
            Column(f"threshold_{protocol}", f"Threshold, {protocol}", 3, protocol),
            *(Column(f"{key}_{protocol}", f"{title}, {protocol}", digits, protocol) for key, title, digits in SCORES),
        ]
    caption = (
        "Transfer of the weights. Weights (steps of 1/20 of their sum 1.25) and threshold of highest F1 under the "
        "protocol in question are fitted on one architecture's fit half (odd repetition or seed) and scored on "
        "another one's score half, beside the weights fitted at home and the paper's (threshold 0.57). Loss by "
        "transfer: relative to the weights fitted at home; negative if the transferred ones do better; fits are taken "
        f"as given, the intervals are of the score half alone. {captions.BOTH} Score half: "
        f"{captions.runs(ev, ev.halves.score)} {captions.interval(ev)}"
    )
    return [Table("table_7_transfer", "Table 7: Transfer across architectures", caption, columns, rows)]
