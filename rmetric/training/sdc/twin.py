"""The healthy run of a campaign, and its snapshots before every struck step."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rmetric.training.forking import Fork, Trace, train, watching
from rmetric.training.live_run import LiveRun
from rmetric.training.monitor import TrainingMonitor
from rmetric.training.monitor.recorder import start_config, vocabulary_of
from rmetric.training.policies.base import Policy
from rmetric.training.sdc.campaign import Campaign
from rmetric.training.sdc.checksums import digest
from rmetric.training.sdc.disagreement import watching_workers
from rmetric.training.sdc.plan import Settings

PolicyFactory = Callable[[], Policy | tuple[Policy, ...]]
"""Makes a fresh policy for a monitor; a function of a module, so that other processes find it."""
NAME = "twin.jsonl"
"""Its log."""


@dataclass(frozen=True)
class Window:
    """When a run is evaluated and judged, and where it ends; see :class:`rmetric.training.forking.Schedule`."""

    steps: int
    eval_every: int
    judge_every: int

    @classmethod
    def of(cls, settings: Settings, last_step: int) -> Window:
        """Of a run that ends at a step."""
        return cls(last_step, settings.eval_every, settings.judge_every)


@dataclass(frozen=True)
class End:
    """A healthy run at the end of a window."""

    digest: str
    """Of all parameters and of the optimizer's state."""
    weights: Tensor
    """All parameters in one row."""


@dataclass(frozen=True)
class Twin:
    """What the struck runs are forked from and compared with."""

    snapshots: dict[int, Fork]
    """By struck step: right before it."""
    ends: dict[int, End]
    """By struck step: at the end of its window."""
    held_out: dict[int, float]
    """Step → held-out loss, nats."""
    disagreement: dict[int, float]
    """Step → score of the workers' disagreement."""
    repairs: int
    """Interventions of the policy, all of them false; 0 without a policy."""

    def packed(self) -> bytes:
        """For another process."""
        buffer = io.BytesIO()
        plain = {
            "snapshots": {step: fork.packed() for step, fork in self.snapshots.items()},
            "ends": {step: {"digest": end.digest, "weights": end.weights} for step, end in self.ends.items()},
            "held_out": self.held_out,
            "disagreement": self.disagreement,
            "repairs": self.repairs,
        }
        torch.save(plain, buffer)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> Twin:
        """What :meth:`packed` has packed."""
        parts = torch.load(io.BytesIO(packed), weights_only=True)
        snapshots = {step: Fork.unpacked(fork) for step, fork in parts.pop("snapshots").items()}
        return cls(snapshots, {step: End(**end) for step, end in parts.pop("ends").items()}, **parts)


def train_twin(
    campaign: Campaign, run: LiveRun, out: Path, policy: PolicyFactory | None, progress: Callable[[int], None]
) -> Twin:
    """Train the healthy run to the end of the last window, with a snapshot before every struck step."""
    settings, trace = campaign.settings, Trace()
    snapshots: dict[int, Fork] = {}
    ends: dict[int, End] = {}
    scores: dict[int, float] = {}
    stops = {step - 1 for step in campaign.onsets} | {step - 1 + settings.window for step in campaign.onsets}
    window = Window.of(settings, campaign.last_step)
    monitor = monitor_of(run, out / NAME, settings, "twin", None, policy)
    with watching_workers(run) as workers, watching(run, monitor):
        for stop in sorted(stops):
            for step in train(window, run, monitor, trace, until=stop):
                scores[step] = workers.last.score
                progress(1)
            if stop + 1 in campaign.onsets:
                snapshots[stop + 1] = Fork.of(run, monitor, out / NAME, trace)
            if stop + 1 - settings.window in campaign.onsets:
                ends[stop + 1 - settings.window] = End(digest(run), weights_of(run))
        repairs = len(monitor.repairs)
    return Twin(snapshots, ends, dict(trace.held_out), scores, repairs)


def weights_of(run: LiveRun) -> Tensor:
    """All parameters in one row, a copy."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in run.model.parameters()])


def monitor_of(
    run: LiveRun,
    log: Path,
    settings: Settings,
    name: str,
    injection: dict[str, Any] | None,
    policy: PolicyFactory | None,
) -> TrainingMonitor:
    """The monitor of the twin or of a struck run."""
    return TrainingMonitor(
        run.model,
        run.optimizer,
        log=log,
        detectors=("numerics",),
        config=config_of(run, settings, name, injection),
        scaler=run.scaler,
        hardware=False,
        policy=policy() if policy is not None else None,
    )


def config_of(run: LiveRun, settings: Settings, name: str, injection: dict[str, Any] | None) -> dict[str, Any]:
    """``config`` of EXPERIMENT_START."""
    fault = {
        "type": "SILENT_DATA_CORRUPTION" if injection else "NONE",
        "severity": None,
        "trigger_step": injection["step"] if injection else None,
        "params": injection or {},
    }
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
        "fault_injection": fault,
    }
    return start_config(run.model, {}, vocabulary_of(run.model), settings.workers, own)
