"""Monitors of recorded runs: the detectors whose alerts stand in the log, and one hardware watch a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.hardware import HardwareWatch

LOGGED_DETECTORS = ("r_metric", "loss_spike", "grad_norm", "numerics", "robust_z")
"""Detectors whose alerts stand in the logs; the tables score all of them, these and the others, from the records."""

MakeMonitor = Callable[[LiveRun, Path, dict[str, Any]], TrainingMonitor]
"""Makes the monitor of a run from the run, its log and that log's ``config``; :func:`monitor_of` with its further
options bound by :func:`functools.partial` is one."""


def monitor_of(
    run: LiveRun,
    log: Path,
    config: dict[str, Any],
    *,
    detectors: Sequence[str] = LOGGED_DETECTORS,
    hardware: HardwareWatch | bool | None = None,
    **options: Any,
) -> TrainingMonitor:
    """Make the monitor of a run.

    Parameters
    ----------
    run, log, config
        The run, its log, and ``config`` of the log's EXPERIMENT_START.
    detectors
        Names of the detectors that may raise an alert.
    hardware
        As in :class:`TrainingMonitor`; ``None``: one watch for all runs of this process.
    options
        Further ones of :class:`TrainingMonitor`, such as ``sinks``, ``policy`` or ``mechanism``.
    """
    return TrainingMonitor(
        run.model,
        run.optimizer,
        log=log,
        detectors=detectors,
        config=config,
        scaler=run.scaler,
        hardware=hardware_watch() if hardware is None else hardware,
        **{"announce": False, **options},  # a study makes many runs, and its tables tell of them
    )


@contextmanager
def watching(run: LiveRun, monitor: TrainingMonitor) -> Iterator[TrainingMonitor]:
    """Let the monitor see every step; afterwards its hooks are gone and the log is left without an end."""
    run.observer = monitor
    try:
        yield monitor
    finally:
        monitor.detach()


@cache
def hardware_watch() -> HardwareWatch:
    """One for all runs of a process; the user is told once, before training, what λ counts."""
    watch = HardwareWatch.automatic()
    watch.notes()
    return watch


def close_hardware_watch() -> None:
    """End the watch of this process, if there is one."""
    if hardware_watch.cache_info().currsize:
        hardware_watch().close()
        hardware_watch.cache_clear()
