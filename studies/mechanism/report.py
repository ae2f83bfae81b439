"""Tables and files of the mechanism study."""

from __future__ import annotations

import math
from pathlib import Path

import orjson

from rmetric.evaluation.scores import Score
from rmetric.files import write_atomically
from rmetric.reporting.style import write_figures
from rmetric.reporting.table import Cell, Column, Table, number, to_csv
from rmetric.reporting.table import write as write_table
from studies.mechanism import figures
from studies.mechanism.findings import HOW, KINDS, NEVER, UNMEASURED, WINDOW, Case, Kind, MechanismResults, Signature

SUFFIX: dict[Kind, str] = {"fitted": "", "default": "_default"}


def signature_table(results: MechanismResults, kind: Kind) -> Table:
    """One row a fault, strength and group; one column a detector."""
    rows: list[dict[str, Cell]] = []
    for case in results.cases:
        row: dict[str, Cell] = {**_case_cells(case), "held_out": _left(results, case, 0)}
        row["training"] = _left(results, case, 1)
        row |= {name: signature_text(results.signature(case, name, kind)) for name in results.detectors}
        rows.append(row)
    columns = [
        *CASE_COLUMNS,
        Column("held_out", "Held-out loss left"),
        Column("training", "Training loss left"),
        *(Column(name, detector.title) for name, detector in results.detectors.items()),
    ]
    caption = (
        "Which detector fires for which fault. Each cell: seeds in which an alert episode began at the onset or later, "
        "of those in which the detector judged; then the median steps from that alarm to the step at which the "
        "held-out loss left the healthy twin's for good (more than 5 % above it to the end), in brackets the 95 % "
        f"bootstrap interval over seeds. Negative: the alarm came later. {NEVER}: the loss never left. {UNMEASURED}: "
        "not measured. Loss left: seeds, and median steps after the onset; training loss: its mean over "
        f"{WINDOW} steps. Last rows: the healthy twins, over the same steps as their forks. {HOW[kind]} "
        f"{_sizes(results)}"
    )
    title = f"Signatures, {'thresholds fitted on other seeds' if kind == 'fitted' else 'default thresholds'}"
    return Table(f"signature{SUFFIX[kind]}", title, caption, columns, rows)


def false_alarms_table(results: MechanismResults) -> Table:
    """One row a detector: thresholds, and false alarms at the fitted and at the default ones."""
    rows: list[dict[str, Cell]] = []
    for name, detector in results.detectors.items():
        fitted = [value for value in results.fitted[name].values() if not math.isnan(value)]
        row: dict[str, Cell] = {"detector": detector.title, "reads": ", ".join(detector.reads)}
        row["threshold_default"] = float(detector.threshold)
        row["threshold_fitted"] = _between(fitted)
        for kind in KINDS:
            found = results.false_alarms(name, kind)
            undefined = kind == "fitted" and not fitted
            reason = Score.undefined("it judged no healthy step")
            row[f"episodes_{kind}"] = reason if undefined else found.episodes
            row[f"per_1000_{kind}"] = reason if undefined else found.per_1000
            row[f"upper_{kind}"] = reason if undefined else found.upper_bound
        rows.append(row)
    columns = [Column("detector", "Detector"), Column("reads", "Reads"), Column("threshold_fitted", "Fitted threshold")]
    columns += [Column("threshold_default", "Default threshold", 2)]
    for kind in KINDS:
        columns += [
            Column(f"episodes_{kind}", f"False alarms, {kind}"),
            Column(f"per_1000_{kind}", f"Per 1,000 healthy steps, {kind}", 3),
            Column(f"upper_{kind}", f"Upper bound, {kind}", 3),
        ]
    caption = (
        f"False alarms in {results.healthy_steps:,} distinct healthy steps: those of the twins, which the forks share "
        "up to their onset, counted once; warm-up included. A false alarm is an alert episode that begins in them; "
        "upper bound: exact one-sided 95 % Poisson bound per 1,000 healthy steps. Fitted: "
        f"{HOW['fitted'][0].lower()}{HOW['fitted'][1:]} {_sizes(results)}"
    )
    return Table("false_alarms", "False alarms", caption, columns, rows)


