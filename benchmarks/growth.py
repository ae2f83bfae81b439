"""Measure how the cost of a study grows with its runs: simulate, score, tables, figures apart.

    python benchmarks/growth.py                                   # 90, 720 and 7,200 runs
    python benchmarks/growth.py --repetitions 1 8 --rows growth.jsonl --plot growth.png

Prints JSON; each part is a process of its own, and the rows of a size are added to --rows when it is measured. What is
in that file for the same engine, --jobs and --detectors is not measured again; rows of others stay there, unprinted.
``cpu_s`` is the processor time of it and its children, ``peak_mib`` the largest memory of all its processes at one
time, ``bytes`` what it leaves on the disk. Scores are those of --detectors, by default cheap ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import process_tree

from rmetric.cli import Parser, script, whole_number
from rmetric.reporting import style

ROOT = Path(__file__).resolve().parents[1]
CHEAP = ("r_metric", "loss_spike", "grad_norm")
RUNS_A_REPETITION = 90
TABLES, FIGURES = "generate_paper_tables.py", "generate_all_figures.py"
SCRIPTS = {"simulate": "run_modern_experiments.py", "score": TABLES, "tables": TABLES, "figures": FIGURES}


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Measure how the cost of a study grows with its runs.")
    count = whole_number(1)
    p.add_argument("--repetitions", type=count, nargs="+", default=[1, 8, 80], metavar="N", help="90 runs each")
    p.add_argument("--detectors", nargs="+", default=list(CHEAP), metavar="NAME", help="detectors to score with")
    p.add_argument("--rows", type=Path, default=Path("growth.jsonl"), metavar="FILE", help="file of measured rows")
    p.add_argument("--plot", type=Path, metavar="FILE", help="draw the growth as a picture")
    p.add_engine()
    return p


def measured(kind: str, argv: Sequence[str], left: Path) -> dict[str, Any]:
    """Cost of a script and its own processes; ``left`` is the folder that it fills."""
    used = process_tree.run([sys.executable, str(ROOT / SCRIPTS[kind]), *argv], stdout=sys.stderr)
    return {
        "part": kind,
        "wall_s": round(used.seconds, 2),
        "cpu_s": round(used.processor_s, 2),
        "peak_mib": round(used.peak_mib, 1),
        "bytes": sum(file.stat().st_size for file in left.rglob("*") if file.is_file()),
    }


def settings_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What rows that are compared have in common; one that says nothing of detectors was measured with the default."""
    return {"engine": row["engine"], "jobs": row["jobs"], "detectors": row.get("detectors", list(CHEAP))}


def growth(repetitions: int, args: Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of one size: simulate; one table, which makes the scores; with these, all tables; all figures."""
    logs, tables, figures = folder / "logs", folder / "tables", folder / "figures"
    address = [] if args.address is None else ["--address", args.address]
    engine = ["--jobs", str(args.jobs), "--engine", args.engine, *address]
    study = ["--repetitions", str(repetitions), "--logs-format", "parquet", "--out", str(logs)]
    score = ["--logs", str(logs), "--detectors", *args.detectors, *engine]
    of_all = {"runs": RUNS_A_REPETITION * repetitions, **settings_of(vars(args))}
    yield {**of_all, **measured("simulate", [*study, *engine], logs)}
    yield {**of_all, **measured("score", [*score, "--out", str(tables), "--tables", "1"], tables / "cache")}
    yield {**of_all, **measured("tables", [*score, "--out", str(tables)], tables)}
    yield {**of_all, **measured("figures", [*score, "--out", str(figures)], figures)}


QUANTITIES = {"cpu_s": "processor time (s)", "peak_mib": "peak memory (MiB)", "bytes": "written (bytes)"}
"""Column of a row → label of its axis."""
BYTES_OF = ("simulate", "score")
"""Parts whose bytes are drawn."""


@style.styled
def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A picture of the rows; of bytes those of logs and scores."""
    made = style.new_figure(2.5)
    looks = style.looks([*SCRIPTS], emphasised="")
    for index, (ax, quantity) in enumerate(zip(made.subplots(1, len(QUANTITIES)), QUANTITIES, strict=True)):
        for part in BYTES_OF if quantity == "bytes" else SCRIPTS:
            of_part = sorted((row for row in rows if row["part"] == part), key=lambda row: row["runs"])
            runs, used, look = [row["runs"] for row in of_part], [row[quantity] for row in of_part], looks[part]
            ax.plot(runs, used, color=look.color, linestyle=look.line, marker=look.marker, label=part)
        style.letter(ax, index)
        ax.set_xlabel("runs")
        ax.set_ylabel(QUANTITIES[quantity])
        style.log_axis(ax, "x")
        if quantity == "peak_mib":
            style.plain_numbers(ax, "y")
            ax.set_ylim(bottom=0.0)
        else:
            style.log_axis(ax, "y")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(style.short)
    made.legend(*made.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(SCRIPTS))
    made.savefig(path, dpi=style.DPI)


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    with open(args.rows, "a+") as file:  # before hours of measuring, not after
        file.seek(0)
        rows = [json.loads(line) for line in file]
        known = [row for row in rows if settings_of(row) == settings_of(vars(args))]
        there = {row["runs"] for row in known}
        for repetitions in args.repetitions:
            if RUNS_A_REPETITION * repetitions not in there:
                with tempfile.TemporaryDirectory() as folder:
                    measured_now = [*growth(repetitions, args, Path(folder))]
                known += measured_now
                file.writelines(f"{json.dumps(row)}\n" for row in measured_now)
                file.flush()
    if args.plot:
        draw(known, args.plot)
    print(json.dumps({"detectors": args.detectors, "rows": known}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
