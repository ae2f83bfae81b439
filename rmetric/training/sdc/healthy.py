"""What a repair policy costs a healthy run, and whether it leaves it alone."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rmetric.training.sdc.checksums import digest
from rmetric.training.sdc.plan import Settings
from rmetric.training.sdc.setup import fresh_run
from rmetric.training.sdc.twin import PolicyFactory, monitor_of

BLOCK = 50
"""Steps that each of the two runs does in turn, so that a machine that slows down slows both."""
FALSE_VERDICTS = ("agrees", "random")
"""Verdicts that change nothing: a second computation that agreed, a training that cannot be repaired."""


@dataclass(frozen=True)
class Healthy:
    """A healthy run with a policy beside the same one without."""

    steps: int
    suspicions: int
    """Steps that were looked at twice, which agreed."""
    false_repairs: int
    """Interventions that changed something."""
    identical: bool
    """Whether both runs ended with the same parameters and optimizer state, bit for bit."""
    computations_pct: float
    """Forward and backward passes that were done twice, per cent of all; the third step is done twice on purpose and
    does not count."""
    cpu_pct: float
    """Processor time of the run with policy over that of the run without, both with a monitor, minus 1, per cent."""


def healthy_run(settings: Settings, steps: int, policy: PolicyFactory) -> Healthy:
    """Train twice for so many steps on one processor: with a monitor, and with a monitor that has the policy."""
    seconds = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        runs = [fresh_run(settings), fresh_run(settings)]
        policies = (None, policy)
        logs = [Path(folder) / f"{index}.jsonl" for index in range(2)]
        monitors = [
            monitor_of(run, log, settings, "healthy", None, made)
            for run, log, made in zip(runs, logs, policies, strict=True)
        ]
        for run, monitor in zip(runs, monitors, strict=True):
            run.observer = monitor
        while runs[1].step < steps:
            for index, run in enumerate(runs):
                began = time.process_time()
                for _ in range(min(BLOCK, steps - run.step)):
                    run.train_step()
                seconds[index] += time.process_time() - began
        repairs = monitors[1].repairs
        for monitor in monitors:
            monitor.close()
    agreed = sum(repair.verdict in FALSE_VERDICTS for repair in repairs)
    return Healthy(
        steps=steps,
        suspicions=agreed,
        false_repairs=len(repairs) - agreed,
        identical=digest(runs[0]) == digest(runs[1]),
        computations_pct=100.0 * agreed / steps,
        cpu_pct=100.0 * (seconds[1] / seconds[0] - 1.0),
    )
