"""Tables and figures of some logs: what both are made of is loaded, scored and counted once."""

from __future__ import annotations

import hashlib
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from threadpoolctl import threadpool_limits

from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import DRAWS
from rmetric.evaluation.studies import Study, load_extra_sets, load_studies
from rmetric.reporting import style
from rmetric.reporting.table import FORMATS, latex_document, to_terminal
from rmetric.reporting.table import write as write_table
from studies.catalogue import Inputs
from studies.live_results import LiveResults
from studies.paper.figures import draw_figures
from studies.paper.tables import CATALOGUE, build_tables

T = TypeVar("T")
ALL_TABLES = "all_tables.tex"
one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
"""Decorates a function: products with bootstrap weights are so narrow that several threads wait for each other."""


def evaluated(args: Namespace, results: Path, cache: Path, beside: Sequence[str] = ()) -> Inputs:
    """Load the studies of the command line, and these sets beside them, and score what is not in the cache.

    ``results`` is the folder of what live runs gave, if there is any, ``cache`` that of the scores.
    """
    studies = load_studies(args.logs, args.jobs)
    sources = dict(zip(studies, args.logs, strict=True))
    sets = {part: load_extra_sets(part, sources, args.jobs) for part in beside}
    for study in _every(studies, sets):
        study.warn()
    options = {"jobs": args.jobs, "plugins": args.plugin, "draws": args.bootstrap, "seed": args.seed}
    return Inputs(
        evaluators(studies, args.detectors, cache=cache, **options),
        {part: evaluators(found, args.detectors, cache=cache / part, **options) for part, found in sets.items()},
        LiveResults.read(results),
    )


def evaluators(
    studies: Mapping[str, Study],
    names: Sequence[str] = (),
    *,
    cache: Path,
    jobs: int | None = None,
    plugins: Sequence[str | Path] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Evaluator]:
    """:meth:`Evaluator.of` for each study, of the detectors of these names (none: all that need no extra).

    The scores of several studies are kept in folders of their own.
    """
    folders = {name: cache if len(studies) == 1 else cache / name for name in studies}
    chosen = [*dict.fromkeys(names)]
    return {
        name: Evaluator.of(study, chosen, cache=folders[name], jobs=jobs, plugins=plugins, draws=draws, seed=seed)
        for name, study in studies.items()
    }


@one_thread
def write_tables(inputs: Inputs, out: Path, numbers: Sequence[str] = ()) -> None:
    """Write the tables that can be made, and print them.

    Tables of other logs that lie there are removed; those of the same logs stay, and stand in ``all_tables.tex`` too.

    Raises
    ------
    UserError
        If none of those that are asked for can be made of these logs.
    """
    tables = build_tables(inputs, numbers)
    made = {table.name for table in tables}
    missing = [number for number in numbers if made.isdisjoint(each.name for each in CATALOGUE.chosen([number]))]
    if missing:
        said = f"table {', '.join(missing)} needs what these logs lack; add data/real_runs.parquet to --logs"
        if not tables:
            raise UserError(said)
        print(f"warning: {said}", file=sys.stderr)
    logs = _mark(inputs.studies)
    if removed := _discard_of_other_logs(out, logs):
        print(f"{removed} tables of other logs removed from {out}/")
    for table in tables:
        write_table(table, out)
        print(to_terminal(table))
    names = [each.name for each in CATALOGUE if (out / f"{each.name}.tex").is_file()]
    (out / ALL_TABLES).write_text(f"{logs}\n{latex_document(names)}", encoding="utf-8")
    _tell(_every(inputs.studies, inputs.sets), f"{len(tables)} tables", f"{out}/ as .md, .csv and .tex")


def _mark(studies: Mapping[str, Evaluator]) -> str:
    """Comment by which the document of all tables tells the logs that they are of."""
    checksums = repr([ev.study.checksums for ev in studies.values()])
    return f"% of the logs {hashlib.sha256(checksums.encode()).hexdigest()[:16]}"


def _discard_of_other_logs(out: Path, logs: str) -> int:
    """Remove the tables of an earlier call if they are of other logs; returns how many there were."""
    document = out / ALL_TABLES
    if not document.is_file() or document.read_bytes().startswith(f"{logs}\n".encode()):
        return 0
    there = [each.name for each in CATALOGUE if (out / f"{each.name}.md").is_file()]
    for name in there:
        for ending in FORMATS:
            (out / f"{name}{ending}").unlink(missing_ok=True)
    return len(there)


@one_thread
def write_figures(inputs: Inputs, out: Path, command: str, numbers: Sequence[str] = (), run: str = "") -> None:
    """Draw the figures that can be drawn; their captions name the command that makes them."""
    named = inputs.studies if len(inputs.studies) > 1 else {"": next(iter(inputs.studies.values()))}
    drawings = draw_figures(replace(inputs, studies=named), numbers, run)
    style.write_figures(drawings, command, out)
    figures = f"{len(drawings)} figure{'s' * (len(drawings) != 1)}"
    _tell([*inputs.studies.values()], figures, f"{out}/ as .png and .pdf, and captions.md")


def _tell(evaluated: Sequence[Evaluator], made: str, where: str) -> None:
    """Say what came of how many logs, and what is to be known of them."""
    studies = [ev.study for ev in evaluated]
    for study in studies:
        if study.note:
            print(study.note)
    print(f"{made} from {sum(len(study.runs) for study in studies):,} logs written to {where}")


def _every(studies: Mapping[str, T], sets: Mapping[str, Mapping[str, T]]) -> list[T]:
    return [*studies.values(), *(found for of_part in sets.values() for found in of_part.values())]
