"""Watch NVIDIA GPUs through NVML: report what has changed since the last poll."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rmetric.components import GPU_THERMAL, POWER
from rmetric.monitor.hardware.nvml_queries import (
    OTHER_COUNTERS,
    PLACED_ECC,
    TOTAL_ECC,
    Counter,
    Device,
    GpuLost,
    Read,
    call,
    nvlink_counters,
)
from rmetric.monitor.hardware.reports import (
    LOST,
    HardwareReport,
    HardwareUnavailable,
    Kind,
    merged,
    pci_address,
    xid_report,
)

READINGS = ("temperature_c", "power_w", "power_limit_w", "utilisation_pct")

LOWEST_THRESHOLD_C = 60.0
"""No GPU slows down below it; newer ones answer with a distance to the limit instead."""
HIGHEST_TEMPERATURE_C = 150.0
HIGHEST_POWER_W = 10_000.0
COOLED_BY_C = 5.0
"""A GPU that was too hot counts as cool again this far below the threshold, so that it does not flap."""
OVER_LIMIT = 1.2
"""Power over the enforced limit from which the limit is not being kept; less is the measurement's own slack."""
LIMIT_DROP = 0.9
"""The enforced limit, over what it was, below which power was taken away: a supply has failed or brakes."""

SW_THERMAL = 0x20
HW_SLOWDOWN = 0x08
HW_THERMAL = 0x40
HW_POWER_BRAKE = 0x80
TROUBLE = {
    SW_THERMAL: (GPU_THERMAL, "clocks lowered by the driver: too hot"),
    HW_THERMAL: (GPU_THERMAL, "clocks halved by the hardware: too hot"),
    HW_POWER_BRAKE: (POWER, "clocks halved by the power brake"),
    HW_SLOWDOWN: (GPU_THERMAL, "clocks halved by the hardware"),
}
"""Reasons for lowered clocks that mean trouble. A power cap, an idle GPU or clocks set by a user do not."""

EVENTS_PER_POLL = 64
EVENT_WAIT_MS = 1


