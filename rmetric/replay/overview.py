"""One table over all replayed logs, as CSV, as Markdown and for the screen, with what its numbers rest on."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from rmetric.errors import UserError
from rmetric.files import write_atomically
from rmetric.replay import LogAgreement, Replay

SHOWN_ALERTS = 3
"""Alerts of a run's own monitor that are printed in full."""
HEADINGS = (
    "log",
    "format",
    "records",
    "outcome",
    "fault",
    "onset",
    "failure",
    "first alert",
    "of detector",
    "lead, paper",
    "usable",
    "R as logged",
    "alerts as logged",
    "damage",
)
BEGINS = {"summary.csv": f"{HEADINGS[0]},{HEADINGS[1]},".encode(), "summary.md": f"| {HEADINGS[0]} ".encode()}
"""Files of an overview, and how each begins."""
NUMERIC = {"records", "onset", "failure", "first alert", "lead, paper", "damage"}
"""Headings of columns of numbers."""


def overview_rows(replays: Sequence[Replay]) -> list[list[str]]:
    """One row of text a log, under :data:`HEADINGS`. Steps; ``-`` where there is nothing to say."""
    rows = []
    for replay in replays:
        outcome = f"{replay.outcome} ({replay.reason})" if replay.reason else replay.outcome
        found = replay.agreement.get("r_metric", LogAgreement())
        rows.append(
            [
                replay.name,
                replay.format,
                str(replay.records),
                "unusable" if replay.unusable else outcome,
                replay.fault if replay.severity == "-" else f"{replay.fault} {replay.severity}",
                *(_or_dash(value) for value in (replay.onset, replay.failure_step, replay.shown_first_alert)),
                replay.shown_detector or "-",
                _or_dash(replay.shown_lead),
                {True: "yes", False: "no", None: "-"}[replay.usable],
                found.in_brief,
                {True: "yes", False: "no", None: "-"}[replay.alerts_agree],
                str(replay.damaged),
            ]
        )
    return rows


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def overview_text(replays: Sequence[Replay]) -> str:
    """The table and what it rests on, for the screen and for ``summary.md`` (it is Markdown)."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in overview_rows(replays)]
    sides = ["right" if name in NUMERIC else "left" for name in HEADINGS]
    lines = [
        tabulate(rows, HEADINGS, tablefmt="pipe", disable_numparse=True, colalign=sides),
        "",
        *_statements(replays),
        "",
        "First alert: in logs of other programs that of the robust R-Metric, in those of your own live runs that of "
        "their monitor, in studies that of R as published, which alerts in nearly every run. Onset, failure, alert and "
        "lead in steps. "
        "Lead, paper: failure - first alert, however early. Usable: an alert episode began in [onset, failure), when "
        "an operator could have acted on it. "
        "R as logged: whether R is the log's own in every record to 1e-9 (no: the largest difference).",
    ]
    return "\n".join(lines) + "\n"


def _statements(replays: Sequence[Replay]) -> list[str]:
    """Lines on what the signals rest on, and notes; logs with the same statement share a line."""
    said: dict[str, list[str]] = {}
    for replay in replays:
        if replay.unusable:
            said.setdefault(f"unusable: {replay.unusable}", []).append(replay.name)
            continue
        rests_on = "; ".join(filter(None, (replay.signals_in_words, replay.r_in_words)))
        lacks = [f"{name}: {lack}" for name, lack in replay.lacks.items()]
        states = [f"state: {state}" for state in replay.states]
        for statement in (*_own(replay), *states, rests_on, *lacks, *replay.notes):
            said.setdefault(statement, []).append(replay.name)
        if replay.outcome == "incomplete":
            said.setdefault("incomplete: no last line says how the run ended; not a success", []).append(replay.name)
    return [
        f"- {', '.join(names) if len(names) <= 3 else f'{len(names)} logs ({names[0]}, …)'}: {statement}"
        for statement, names in said.items()
    ]


def _own(replay: Replay) -> list[str]:
    """Verdict and first alerts of a run's own monitor."""
    if replay.own is None:
        return []
    more = replay.own.alerts - SHOWN_ALERTS
    rest = [f"{more:,} more alerts of its own monitor"] if more > 0 else []
    return [f"was it in order? {replay.own.sentence}", *map(str, replay.own_alerts[:SHOWN_ALERTS]), *rest]


def refuse_others(out: Path) -> None:
    """Raise :class:`UserError` if a file of the overview's name is there that no replay has written, such as a log."""
    for name, begin in BEGINS.items():
        file = out / name
        if file.is_file():
            with open(file, "rb") as found:
                if found.read(len(begin)) != begin:
                    raise UserError(f"{file} is no result of a replay and would be overwritten; choose another --out")


def write_overview(replays: Sequence[Replay], out: Path) -> str:
    """Write ``summary.csv`` and ``summary.md`` to ``out``; returns the text of the second for the screen."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(HEADINGS)
    writer.writerows(overview_rows(replays))
    text = overview_text(replays)
    for name, content in zip(BEGINS, (table.getvalue(), text), strict=True):
        write_atomically(out / name, content.encode())
    return text
