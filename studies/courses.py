"""Courses of live runs that are trained whatever happens to them, and the file with what came of each run."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmetric.faults import Fault, injected
from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor
from rmetric.twins.snapshots import Schedule

FILE = "runs.jsonl"


@dataclass
class Course:
    held_out: dict[int, float] = field(default_factory=dict)
    """Step → held-out loss."""
    stopped_at: int | None = None
    """Step at which the policy stopped it."""
    went_back: list[dict[str, Any]] = field(default_factory=list)
    """What the policy did, in order."""
    step_s: list[float] = field(default_factory=list)
    """Processor time of each training step, seconds."""

    def fork(self) -> Course:
        """The held-out losses so far, and nothing that was done."""
        return Course(held_out=dict(self.held_out))


def follow(
    schedule: Schedule, run: LiveRun, course: Course, *, until: int, fault: Fault | None = None, onset: int = 0
) -> None:
    """Train up to a step, whatever the loss does.

    ``fault`` begins when the run comes to step ``onset`` for the first time, and lasts as many steps as it has to: it
    knows nothing of a run that goes back.
    """
    lasted: int | None = None
    with ExitStack() as stack:
        while run.step < until:
            if fault is not None and lasted is None and run.step + 1 == onset:
                stack.enter_context(injected(fault, run))
                lasted = 0
            begun = time.process_time()
            run.train_step()
            course.step_s.append(time.process_time() - begun)
            if fault is not None and lasted is not None:
                lasted += 1
                if lasted == fault.duration_steps:
                    stack.close()
            if run.step % schedule.eval_every == 0 and isinstance(run.observer, TrainingMonitor):
                run.observer.validation(run.held_out_loss("validation"))
            judged = run.step + 1
            if judged % schedule.judge_every == 0 or judged == schedule.steps:
                course.held_out[judged] = run.held_out_loss("judge")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Results so far; a line that was cut off is left out."""
    results = []
    file = folder / FILE
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            results.append(json.loads(line))
        except ValueError:
            continue
    return results


def drop_cut_line(file: Path) -> None:
    """Drop a last line that an earlier call was stopped in: what is appended to it would be lost with it.

    Before any process appends, since one cannot tell a cut line from one that another is about to end.
    """
    if file.exists():
        os.truncate(file, file.read_bytes().rfind(b"\n") + 1)