class WatchedGpu:
    """One GPU and its latest values. The first poll is the baseline: what happened before is not reported.

    A value that cannot be (negative, huge, not a number) is as good as no value; a counter that went back was reset and
    is a new baseline.
    """

    def __init__(self, nvml: Any, handle: Any, worker: int) -> None:
        self.worker = worker
        self.lost = False
        self.readings = dict.fromkeys(READINGS, math.nan)
        """Measurements of the last poll; NaN where one is not available."""
        self._device = Device(nvml, handle)
        self._counts: dict[str, int] = {}
        self._reasons: int | None = None
        self._heat: int | None = None
        self._over_limit: bool | None = None
        self._events: Any = None
        try:
            self.pci = self._find_pci()
            self._links = self._nvlink_counters()
            self._events = self._register_events()
        except GpuLost as error:
            raise HardwareUnavailable(f"GPU of worker {worker}: {error}") from None

    def poll(self) -> list[HardwareReport]:
        """Reports since the last poll; a lost GPU reports that once and nothing any more."""
        if self.lost:
            return []
        reports: list[HardwareReport] = []
        try:
            for look in (self._xids, self._ecc, self._counters, self._throttling, self._temperature, self._power):
                reports.extend(look())
            self._utilisation()
        except GpuLost as error:
            self._lose(reports, str(error))
        return merged(reports)

    def close(self) -> None:
        if self._events is not None and not self.lost:
            events, self._events = self._events, None
            with suppress(GpuLost, HardwareUnavailable):  # then nothing is left to give back
                self._device.ask("event set", lambda nvml, _: nvml.nvmlEventSetFree(events))

    def _ecc(self) -> Iterator[HardwareReport]:
        placed = [*self._grown(PLACED_ECC)]
        yield from placed
        # The totals hold the placed errors as well: they speak only of what has no place.
        kinds = {report.kind for report in placed}
        yield from (report for report in [*self._grown(TOTAL_ECC)] if report.kind not in kinds)

    def _counters(self) -> Iterator[HardwareReport]:
        yield from self._grown(OTHER_COUNTERS)
        yield from self._grown(self._links)

    def _grown(self, counters: Sequence[Counter]) -> Iterator[HardwareReport]:
        for counter in counters:
            count = self._device.count(counter.name, counter.read)
            if count is None:
                continue
            before = self._counts.get(counter.name, count)
            self._counts[counter.name] = count
            if count > before:
                yield self._report(counter.component, counter.kind, f"{counter.name}: +{count - before}")

    def _throttling(self) -> Iterator[HardwareReport]:
        reasons = self._device.count("clock event reasons", call("nvmlDeviceGetCurrentClocksEventReasons"))
        if reasons is None:  # drivers before 535
            reasons = self._device.count("throttle reasons", call("nvmlDeviceGetCurrentClocksThrottleReasons"))
        if reasons is None:
            return
        before = reasons if self._reasons is None else self._reasons
        self._reasons = reasons
        new = reasons & ~before
        if reasons & (HW_THERMAL | HW_POWER_BRAKE):  # they say why; the general bit is set with them
            new &= ~HW_SLOWDOWN
        for bit, (component, meaning) in TROUBLE.items():
            if new & bit:
                yield self._report(component, "correctable", meaning)

    def _temperature(self) -> Iterator[HardwareReport]:
        temperature_c = self._temperature_c()
        self.readings["temperature_c"] = temperature_c
        if math.isnan(temperature_c):
            return
        slowdown_c = self._threshold_c("slowdown threshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN")
        shutdown_c = self._threshold_c("shutdown threshold", "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN")
        before, self._heat = self._heat, self._heat_level(temperature_c, slowdown_c, shutdown_c)
        if before is None or self._heat <= before:
            return
        if self._heat == 2:
            yield self._report(GPU_THERMAL, "fatal", f"{temperature_c:.0f} °C: shuts down at {shutdown_c:.0f} °C")
        else:
            yield self._report(GPU_THERMAL, "correctable", f"{temperature_c:.0f} °C: slows down at {slowdown_c:.0f} °C")

    def _heat_level(self, temperature_c: float, slowdown_c: float, shutdown_c: float) -> int:
        """Level of heat: 0 cool, 1 slows down, 2 about to shut down. A threshold of NaN is never reached."""
        for level, threshold_c in ((2, shutdown_c), (1, slowdown_c)):
            still = COOLED_BY_C if (self._heat or 0) >= level else 0.0
            if temperature_c >= threshold_c - still:
                return level
        return 0

    def _temperature_c(self) -> float:
        newer, older = (call(f"nvmlDeviceGetTemperature{suffix}", "NVML_TEMPERATURE_GPU") for suffix in ("V", ""))
        temperature_c = self._device.number("temperature", newer, 0.0, HIGHEST_TEMPERATURE_C)
        if math.isnan(temperature_c):
            return self._device.number("temperature (older)", older, 0.0, HIGHEST_TEMPERATURE_C)
        return temperature_c

    def _threshold_c(self, name: str, constant: str) -> float:
        threshold = call("nvmlDeviceGetTemperatureThreshold", constant)
        return self._device.number(name, threshold, LOWEST_THRESHOLD_C, HIGHEST_TEMPERATURE_C)

    def _power(self) -> Iterator[HardwareReport]:
        power_w = self._watts("power", call("nvmlDeviceGetPowerUsage"))
        limit_w = self._watts("power limit", call("nvmlDeviceGetEnforcedPowerLimit"))
        # A limit that a user lowers looks the same, and is as worth a line in the log.
        before_w = self.readings["power_limit_w"]
        self.readings["power_w"] = power_w
        self.readings["power_limit_w"] = limit_w
        if limit_w < LIMIT_DROP * before_w:
            yield self._report(POWER, "correctable", f"power limit fell from {before_w:.0f} W to {limit_w:.0f} W")
        over = power_w > OVER_LIMIT * limit_w
        if over and self._over_limit is False:
            yield self._report(POWER, "correctable", f"draws {power_w:.0f} W, over its limit of {limit_w:.0f} W")
        if not math.isnan(power_w + limit_w):
            self._over_limit = over

    def _watts(self, name: str, read: Read) -> float:
        return self._device.number(name, read, 0.0, HIGHEST_POWER_W * 1000.0) / 1000.0

    def _utilisation(self) -> None:
        self.readings["utilisation_pct"] = self._device.number(
            "utilisation", lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, 0.0, 100.0
        )

    def _xids(self) -> Iterator[HardwareReport]:
        events = self._events
        if events is None:
            return
        for _ in range(EVENTS_PER_POLL):
            event = self._device.ask("Xid events", lambda nvml, _: nvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS))
            number = getattr(event, "eventData", None)
            if event is None:  # a time-out: nothing has happened
                return
            if number == LOST:
                raise GpuLost("fallen off the bus")
            report = xid_report(number, self.worker, self.pci)
            if report is not None:
                yield report

    def _find_pci(self) -> str:
        raw = self._device.ask("PCI address", lambda nvml, handle: nvml.nvmlDeviceGetPciInfo(handle).busId)
        text = raw.decode("ascii", errors="replace") if isinstance(raw, bytes) else raw
        return pci_address(text) if isinstance(text, str) else ""

    def _nvlink_counters(self) -> list[Counter]:
        """Counters of the links that are up; a GPU without NVLink has none."""
        links = self._device.ask("NVLinks", lambda nvml, _: range(nvml.NVML_NVLINK_MAX_LINKS)) or ()
        return [counter for link in links if self._link_is_up(link) for counter in nvlink_counters(link)]

    def _link_is_up(self, link: int) -> bool:
        state = self._device.ask(f"NVLink {link}", call("nvmlDeviceGetNvLinkState", link))
        return type(state) is int and state == 1

    def _register_events(self) -> Any:
        """An event set of this GPU alone, so that an event needs no search for its GPU; ``None`` if there are none."""

        def register(nvml: Any, handle: Any) -> Any:
            events = nvml.nvmlEventSetCreate()
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError:
                nvml.nvmlEventSetFree(events)
                raise
            return events

        return self._device.ask("event set", register)

    def _lose(self, reports: list[HardwareReport], reason: str) -> None:
        self.lost = True
        self.readings = dict.fromkeys(READINGS, math.nan)
        report = xid_report(LOST, self.worker, self.pci)
        assert report is not None
        reports.append(replace(report, details=self._report(report.component, "fatal", reason).details))

    def _report(self, component: str, kind: Kind, details: str) -> HardwareReport:
        where = f"GPU {self.pci}: " if self.pci else ""
        return HardwareReport(component, kind, self.worker, where + details)


