"""One healthy prefix, then a fork for the twin and for each fault: real runs that differ in the fault alone."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmetric.evaluation.ground_truth import Outcome, judge
from rmetric.faults import NO_FAULT
from rmetric.records import encode_event, terminal_event
from rmetric.training.case_study.forks import (
    TWIN,
    OnProgress,
    fault_of,
    train_fork,
    train_packed_fork,
    train_prefix,
)
from rmetric.training.case_study.plan import CaseStudyPlan
from rmetric.training.case_study.setup import live_run
from rmetric.training.forking import Fork, Trace, close_hardware_watch
from rmetric.training.hardware import HardwareWatch
from rmetric.training.live_run import LiveRun
from rmetric.training.models.memory import out_of_memory_in_one_line
from rmetric.training.processes import in_fresh_processes

LOGGER = logging.getLogger("rmetric")


@dataclass(frozen=True)
class CaseStudy:
    """What was run, and what came out."""

    plan: CaseStudyPlan
    logs: tuple[Path, ...]
    """One a run, in the order of the plan."""
    description: dict[str, Any]
    """What was trained on what, with which versions, where, how fast."""
    judged_steps: list[int]
    """Steps at which the held-out loss was taken."""
    held_out: dict[str, list[float]]
    """Name of a run (``twin`` included) → held-out loss at each judged step; NaN where the run had ended before."""
    outcomes: dict[str, Outcome]
    twin_matches_control: bool | None
    """Whether the control, which the monitor watched, and the twin, which it did not, agree to the last bit; ``None``
    without a control."""


def run_case_study(
    plan: CaseStudyPlan, out: Path, *, jobs: int = 1, on_progress: OnProgress | None = None
) -> CaseStudy:
    """Train, fork, break, judge.

    Parameters
    ----------
    plan
        What to do.
    out
        Existing folder for the logs. Logs of an earlier case study in it are replaced.
    jobs
        Processes for the forks; 1 on an accelerator.
    on_progress
        Told of every step (of a fork: when it is finished).

    Raises
    ------
    UserError
        For an unknown model, fault or text, and for a fault that this model cannot have, before any training; and
        when memory does not suffice.
    """
    started = time.perf_counter()
    progress = on_progress or (lambda name, steps: None)
    live_run.cache_clear()  # whatever this process trained before
    run, description = live_run(plan)
    _check(plan, run)
    for old in out.glob("run_*.jsonl"):
        old.unlink()
    for note in HardwareWatch.automatic(interval_s=None).notes():
        LOGGER.warning("%s", note)
    try:
        with out_of_memory_in_one_line("training"):
            traces = _train_all(plan, train_prefix(plan, run, progress), out, jobs, progress)
    finally:
        close_hardware_watch()
    names = plan.run_names()
    outcomes = {name: _judge(plan, name, fault, traces) for name, fault in zip(names, plan.faults, strict=True)}
    logs = tuple(out / f"{name}.jsonl" for name in names)
    for log, outcome in zip(logs, outcomes.values(), strict=True):
        _end(log, plan, outcome)
    control = next((name for name, fault in zip(names, plan.faults, strict=True) if fault == NO_FAULT), None)
    judged = sorted(traces[TWIN].held_out)
    seconds = round(time.perf_counter() - started, 1)
    return CaseStudy(
        plan=plan,
        logs=logs,
        description={**description, "seconds": seconds, "steps": _steps_done(plan, traces), "jobs": jobs},
        judged_steps=judged,
        held_out={name: [trace.held_out.get(step, math.nan) for step in judged] for name, trace in traces.items()},
        outcomes=outcomes,
        twin_matches_control=None if control is None else traces[control].held_out == traces[TWIN].held_out,
    )


def _check(plan: CaseStudyPlan, run: LiveRun) -> None:
    """Enter and leave every fault once, so that one that does not fit is known before any training."""
    state = run.state_dict()
    for spelling in plan.faults:
        fault = fault_of(spelling)
        if fault is not None:
            with fault.inject(run):
                pass
    run.load_state_dict(state)


def _train_all(plan: CaseStudyPlan, fork: Fork, out: Path, jobs: int, progress: OnProgress) -> dict[str, Trace]:
    """Name of a run, ``twin`` included → its trace."""
    spellings = {TWIN: "", **dict(zip(plan.run_names(), plan.faults, strict=True))}
    processes = min(jobs, len(spellings))
    if processes == 1:
        finished = ((name, train_fork(plan, name, spelling, fork, out)) for name, spelling in spellings.items())
        return {name: _told(plan, name, trace, progress) for name, trace in finished}
    packed, names = fork.packed(), list(spellings)
    tasks = [(plan, name, spelling, packed, out) for name, spelling in spellings.items()]
    done = {
        names[index]: _told(plan, names[index], trace, progress)
        for index, trace in in_fresh_processes(train_packed_fork, tasks, processes)
    }
    return {name: done[name] for name in spellings}


def _told(plan: CaseStudyPlan, name: str, trace: Trace, progress: OnProgress) -> Trace:
    progress(name, plan.steps - plan.first_disturbed + 1)
    return trace


def _steps_done(plan: CaseStudyPlan, traces: Mapping[str, Trace]) -> int:
    """Training steps of all runs together, the prefix counted once."""
    return plan.first_disturbed - 1 + sum(trace.last_step - plan.first_disturbed + 1 for trace in traces.values())


def _judge(plan: CaseStudyPlan, name: str, fault: str, traces: Mapping[str, Trace]) -> Outcome:
    """Against the twin, at the judged steps; what a run did not live to see is an excess."""
    twin, own = traces[TWIN], traces[name]
    steps = sorted(twin.held_out)
    return judge(
        [own.held_out.get(step, math.nan) for step in steps],
        [twin.held_out[step] for step in steps],
        steps,
        non_finite_step=own.non_finite_step,
        worker_lost_step=own.worker_lost_step,
        faulty=fault != NO_FAULT,
    )


def _end(log: Path, plan: CaseStudyPlan, outcome: Outcome) -> None:
    terminal = terminal_event(outcome.kind, outcome.failure_step, outcome.reason, plan.steps)
    with open(log, "ab") as file:
        file.write(encode_event(terminal))
