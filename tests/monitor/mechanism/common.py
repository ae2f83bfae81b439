"""What a monitor of a mechanism has seen of a step."""

from __future__ import annotations

from collections.abc import Callable

from rmetric.monitor.mechanism import MechanismMonitor, MonitorResult
from rmetric.monitor.mechanism.base import HostArrays
from rmetric.monitor.mechanism.execution import run_tasks


def arrays_of(monitor: MechanismMonitor) -> HostArrays | None:
    """What its task has worked out; nothing if there is none."""
    task = monitor.take()
    monitor.disarm()
    if task is None:
        return None
    found = run_tasks({"one": task})["one"]
    assert not isinstance(found, Exception), found
    return found


def measured(monitor: MechanismMonitor) -> MonitorResult | None:
    """What it makes of that."""
    found = arrays_of(monitor)
    return None if found is None else monitor.summarise(found)


def seen_in(monitor: MechanismMonitor, run: Callable[[], object]) -> MonitorResult | None:
    """What it makes of a step it is armed for."""
    monitor.arm()
    run()
    return measured(monitor)
