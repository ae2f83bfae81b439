"""The benchmark: any detector on all sources and kinds of training. Rules: docs/benchmark.md.

    python -m studies.abroad.benchmark                                        # what data/ holds: minutes
    python -m studies.abroad.benchmark --strangers FOLDER --zoo logs_ZOO logs_BUGS
    python -m studies.abroad.benchmark --plugin my_detector.py --detectors mine robust_z
    python -m studies.abroad.benchmark --alerts mine=alerts.csv               # columns set, run, step

Writes the long table and the one of false alarms as Markdown, CSV and LaTeX.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmetric.cli import Parser, output_folder, script
from rmetric.detectors import DETECTORS, Detector, make_detector
from rmetric.engines.local import LocalEngine
from rmetric.errors import UserError
from rmetric.evaluation.scores import Score
from rmetric.evaluation.scoring import score_study
from rmetric.reporting.table import Cell, Column, Table, to_screen, write
from studies import DATA
from studies.abroad import hindsight, sources
from studies.abroad.mistakes import Mistake, mistakes
from studies.abroad.scoring import ALERT_THRESHOLD, Judged, alerts_in, bounds, judge, row, scores_of_alerts
from studies.abroad.sources import RunSet
from studies.abroad.strangers import FOLDER_VARIABLE, PUBLISHED, SOURCES, strangers_folder

ZOO = ("zoo.parquet", "zoo_2.parquet", "zoo_3.parquet", "bugs.parquet")
OWN = ("real_runs*.parquet",)
COMPARED = ("r_metric_robust", "r_metric", "robust_z", "olmo_spike", "zclip", "lightning_spike", "numerics")
ENOUGH_STEPS = 5_000
"""Healthy steps without which a line is not called the worst."""
COLUMNS = (
    Column("level", "Level"), Column("name", "Name"), Column("detector", "Detector"), Column("runs", "Runs"),
    Column("records", "Records"), Column("healthy", "Healthy steps"), Column("false_alarms", "False alarms"),
    Column("false_alarms_per_10000", "per 10,000", 2), Column("first_per_10000", "per 10,000, first 100 records", 2),
    Column("later_per_10000", "per 10,000, from the 701st record on", 2),
    Column("failures", "Failures"), Column("recall", "Recall"), Column("f1", "F1"), Column("lead", "Mean lead", 1),
    Column("instabilities", "Instabilities"), Column("seen", "Seen within 3 records"),
)  # fmt: skip
SHARED = (COLUMNS[0], COLUMNS[1], COLUMNS[5])
"""Columns of the table of false alarms beside those of the detectors, which none of these may be called like."""
FITTED = (
    "r_metric_robust is fitted to healthy records of AlgoPerf, modded-nanoGPT, one half of the real runs and, of "
    "updates and agreement, half of the zoo's kinds."
)
Row = Mapping[str, Cell]


def named_file(text: str) -> tuple[str, Path]:
    """Argument type: ``NAME=FILE``."""
    name, equals, file = text.partition("=")
    if not (name and equals and Path(file).is_file()):
        raise argparse.ArgumentTypeError(f"{text!r} must read NAME=FILE.csv, and the file exist")
    return name, Path(file)


def parser() -> Parser:
    p = Parser("Score detectors on strangers' runs, the zoo of trainings, its bugs, and the study's own sets.")
    p.add_argument("--strangers", type=Path, help=f"folder of strangers' runs (default: ${FOLDER_VARIABLE})")
    p.add_argument("--zoo", type=Path, nargs="*", help=f"data sets, folders (default: in data/: {' '.join(ZOO)})")
    p.add_argument("--own", type=Path, nargs="*", help=f"data sets (default: in data/: {' '.join(OWN)})")
    p.add_argument("--detectors", nargs="+", default=[*COMPARED], help="detectors by name")
    p.add_argument(
        "--alerts", type=named_file, nargs="*", action="extend", default=[], metavar="NAME=FILE",
        help="CSV: set, run, step; NAME is none of a detector",
    )  # fmt: skip
    p.add_argument("--out", type=Path, default=Path("results/abroad"), help="folder for tables and kept scores")
    p.add_plugin("detectors")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    zoos = [*published(ZOO)] if args.zoo is None else args.zoo
    own = [*published(OWN)] if args.own is None else args.own
    detectors = {name: make_detector(name) for name in args.detectors}
    taken = {column.key: "a column of the tables" for column in SHARED}
    for name in taken.keys() & detectors.keys():
        raise UserError(f"detector {name}: {name} is the name of {taken[name]}; choose another")
    hindsight.refuse_declared(detectors)
    sources.refuse_equal_names([*SOURCES, *map(sources.set_name, [*zoos, *own])])
    out = output_folder(args.out)
    files = files_by_name("--alerts", args.alerts, taken | dict.fromkeys(DETECTORS, "a detector"))
    alerts = {name: alerts_in(file) for name, file in files.items()}
    for name, theirs in alerts.items():
        refuse_unknown_sets(files[name], theirs, [*zoos, *own])
        if without := int(theirs["step"].isna().sum()):
            print(f"left out: {without} of {len(theirs)} rows of {files[name]}, which have no step", file=sys.stderr)
    rows: list[Row] = []
    known: list[Row] = []
    wrong: list[Mapping[str, object]] = []
    scored: set[str] = set()
    with hindsight.another_process() as beside:
        for source in all_sources(strangers_folder(args.strangers), zoos, own):
            for part in (*sources.untold(source), source):
                results = scores_of(detectors, part, out, args, beside)
                if part is source:
                    for name, theirs in alerts.items():
                        results[name] = scores_of_alerts(source, theirs, files[name]), ALERT_THRESHOLD
                judged = {name: judge(part, *found) for name, found in results.items()}
                rows += rows_of(part, judged)
                for name, found in results.items():
                    wrong += [{"detector": name, **item} for item in mistakes(part, *found, judged[name])]
            known += rows_of(source, bounds(source))
            scored.add(source.name)
    for name, theirs in alerts.items():
        for other in sorted({*theirs["set"].dropna()} - scored):
            print(f"left out: alerts of {name} in {other!r}; scored were {', '.join(sorted(scored))}", file=sys.stderr)
    if not rows:
        raise UserError("there is no run to score; give --strangers FOLDER, --zoo or --own")
    tables = long_table([*rows, *known]), wide_table(rows)
    for table in tables:
        write(table, out)
    pd.DataFrame(wrong, columns=["detector", *Mistake.__annotations__]).to_csv(out / "abroad_mistakes.csv", index=False)
    print(to_screen(tables[1]))
    print(f"{len(rows)} lines written to {out}/ as .md, .csv and .tex; {len(wrong)} mistakes in abroad_mistakes.csv")


def published(patterns: Iterable[str]) -> Iterator[Path]:
    """Data sets in ``data/``; of a pattern that none has, it is said on standard error that it is left out."""
    for pattern in patterns:
        found = sorted(DATA.glob(pattern))
        if not found:
            print(f"left out: {pattern}: not in {DATA}", file=sys.stderr)
        yield from found


def scores_of(
    detectors: Mapping[str, Detector], source: RunSet, out: Path, args: argparse.Namespace, beside: LocalEngine
) -> dict[str, tuple[NDArray[np.float64], float]]:
    """Detector → its scores on a source, shape (records,), and its threshold; scores are kept."""
    hindsight.refuse_found(source, detectors, args.plugin, beside)
    cache = out / "cache" / source.name
    scores = score_study(source.study, detectors, cache=cache, jobs=args.jobs, plugins=args.plugin)
    return {name: (np.asarray(scores[name]), detector.threshold) for name, detector in detectors.items()}


def files_by_name(option: str, named: Sequence[tuple[str, Path]], taken: Mapping[str, str]) -> dict[str, Path]:
    """Files by the name of their line; :class:`UserError` for a name that another line has.

    ``taken``: name of a line that is there anyway → whose it is.
    """
    files: dict[str, Path] = {}
    for name, file in named:
        other = taken.get(name) or files.get(name)
        if other:
            raise UserError(f"{option} {name}={file}: {name} is the name of {other}; choose another")
        files[name] = file
    return files


def refuse_unknown_sets(file: Path, alerts: pd.DataFrame, given: Sequence[Path]) -> None:
    """:class:`UserError` for a set that is neither given, nor in data/, nor a source: it would count as silent."""
    known = {*SOURCES, *map(sources.set_name, [*given, *DATA.glob("*.parquet")])}
    unknown = sorted({*alerts["set"].dropna()} - known)
    if unknown:
        raise UserError(
            f"{file} names the set {unknown[0]!r}, which nobody knows (known: {', '.join(sorted(known))}); "
            "correct it, or give the set with --zoo or --own"
        )


def all_sources(folder: Path | None, zoo: Sequence[Path], own: Sequence[Path]) -> Iterator[RunSet]:
    """The sources that are there; what is left out is said on standard error, with the reason."""
    for name in SOURCES:
        published = DATA / f"{name}.parquet"
        place = published if published.is_file() else folder
        if place is None:
            why = "" if name in PUBLISHED else "; its licence does not let it be published"
            print(f"left out: {name}: no --strangers and no ${FOLDER_VARIABLE}{why}", file=sys.stderr)
        else:
            yield sources.strangers(place, name)
    for source in itertools.chain(map(sources.zoo, zoo), map(sources.own, own)):
        source.study.warn(f"{source.name}: ")
        yield source


def rows_of(source: RunSet, judged: Mapping[str, Judged]) -> list[Row]:
    """Lines of all groups of a source that have runs, and all detectors."""
    groups = [group for group in source.groups if group.runs.any()]
    return [row(source, group, name, found) for group in groups for name, found in judged.items()]


def long_table(rows: Sequence[Row]) -> Table:
    """One line a group and detector."""
    caption = (
        "A step of a stranger's run is a record. Intervals: exact, 95 %. visibility_bound knows the fault-free twin "
        f"and alarms in the first record that differs. {FITTED} Rules: docs/benchmark.md."
    )
    return Table("abroad_all", "Detectors abroad", caption, COLUMNS, rows)


def wide_table(rows: Sequence[Row]) -> Table:
    """False alarms per 10,000 steps: one line a group, a column a detector, the worst source or kind last."""
    names = list(dict.fromkeys(str(item["detector"]) for item in rows))
    lines: dict[tuple[Cell, Cell], dict[str, Cell]] = {}
    for item in rows:
        if item["level"] == "bug":  # its steps before the onset are those of its healthy twin
            continue
        key = item["level"], item["name"]
        line = lines.setdefault(key, {"level": key[0], "name": key[1], "healthy": item["healthy"]})
        line[str(item["detector"])] = item["false_alarms_per_10000"]
    worst: dict[str, Cell] = {"level": "worst", "name": "source or kind", "healthy": None}
    worst |= {name: _worst(rows, name) for name in names}
    titles = {name: DETECTORS[name].title if name in DETECTORS else name for name in names}
    columns = [*SHARED, *(Column(name, titles[name], 2) for name in names)]
    caption = (
        "False alarms per 10,000 healthy steps (of strangers: records), with exact 95 % intervals. Last line: the "
        f"highest of all sources and kinds with at least {ENOUGH_STEPS:,} healthy steps. {FITTED}"
    )
    return Table("abroad_false_alarms", "False alarms abroad", caption, columns, [*lines.values(), worst])


def _worst(rows: Sequence[Row], detector: str) -> Score:
    rates = [
        item["false_alarms_per_10000"]
        for item in rows
        if item["detector"] == detector
        and item["level"] in ("source", "kind", "own")
        and isinstance(item["healthy"], int)
        and item["healthy"] >= ENOUGH_STEPS
    ]
    found = [rate for rate in rates if isinstance(rate, Score) and rate.defined]
    return max(found, key=lambda rate: rate.value) if found else Score.undefined("no source is large enough")


if __name__ == "__main__":
    sys.exit(main())
