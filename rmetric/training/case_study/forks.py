"""The healthy prefix, and what is forked from it: the twin, and a run for each fault."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmetric.detectors import make_detector
from rmetric.faults import NO_FAULT, Fault, parse_fault
from rmetric.records import encode_event, write_atomically
from rmetric.training.case_study.plan import CaseStudyPlan
from rmetric.training.case_study.setup import live_run
from rmetric.training.forking import LOGGED_DETECTORS, Fork, Trace, monitor_of, train, train_with_fault, watching
from rmetric.training.live_run import LiveRun
from rmetric.training.monitor.recorder import start_config, vocabulary_of

TWIN = "twin"
OnProgress = Callable[[str, int], None]
"""Called with the name of a run and the number of steps that it has just done."""


def train_prefix(plan: CaseStudyPlan, run: LiveRun, progress: OnProgress) -> Fork:
    """Train up to the step before the onset."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prefix.jsonl"
        with watching(run, monitor_of(run, log, {})) as monitor:
            for _ in train(plan, run, monitor, trace, until=plan.first_disturbed - 1):
                progress("healthy prefix", 1)
            return Fork.of(run, monitor, log, trace)


def train_packed_fork(plan: CaseStudyPlan, name: str, spelling: str, packed: bytes, out: Path) -> Trace:
    """As :func:`train_fork`, in another process."""
    return train_fork(plan, name, spelling, Fork.unpacked(packed), out)


def train_fork(plan: CaseStudyPlan, name: str, spelling: str, fork: Fork, out: Path) -> Trace:
    """Train a fork to the horizon, or until its loss is not finite or a worker is lost."""
    run = live_run(plan)[0].load_state_dict(fork.run)
    trace = fork.trace.copy()
    if name == TWIN:
        for _ in train(plan, run, None, trace, until=plan.steps):
            pass
        return trace
    fault, log = fault_of(spelling), out / f"{name}.jsonl"
    config = _config(plan, name, spelling, run)
    write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
    monitor = monitor_of(run, log, config)
    with watching(run, monitor):
        fork.go_on(monitor)
        if fault is not None:
            train_with_fault(plan, run, monitor, trace, fault, f"{spelling} begins")
        else:
            for _ in train(plan, run, monitor, trace, until=plan.steps):
                pass
    return trace


def _config(plan: CaseStudyPlan, name: str, spelling: str, run: LiveRun) -> dict[str, Any]:
    fault, severities = fault_of(spelling), re.findall(r"@(\w+)", spelling)
    injection = {
        "type": fault.label if fault else NO_FAULT,
        "severity": ("+".join(severities) or "medium") if fault else None,
        "trigger_step": plan.first_disturbed if fault else None,
        "params": fault.parameters if fault else {},
    }
    own = {
        "experiment_id": name,
        "model_type": plan.model,
        "architecture": plan.model,
        "dataset": run.corpus.name,
        "seed": plan.seed,
        "num_workers": plan.workers,
        "total_training_steps": plan.steps,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": plan.batch_rows,
        "sequence_length": plan.sequence_length,
        "learning_rate": plan.peak_learning_rate,
        "fault_injection": injection,
    }
    thresholds = {name: make_detector(name).threshold for name in LOGGED_DETECTORS}
    return start_config(run.model, thresholds, vocabulary_of(run.model), plan.workers, own)


def fault_of(spelling: str) -> Fault | None:
    return None if spelling in ("", NO_FAULT) else parse_fault(spelling)
