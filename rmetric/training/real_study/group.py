"""One group of runs: a healthy twin, and what is forked from it, step by step through its life."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmetric.detectors import make_detector
from rmetric.evaluation.ground_truth import judge
from rmetric.faults import NO_FAULT
from rmetric.records import encode_event, terminal_event, write_atomically
from rmetric.study import Finished
from rmetric.training.forking import LOGGED_DETECTORS, Fork, Trace, monitor_of, train, train_with_fault, watching
from rmetric.training.live_run import LiveRun
from rmetric.training.monitor import TrainingMonitor
from rmetric.training.monitor.recorder import start_config, vocabulary_of
from rmetric.training.real_study.disturbances import DISTURBANCES, described
from rmetric.training.real_study.plan import RealSpec, RealStudyPlan
from rmetric.training.real_study.setup import fresh_run

MakeMonitor = Callable[[LiveRun, Path, dict[str, Any]], TrainingMonitor]
"""The monitor of a run, its log, and that log's ``config``."""


def train_group(
    plan: RealStudyPlan, specs: Sequence[RealSpec], folder: Path, make_monitor: MakeMonitor = monitor_of
) -> Iterator[Finished]:
    """Train runs that share their healthy steps, and write their logs; yields each when its log is whole.

    The twin is trained once, through to the horizon, with a snapshot before every onset; each fork goes on from its
    snapshot and is judged against the twin. A twin that is no run of the study itself leaves no log.
    """
    run = fresh_run(plan, specs[0])
    forks = [spec for spec in specs if spec.onset is not None]
    twin = next((spec for spec in specs if spec.onset is None), None)
    name = twin.experiment_id if twin else f"run_twin_of_{specs[0].experiment_id}"
    work = _WorkFile(folder, name)
    with work:
        onsets = {spec.onset for spec in forks if spec.onset}
        trace, snapshots = _train_twin(plan, run, work.path, twin, onsets, make_monitor)
        if twin is not None:
            yield _finish(plan, twin, work.path, trace, trace, folder)
    for spec in forks:
        assert spec.onset is not None
        with _WorkFile(folder, spec.experiment_id) as work:
            own = _train_fork(plan, run, work.path, spec, snapshots[spec.onset], name if twin else None, make_monitor)
            yield _finish(plan, spec, work.path, own, trace, folder)


class _WorkFile:
    """The log while it is written; whoever resumes the study finds no half of a log under its name."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f".{name}.part"

    def __enter__(self) -> _WorkFile:
        self.path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _train_twin(
    plan: RealStudyPlan, run: LiveRun, log: Path, spec: RealSpec | None, onsets: set[int], make_monitor: MakeMonitor
) -> tuple[Trace, dict[int, Fork]]:
    trace, snapshots = Trace(), {}
    config = _config(plan, run, spec, None) if spec else {}
    with watching(run, make_monitor(run, log, config)) as monitor:
        for onset in sorted(onsets):
            for _ in train(plan, run, monitor, trace, until=onset - 1):
                pass
            snapshots[onset] = Fork.of(run, monitor, log, trace)
        if spec is None:
            monitor.detach()  # nobody reads the rest
        for _ in train(plan, run, monitor, trace, until=plan.steps):
            pass
    return trace, snapshots


def _train_fork(
    plan: RealStudyPlan,
    run: LiveRun,
    log: Path,
    spec: RealSpec,
    fork: Fork,
    twin: str | None,
    make_monitor: MakeMonitor,
) -> Trace:
    run.load_state_dict(fork.run)
    trace, config = fork.trace.copy(), _config(plan, run, spec, twin)
    write_atomically(log, encode_event({"event": "EXPERIMENT_START", "config": config}) + fork.log)
    monitor = make_monitor(run, log, config)
    with watching(run, monitor):
        fork.go_on(monitor)
        fault = spec.make_fault()
        if fault is not None:
            train_with_fault(plan, run, monitor, trace, fault, f"{spec.fault} ({spec.severity}) begins")
        elif spec.disturbance is not None:
            with DISTURBANCES[spec.disturbance].disturb(run):
                for _ in train(plan, run, monitor, trace, until=plan.steps):
                    pass
    return trace


def _config(plan: RealStudyPlan, run: LiveRun, spec: RealSpec, twin: str | None) -> dict[str, Any]:
    fault = spec.make_fault()
    injection = {
        "type": fault.label if fault else NO_FAULT,
        "severity": spec.severity if fault else None,
        "trigger_step": spec.onset if fault else None,
        "params": fault.parameters if fault else {},
    }
    own = {
        "experiment_id": spec.experiment_id,
        "model_type": spec.model,
        "architecture": spec.model,
        "optimizer": spec.optimizer,
        "dataset": run.corpus.name,
        "seed": spec.seed,
        "repetition": spec.repetition,
        "num_workers": plan.workers,
        "total_training_steps": plan.steps,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": plan.rows,
        "sequence_length": plan.length,
        "learning_rate": run.config.learning_rate,
        "fault_injection": injection,
        "disturbance": described(spec.disturbance, spec.onset) if spec.disturbance else None,
        "twin": twin,
    }
    thresholds = {name: make_detector(name).threshold for name in LOGGED_DETECTORS}
    return start_config(run.model, thresholds, vocabulary_of(run.model), plan.workers, own)


def _finish(plan: RealStudyPlan, spec: RealSpec, work: Path, own: Trace, twin: Trace, folder: Path) -> Finished:
    """Judge the run, end its log, and give it its name."""
    steps = sorted(twin.held_out)
    held_out = [own.held_out.get(step, math.nan) for step in steps]
    reference = [twin.held_out[step] for step in steps]
    outcome = judge(
        held_out,
        reference,
        steps,
        non_finite_step=own.non_finite_step,
        worker_lost_step=own.worker_lost_step,
        faulty=spec.fault != NO_FAULT,
    )
    truth = {"event": "HELD_OUT", "step": own.last_step, "steps": steps}
    truth |= {"held_out": _plain(held_out), "twin": _plain(reference)}
    end = terminal_event(outcome.kind, outcome.failure_step, outcome.reason, plan.steps)
    content = work.read_bytes() + encode_event(truth) + encode_event(end)
    write_atomically(folder / f"{spec.experiment_id}.jsonl", content)
    records = content.count(b'\n{"event":"METRICS"')
    digest = hashlib.sha256(content).hexdigest()
    return Finished(spec.experiment_id, digest, len(content), records, outcome.kind, outcome.failure_step)


def _plain(losses: Sequence[float]) -> list[float | None]:
    """For JSON: six decimals; what is not finite, or was not lived to see, is null."""
    return [round(loss, 6) if math.isfinite(loss) else None for loss in losses]
