"""The healthy run of a campaign: snapshots before every injection, the state it is compared with, cost of repair."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rmetric.faults import NO_FAULT
from rmetric.live.run import LanguageModelRun
from rmetric.log_writer import injection_entry
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair.policy import Policy
from rmetric.monitor.repair.record import CHANGED_NOTHING
from rmetric.twins.recording import log_config, record_healthy
from rmetric.twins.snapshots import Snapshot
from rmetric.twins.watching import monitor_of, watching
from studies.sdc.campaign import Campaign, fresh_run
from studies.sdc.gradients import watching_workers
from studies.sdc.localise import digest
from studies.sdc.plan import Settings

PolicyFactory = Callable[[], Policy | tuple[Policy, ...]]
"""Makes a fresh policy for a monitor; a function of a module, so that other processes find it."""
TWIN_LOG = "twin.jsonl"


@dataclass(frozen=True)
class WindowSchedule:
    """Steps of evaluation and judgement, and the end of the window: a :class:`rmetric.twins.snapshots.Schedule`."""

    steps: int
    eval_every: int
    judge_every: int

    @classmethod
    def until(cls, settings: Settings, last_step: int) -> WindowSchedule:
        """The schedule of a run that ends at a step."""
        return cls(last_step, settings.eval_every, settings.judge_every)


@dataclass(frozen=True)
class WindowEnd:
    """A healthy run at the end of a window."""

    digest: str
    """Digest of all parameters and of the optimizer's state."""
    weights: Tensor
    """All parameters in one row."""


@dataclass(frozen=True)
class Twin:
    """The healthy run, from which the runs with an injection are forked, and with which they are compared."""

    snapshots: dict[int, Snapshot]
    """By step of an injection: right before it."""
    ends: dict[int, WindowEnd]
    """By step of an injection: at the end of its window."""
    held_out: dict[int, float]
    """Step → held-out loss, nats."""
    disagreement: dict[int, float]
    """Step → score of the workers' disagreement."""
    repairs: int
    """Interventions of the policy, all of them false; 0 without a policy."""

    def packed(self) -> bytes:
        buffer = io.BytesIO()
        plain = {
            "snapshots": {step: snapshot.packed() for step, snapshot in self.snapshots.items()},
            "ends": {step: {"digest": end.digest, "weights": end.weights} for step, end in self.ends.items()},
            "held_out": self.held_out,
            "disagreement": self.disagreement,
            "repairs": self.repairs,
        }
        torch.save(plain, buffer)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> Twin:
        parts = torch.load(io.BytesIO(packed), weights_only=True)
        snapshots = {step: Snapshot.unpacked(snapshot) for step, snapshot in parts.pop("snapshots").items()}
        return cls(snapshots, {step: WindowEnd(**end) for step, end in parts.pop("ends").items()}, **parts)


def train_twin(
    campaign: Campaign, run: LanguageModelRun, out: Path, policy: PolicyFactory | None, progress: Callable[[int], None]
) -> Twin:
    """Train the healthy run to the end of the last window, with a snapshot before every step of an injection."""
    settings, log = campaign.settings, out / TWIN_LOG
    ends: dict[int, WindowEnd] = {}
    scores: dict[int, float] = {}
    monitor = campaign_monitor(run, log, config_of(run, settings, "twin", None), policy=policy)
    with watching_workers(run) as workers, watching(run, monitor):

        def on_step(step: int) -> None:
            scores[step] = workers.last.score
            progress(1)
            onset = step + 1 - settings.window
            if onset in campaign.onsets:
                with monitor.paused():
                    ends[onset] = WindowEnd(digest(run), weights_of(run))

        truth, snapshots = record_healthy(
            WindowSchedule.until(settings, campaign.last_step),
            run,
            monitor,
            log,
            onsets=campaign.onsets,
            until=campaign.last_step,
            on_step=on_step,
        )
        repairs = len(monitor.repairs)
    return Twin(snapshots, ends, dict(truth.held_out), scores, repairs)


def weights_of(run: LanguageModelRun) -> Tensor:
    """All parameters in one row, a copy."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in run.model.parameters()])


def campaign_monitor(
    run: LanguageModelRun, log: Path, config: dict[str, Any], *, policy: PolicyFactory | None
) -> TrainingMonitor:
    """The monitor of the twin or of a run with an injection: no hardware, and the policy that repairs."""
    made = policy() if policy is not None else None
    return monitor_of(run, log, config, detectors=("numerics",), hardware=False, policy=made)


def config_of(run: LanguageModelRun, settings: Settings, name: str, injection: dict[str, Any] | None) -> dict[str, Any]:
    """``config`` of EXPERIMENT_START; ``injection`` are its fields, ``None`` for a healthy run."""
    kind, step = ("SILENT_DATA_CORRUPTION", injection["step"]) if injection else (NO_FAULT, None)
    own = {
        "experiment_id": name,
        "model_type": settings.model,
        "dataset": run.corpus.name,
        "seed": settings.seed,
        "dtype": settings.dtype,
        "num_workers": settings.workers,
        "batch_size": settings.rows,
        "sequence_length": settings.length,
        "learning_rate": settings.learning_rate,
        "fault_injection": injection_entry(kind, None, step, injection or {}),
    }
    return log_config(run, own, detectors=())


BLOCK = 50
"""Steps that each of the two runs does in turn, so that a machine that slows down slows both."""


@dataclass(frozen=True)
class HealthyRepair:
    """A healthy run with a policy beside the same one without."""

    steps: int
    suspicions: int
    """Steps that were looked at twice, which agreed."""
    false_repairs: int
    """Interventions that changed something."""
    identical: bool
    """True if both runs ended with the same parameters and optimizer state, bit for bit."""
    computations_pct: float
    """Forward and backward passes that were done twice, per cent of all; the third step is done twice on purpose and
    does not count."""
    cpu_pct: float
    """Processor time of the run with policy over that of the run without, both with a monitor, minus 1, per cent."""


def healthy_run(
    settings: Settings, steps: int, policy: PolicyFactory, progress: Callable[[int], None] = lambda steps: None
) -> HealthyRepair:
    """Train twice for so many steps on one processor: with a monitor, and with a monitor that has the policy.

    ``progress`` is told of steps done, of both runs.
    """
    seconds = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        runs = [fresh_run(settings), fresh_run(settings)]
        policies = (None, policy)
        logs = [Path(folder) / f"{index}.jsonl" for index in range(2)]
        monitors = [
            campaign_monitor(run, log, config_of(run, settings, "healthy", None), policy=made)
            for run, log, made in zip(runs, logs, policies, strict=True)
        ]
        for run, monitor in zip(runs, monitors, strict=True):
            run.observer = monitor
        while runs[1].step < steps:
            for index, run in enumerate(runs):
                block = min(BLOCK, steps - run.step)
                began = time.process_time()
                for _ in range(block):
                    run.train_step()
                seconds[index] += time.process_time() - began
                progress(block)
        repairs = monitors[1].repairs
        for monitor in monitors:
            monitor.close()
    agreed = sum(repair.verdict in CHANGED_NOTHING for repair in repairs)
    return HealthyRepair(
        steps=steps,
        suspicions=agreed,
        false_repairs=len(repairs) - agreed,
        identical=digest(runs[0]) == digest(runs[1]),
        computations_pct=100.0 * agreed / steps,
        cpu_pct=100.0 * (seconds[1] / seconds[0] - 1.0),
    )