MOST_GPUS = 1_024
"""Most GPUs of a machine: a library that counts more returns garbage."""


class NvmlSource:
    """Watches GPUs: memory errors, remapped rows, clocks, links, temperature, power and Xid events.

    One report for all that one poll sees of one component, kind and worker: λ counts events, not the counters that show
    them. A lost GPU is reported once as fatal; when all are lost, the source raises :class:`HardwareUnavailable`.

    **Deviation:** an index is NVML's, in the order of the PCI bus; CUDA's own order differs on machines with different
    models of GPU, unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. A UUID is always right.

    Parameters
    ----------
    library
        Stands in for the module ``pynvml``.
    devices
        The GPUs of this process, as indices of NVML or UUIDs. Default: those that ``CUDA_VISIBLE_DEVICES`` names, or
        all of the machine.
    worker
        The worker of the first of them; the others follow.

    Raises
    ------
    HardwareUnavailable
        Without the module, a driver or a GPU.
    """

    name = "NVML"

    def __init__(self, library: Any = None, devices: Sequence[int | str] | None = None, *, worker: int = 0) -> None:
        self._nvml = _load() if library is None else library
        self._open = False
        self._gpus: list[WatchedGpu] = []
        try:
            self._nvml.nvmlInit()
            self._open = True
            self._gpus = self._find(self._visible() if devices is None else devices, worker)
        except self._nvml.NVMLError as error:
            self.close()
            raise HardwareUnavailable(f"no NVIDIA GPU is visible to NVML ({_reason(error)})") from None
        except HardwareUnavailable:
            self.close()
            raise

    @property
    def workers(self) -> dict[str, int]:
        """PCI address → worker of the watched GPUs."""
        return {gpu.pci: gpu.worker for gpu in self._gpus if gpu.pci}

    def poll(self) -> list[HardwareReport]:
        """Reports since the last poll. The number of calls is bounded; NVML answers each within milliseconds."""
        if all(gpu.lost for gpu in self._gpus):
            raise HardwareUnavailable("every watched GPU is lost")
        return [report for gpu in self._gpus for report in gpu.poll()]

    def readings(self) -> dict[int, dict[str, float]]:
        """Worker → temperature_c, power_w, power_limit_w, utilisation_pct at the last poll; NaN where not available."""
        return {gpu.worker: dict(gpu.readings) for gpu in self._gpus}

    def close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
        if self._open:
            self._open = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:  # the driver is gone: there is nothing left to give back
                return

    def _visible(self) -> Sequence[int | str]:
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            count = self._nvml.nvmlDeviceGetCount()
            return range(count) if isinstance(count, int) and count <= MOST_GPUS else ()
        names = [name.strip() for name in chosen.split(",")]
        return [int(name) if name.isdecimal() else name for name in names if name and name not in ("-1", "NoDevFiles")]

    def _find(self, devices: Sequence[int | str], worker: int) -> list[WatchedGpu]:
        gpus, reason = [], "none is listed"
        for position, device in enumerate(devices):
            try:
                gpus.append(WatchedGpu(self._nvml, self._handle(device), worker + position))
            except HardwareUnavailable as error:
                reason = str(error)
            except self._nvml.NVMLError as error:
                reason = f"GPU {device}: {_reason(error)}"
        if not gpus:
            raise HardwareUnavailable(f"no NVIDIA GPU is visible to NVML ({reason})")
        return gpus

    def _handle(self, device: int | str) -> Any:
        if isinstance(device, int):
            return self._nvml.nvmlDeviceGetHandleByIndex(device)
        return self._nvml.nvmlDeviceGetHandleByUUID(device)


def _load() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise HardwareUnavailable("nvidia-ml-py is not installed") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
