"""Stream the rules of GoBack and StopDoomed over published runs: who is stopped, when, and which healthy runs.

python -m studies.rollback.offline                                  # four data sets; some minutes on one core
python -m studies.rollback.offline data/real_runs.parquet
python -m studies.rollback.offline --quantile 1                     # for trainings whose loss may climb in health

Of ``real_runs`` the score half is judged. Of a fork of a healthy run only the records from its onset on count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path

import pandas as pd

from rmetric.cli import Parser, fraction, script
from rmetric.dataset.read import read_runs
from rmetric.monitor.repair import FatalRule
from rmetric.monitor.repair.stop_doomed import patient_rule
from rmetric.progress import progress_bar
from rmetric.records import FAILURE, WORKER_LOST, Run
from studies import DATA
from studies.abroad.sources import to_score

RULES: dict[str, Callable[[], FatalRule]] = {"GoBack": FatalRule, "StopDoomed": patient_rule}
SETS = ("real_runs", "bugs", "zoo", "nanogpt")
BEFORE = 200
"""Records before the onset of a fork from which a rule has its references."""
COLUMNS = [
    "runs of", "rule", "failing stopped", "of", "steps saved", "of their steps", "median delay", "recovering stopped",
    "of", "healthy steps", "verdicts in them", "healthy runs concerned",
]  # fmt: skip


@dataclass(frozen=True)
class Verdicts:
    """What a rule says of a run."""

    run: Run
    begins: int
    """First step that counts."""
    steps: int
    """Records that count."""
    stops: tuple[int, ...]
    """Steps of the verdicts; after each the rule begins anew."""

    @property
    def failed(self) -> bool:
        return (self.run.terminal or {}).get("event") == FAILURE


def verdicts_of(run: Run, make_rule: Callable[[], FatalRule]) -> Verdicts:
    """Stream a rule over a run."""
    begins = run.onset or run.disturbed_at or 0
    first = int((run.observations.step < begins).sum())
    rule, stops = make_rule(), []
    for observation in run.observations.rows(slice(max(first - BEFORE, 0), None)):
        if rule.update(observation):
            rule = make_rule()
            if observation.step >= begins:
                stops.append(observation.step)
    return Verdicts(run, begins, len(run.observations) - first, tuple(stops))


def row_of(source: str, name: str, found: Sequence[Verdicts]) -> list[object]:
    """One line of the table; a worker that is lost is nobody's to foresee from the loss."""
    faulty = [item for item in found if not item.run.is_control]
    failing = [item for item in faulty if item.failed and (item.run.terminal or {}).get("reason") != WORKER_LOST]
    recovering = [item for item in faulty if not item.failed]
    healthy = [item for item in found if item.run.is_control]
    stopped = [item for item in failing if item.stops]
    delays = pd.Series([item.stops[0] - item.begins for item in stopped], dtype=float)
    return [
        source, name, len(stopped), len(failing), sum(item.run.last_step - item.stops[0] for item in stopped),
        sum(item.run.last_step - item.begins for item in failing), delays.median(),
        sum(bool(item.stops) for item in recovering), len(recovering), sum(item.steps for item in healthy),
        sum(len(item.stops) for item in healthy), sum(bool(item.stops) for item in healthy),
    ]  # fmt: skip


def parser() -> Parser:
    p = Parser("Stream the rules of GoBack and StopDoomed over published runs.")
    published = [DATA / f"{name}.parquet" for name in SETS]
    p.add_argument("data", type=Path, nargs="*", default=published, help="data sets (default: those in data/)")
    p.add_argument(
        "--quantile", type=fraction, default=FatalRule.quantile,
        help="of the losses before a first sign: the level above which losses stay (0 to 1; default %(default)s)",
    )  # fmt: skip
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    rows, concerned = [], []
    for file in args.data:
        runs = read_runs(file)
        runs = [*compress(runs, to_score(runs))]
        for name, make_rule in RULES.items():
            bar = progress_bar(runs, desc=f"{file.stem}, {name}")
            rule = partial(replace, make_rule(), quantile=args.quantile)
            found = [verdicts_of(run, rule) for run in bar]
            rows.append(row_of(file.stem, name, found))
            concerned += [(name, item.run.name) for item in found if item.stops and item.run.is_control]
    print(pd.DataFrame(rows, columns=COLUMNS).to_markdown(index=False))
    for name, run in concerned:
        print(f"{name}: {run}")


if __name__ == "__main__":
    sys.exit(main())
