"""Train tiny models with faults, with each mitigation and without, beside their healthy twins; print one table.

python -m studies.mitigation.run                        # results/mitigation/runs.jsonl, then the table
python -m studies.mitigation.run --steps 120 --seeds 1  # a first look
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmetric.cli import Parser, output_folder, script, whole_number
from rmetric.detectors import DEFAULT_DETECTORS
from rmetric.faults import parse_fault
from rmetric.files import written_aside
from rmetric.live.run import LiveRun, NoObserver
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.mechanism import MechanismWatch
from rmetric.progress import progress_bar
from studies.courses import FILE, Course, follow, read_results
from studies.mitigation.plan import (
    DETECTORS,
    FAULTS,
    HEALTHY,
    MECHANISM,
    MITIGATIONS,
    MONITOR,
    NOTHING,
    STRIDE,
    schedule,
)
from studies.mitigation.report import table
from studies.processes import in_fresh_processes, training_device
from studies.real_runs.plan import RealSpec
from studies.real_runs.run import fresh_run

TAIL = 4
"""Last held-out losses whose mean is compared."""


def train_group(model: str, seed: int, steps: int) -> list[dict[str, Any]]:
    """Train a model with one seed: unwatched, and with each mitigation, the faults forked at the middle."""
    training_device("cpu")
    training = schedule(steps)
    run = fresh_run(training, RealSpec(model=model, optimizer="adamw", seed=seed, onset=None, repetition=1))
    start = run.state_dict()
    chosen = [name for name, item in MITIGATIONS.items() if model in item.models]
    return [
        row for name in (NOTHING, MONITOR, *chosen) for row in _rows_of(run, start, model, seed, name, training.steps)
    ]


def _rows_of(
    run: LiveRun, start: dict[str, Any], model: str, seed: int, name: str, steps: int
) -> Iterator[dict[str, Any]]:
    """The healthy run and its forks, with one mitigation; each fork has the monitor's history, too."""
    training, half = schedule(steps), steps // 2
    run.load_state_dict(start)
    with ExitStack() as stack:
        monitor = _watch(run, model, name, stack)
        follow(training, run, Course(), until=half)
        state, known = run.state_dict(), monitor.state_dict() if monitor else None
    for spelling in (HEALTHY, *FAULTS[model]):
        run.load_state_dict(state)
        fault = None if spelling == HEALTHY else parse_fault(spelling)
        course = Course()
        with ExitStack() as stack:
            monitor = _watch(run, model, name, stack)
            if monitor is not None and known is not None:
                monitor.load_state_dict(known)
            follow(training, run, course, until=steps, fault=fault, onset=half + 1)
            repairs = [record for record in monitor.repairs if record.policy == name] if monitor else []
        losses = [course.held_out[step] for step in sorted(course.held_out)[-TAIL:]]
        final = math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else None
        yield {
            "model": model, "seed": seed, "mitigation": name, "fault": spelling, "held_out": final,
            "interventions": len(repairs), "step_s": statistics.quantiles(course.step_s, n=10)[0],
        }  # fmt: skip


def _watch(run: LiveRun, model: str, name: str, stack: ExitStack) -> TrainingMonitor | None:
    """The monitor with a mitigation; ``None`` where nobody watches."""
    run.observer = NoObserver()
    if name == NOTHING:
        return None
    looks = MECHANISM.get(model)
    monitor = TrainingMonitor(
        run.model, run.optimizer,
        policy=MITIGATIONS[name].make() if name in MITIGATIONS else None,
        detectors=DETECTORS.get(model, DEFAULT_DETECTORS),
        mechanism=MechanismWatch(run.model, run.optimizer, monitors=looks, stride=STRIDE) if looks else None,
        hardware=False, announce=False,
    )  # fmt: skip
    stack.callback(monitor.close)
    run.observer = monitor
    return monitor


def parser() -> Parser:
    p = Parser("Train tiny models with faults, with each mitigation and without, beside their healthy twins.")
    p.add_argument(
        "--out", type=Path, default=Path("results/mitigation"), metavar="FOLDER", help="folder for tables and runs"
    )
    p.add_argument(
        "--steps",
        type=whole_number(60),
        default=200,
        metavar="N",
        help="training steps of each run; half of them healthy",
    )
    p.add_argument("--seeds", type=whole_number(1), default=3, metavar="N", help="runs of each model and fault")
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, train, write, print."""
    args = parser().parse_args(argv)
    output_folder(args.out)
    tasks = [(model, seed, args.steps) for seed in range(1, args.seeds + 1) for model in FAULTS]
    done = in_fresh_processes(train_group, tasks, args.jobs)
    with written_aside(args.out / FILE) as file:  # an earlier result stays until all of this one is there
        for _, rows in progress_bar(done, desc="groups", total=len(tasks)):
            file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
    print(table(read_results(args.out)).to_markdown(index=False))


if __name__ == "__main__":
    sys.exit(main())