def long_table(results: MechanismResults) -> Table:
    """Long table for programs: one row a case, detector and kind of threshold, with all numbers."""
    rows: list[dict[str, Cell]] = []
    for case in results.cases:
        for name in results.detectors:
            for kind in KINDS:
                found = results.signature(case, name, kind)
                rows.append(
                    {
                        **_case_cells(case),
                        "detector": name,
                        "thresholds": kind,
                        "seeds": len(results.cases[case]),
                        "judged": found.seeds,
                        "fired": found.fired if found.seeds else None,
                        "left_held_out": results.left(case, 0),
                        "left_training": results.left(case, 1),
                        "incubation": results.incubation(case, 0),
                        "lead": found.lead,
                        "lead_training": found.training_lead,
                    }
                )
    keys = ("fault", "strength", "model", "rows", "detector", "thresholds", "seeds", "judged", "fired")
    more = ("left_held_out", "left_training", "incubation", "lead", "lead_training")
    caption = "All numbers of the signature tables."
    return Table("signature_long", "Signatures, long", caption, [Column(key, key) for key in (*keys, *more)], rows)


CASE_COLUMNS = (
    Column("fault", "Fault", leading=True),
    Column("strength", "Strength", leading=True),
    Column("model", "Model", leading=True),
    Column("rows", "Batch", 0, leading=True),
)
"""They name a row, in each panel that a narrow screen breaks the table into."""


def _case_cells(case: Case) -> dict[str, Cell]:
    return {"fault": case.fault, "strength": case.strength, "model": case.model, "rows": str(case.rows)}


def signature_text(found: Signature) -> str:
    """One cell, such as ``3/3: +120 [80, 150]``."""
    if not found.seeds:
        return UNMEASURED
    share = f"{found.fired}/{found.seeds}"
    if not found.fired:
        return share
    return f"{share}: {steps_text(found.lead)}"


def steps_text(score: Score) -> str:
    """A signed number of steps with its interval.

    >>> steps_text(Score(120.0, 80.0, 150.0)), steps_text(Score(-5.0)), steps_text(Score.undefined("no"))
    ('+120 [80, 150]', '−5', '—')
    """
    if not score.defined:
        return NEVER
    sign = "+" if score.value > 0 else ""
    text = f"{sign}{number(score.value, 0)}"
    return text + (f" [{number(score.low, 0)}, {number(score.high, 0)}]" if score.has_interval else "")


def _left(results: MechanismResults, case: Case, place: int) -> str:
    share = f"{results.left(case, place)}/{len(results.cases[case])}"
    found = results.incubation(case, place)
    return f"{share}: {steps_text(found)}" if found.defined else share


def _between(values: list[float]) -> str:
    if not values:
        return UNMEASURED
    low, high = min(values), max(values)
    return number(low, 2) if low == high else f"{number(low, 2)} to {number(high, 2)}"


def _sizes(results: MechanismResults) -> str:
    seeds = len(set(results.repetition.tolist()))
    steps = max(int(run.config["total_training_steps"]) for run in results.runs)
    return f"{len(results.runs)} runs of {steps:,} steps, {seeds} seeds."


SUMMARY = "summary.json"
MADE = ("signature*", "false_alarms.*", "signals_*", "captions.md", SUMMARY)
"""Patterns of what is written."""


def write_results(results: MechanismResults, out: Path, command: str) -> list[Table]:
    """Write tables, figures and summary to ``out``; returns the tables for the screen. The summary comes last."""
    for pattern in MADE:
        for old in out.glob(pattern):
            old.unlink()
    tables = [*(signature_table(results, kind) for kind in KINDS), false_alarms_table(results)]
    for table in tables:
        write_table(table, out)
    long = long_table(results)
    write_atomically(out / f"{long.name}.csv", to_csv(long).encode())
    write_figures([figures.draw_heat_map(results), *figures.draw_all(results)], command, out)
    content = orjson.dumps(summary(results, command), option=orjson.OPT_INDENT_2)
    write_atomically(out / SUMMARY, content + b"\n")
    return tables


def summary(results: MechanismResults, command: str) -> dict[str, object]:
    """Summary of the runs and the false alarms; the signatures stand in ``signature_long.csv``."""
    return {
        "command": command,
        "runs": len(results.runs),
        "seeds": len(set(results.repetition.tolist())),
        "healthy_steps": results.healthy_steps,
        "outcomes": {run.name: truth.kind for run, truth in zip(results.runs, results.truths, strict=True)},
        "detectors": {
            name: {
                "threshold": float(detector.threshold),
                "fitted_thresholds": {str(seed): limit for seed, limit in results.fitted[name].items()},
                **{f"false_alarms_{kind}": results.false_alarms(name, kind).episodes for kind in KINDS},
            }
            for name, detector in results.detectors.items()
        },
    }
