"""Train failing runs alone and with GoBack, beside their healthy twins, and write one line a run.

python -m studies.rollback.run                          # results/rollback/runs.jsonl; can be taken up again
python -m studies.rollback.run --groups 1 --runs 2      # a first look, a minute
python -m studies.rollback.report                       # the tables
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmetric.cli import Parser, output_folder, script, whole_number
from rmetric.evaluation.ground_truth import judge
from rmetric.faults import Fault
from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import GoBack, HostCopies, TrainingStopped
from rmetric.progress import progress_bar
from rmetric.twins.snapshots import Schedule
from studies import DATA
from studies.courses import FILE, Course, drop_cut_line, follow, read_results
from studies.processes import in_fresh_processes, training_device
from studies.rollback.plan import SCENARIOS, Failing, Group, groups

BEFORE = 150
"""Healthy steps with the policy before the onset: it has a checkpoint that is known to be good by then."""
HEALTHY = "healthy"
"""Name of the run that nothing befalls."""


def going_on(run: LiveRun, **options: Any) -> GoBack:
    """The policy as it is: data and schedule go on."""
    return GoBack(**options)


def rewinding(run: LiveRun, **options: Any) -> GoBack:
    """The policy with functions that take the loop back too: the same batches come again, the schedule as well."""
    copies = HostCopies(run.model, run.optimizer)

    def save() -> dict[str, Any]:
        return {"step": run.step, "weights": copies.save()}

    def load(snapshot: dict[str, Any]) -> None:
        copies.load(snapshot["weights"])
        run.step = snapshot["step"] - 1

    return GoBack(save=save, load=load, **options)


POLICIES: dict[str, Callable[..., GoBack]] = {"go_on": going_on, "rewind": rewinding}


def follow_watched(
    schedule: Schedule, run: LiveRun, course: Course, make: Callable[..., GoBack], *, fault: Fault | None = None,
    onset: int = 0,
) -> None:  # fmt: skip
    """Train to the horizon with a policy."""
    policy = make(run, on_rollback=lambda record: course.went_back.append({"step": record.step, **record.details}))
    monitor = TrainingMonitor(
        run.model, run.optimizer, policy=policy, scaler=run.scaler, hardware=False, announce=False
    )
    monitor.step_number = run.step
    run.observer = monitor
    try:
        follow(schedule, run, course, until=schedule.steps, fault=fault, onset=onset)
    except TrainingStopped as stopped:
        course.stopped_at = stopped.step
    finally:
        monitor.close()


def row_of(
    scenario: str, policy: str, course: Course, twin: Course, onset: int, *, watched: int | None = None
) -> dict[str, Any]:
    """One result. What the policy did before ``onset`` was done to a healthy run; it watched so many steps of it."""
    steps = sorted(twin.held_out)
    own, reference = [course.held_out.get(step, math.nan) for step in steps], [twin.held_out[step] for step in steps]
    outcome = "stopped" if course.stopped_at is not None else judge(own, reference, steps).kind
    ratio = own[-1] / reference[-1]
    right = [rollback for rollback in course.went_back if rollback["step"] >= onset]
    return {
        "scenario": scenario,
        "policy": policy,
        "outcome": outcome,
        "final_over_twin": ratio if math.isfinite(ratio) else None,
        "stopped_at": course.stopped_at,
        "rollbacks": len(right),
        "first_rollback": right[0]["step"] if right else None,
        "steps_lost": sum(rollback["steps_lost"] for rollback in course.went_back),
        "healthy_steps": onset if watched is None else watched,
        "false_rollbacks": len(course.went_back) - len(right),
    }


def train_group(group: Group, todo: Sequence[Failing], healthy: bool) -> Iterator[dict[str, Any]]:
    """Train a twin and what forks from it; yields the results of one run after the other."""
    run, twin, states = group.make_run(), Course(), {}
    for step in sorted({start for failing in todo for start in (max(failing.onset - BEFORE, 1), failing.onset)}):
        follow(group.schedule, run, twin, until=step - 1)
        states[step] = (run.state_dict(), twin.fork())
    follow(group.schedule, run, twin, until=group.schedule.steps)
    if healthy:
        course = Course()
        follow_watched(group.schedule, group.make_run(), course, going_on)
        row = row_of("healthy", "go_on", course, twin, group.schedule.steps)
        yield {"group": group.name, "name": HEALTHY, "rows": [row]}
    for failing in todo:
        about = {"fault": failing.fault, "severity": failing.severity, "onset": failing.onset}
        rows = _rows_of(group, failing, run, twin, states)
        yield {"group": group.name, "name": failing.name, **about, "rows": rows}


def _rows_of(
    group: Group, failing: Failing, run: LiveRun, twin: Course, states: dict[int, tuple[dict[str, Any], Course]]
) -> list[dict[str, Any]]:
    """Results of a run: with each policy, in each scenario in which it fails alone."""
    rows = []
    for scenario in SCENARIOS:
        fault = failing.fault_in(scenario)
        for policy in (*POLICIES,) if SCENARIOS[scenario] is None else ("alone", *POLICIES):
            start = failing.onset if policy == "alone" else max(failing.onset - BEFORE, 1)
            state, before = states[start]
            run.load_state_dict(state)
            course = before.fork()
            if policy == "alone":
                follow(group.schedule, run, course, until=group.schedule.steps, fault=fault, onset=failing.onset)
            else:
                follow_watched(group.schedule, run, course, POLICIES[policy], fault=fault, onset=failing.onset)
            rows.append(row_of(scenario, policy, course, twin, failing.onset, watched=failing.onset - start))
            if policy == "alone" and rows[-1]["outcome"] != "failed":
                break
    return rows


def write_group(group: Group, folder: Path) -> None:
    """Train what is not there yet, and append each result when it is known."""
    training_device("cpu")
    done = {result["name"] for result in read_results(folder) if result["group"] == group.name}
    todo, healthy = [item for item in group.runs if item.name not in done], HEALTHY not in done
    for result in train_group(group, todo, healthy) if todo or healthy else ():
        with open(folder / FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def parser() -> Parser:
    p = Parser("Train failing runs alone and with GoBack, beside their healthy twins.")
    p.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="published runs with their indices")
    p.add_argument("--out", type=Path, default=Path("results/rollback"), metavar="FOLDER", help="folder for results")
    p.add_argument("--groups", type=whole_number(1), metavar="N", help="the first N groups (default: all)")
    first = "the first N failing runs of each group (default: all)"
    p.add_argument("--runs", type=whole_number(1), metavar="N", help=first)
    p.add_jobs()
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, train what is not there yet, write."""
    args = parser().parse_args(argv)
    drop_cut_line(output_folder(args.out) / FILE)
    chosen = [replace(group, runs=group.runs[: args.runs]) for group in groups(args.data)[: args.groups]]
    tasks = [(group, args.out) for group in chosen]
    for _ in progress_bar(in_fresh_processes(write_group, tasks, args.jobs), desc="groups", total=len(tasks)):
        pass


if __name__ == "__main__":
    sys.exit(main())
