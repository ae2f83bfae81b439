"""A stand-in for the module ``pynvml``: the functions and constants that are used, over GPUs made of numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class FakeGpu:
    """What one GPU answers. A value may be anything, also what no GPU would say; an exception is raised."""

    bus_id: Any = b"00000000:65:00.0"
    uuid: str = "GPU-0"
    ecc: dict[tuple[int, int], Any] = field(default_factory=dict)
    """(error type, counter type) → total."""
    placed_ecc: dict[tuple[int, int, int], Any] = field(default_factory=dict)
    """(error type, counter type, location) → count."""
    remapped: Any = (0, 0, 0, 0)
    reasons: Any = 0
    temperature: Any = 50
    slowdown: Any = 90
    shutdown: Any = 95
    power_mw: Any = 300_000
    limit_mw: Any = 700_000
    utilisation: Any = 98
    pcie_replays: Any = 0
    links: int = 2
    nvlink: dict[tuple[int, int], Any] = field(default_factory=dict)
    """(link, error) → count."""
    events: deque[Any] = field(default_factory=deque)
    lost: int = 0
    """The error that every query raises, if not 0."""
    unsupported: set[str] = field(default_factory=set)
    """Functions that this GPU does not support."""


class FakeNvml:
    """A library with some GPUs. ``calls`` counts the calls of each function."""

    NVMLError = NVMLError
    NVML_ERROR_UNINITIALIZED = 1
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16
    NVML_ERROR_UNKNOWN = 999
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_AGGREGATE_ECC = 1
    NVML_MEMORY_LOCATION_DEVICE_MEMORY = 2
    NVML_MEMORY_LOCATION_SRAM = 7
    NVML_NVLINK_MAX_LINKS = 36
    NVML_NVLINK_ERROR_DL_REPLAY = 0
    NVML_NVLINK_ERROR_DL_RECOVERY = 1
    NVML_NVLINK_ERROR_DL_CRC_FLIT = 2
    NVML_NVLINK_ERROR_DL_CRC_DATA = 3
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1
    nvmlEventTypeXidCriticalError = 0x8  # noqa: N815 - the library's name

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.calls: dict[str, int] = {}
        self.init_error = 0
        self.count: Any = len(gpus)
        self.driver_error = 0
        self.event_sets = 0
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error:
            raise NVMLError(self.init_error)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1
        if self.driver_error:
            raise NVMLError(self.driver_error)

    def nvmlDeviceGetCount(self) -> Any:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        if not 0 <= index < len(self.gpus):
            raise NVMLError(self.NVML_ERROR_INVALID_ARGUMENT)
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise NVMLError(self.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetPciInfo", handle, SimpleNamespace(busId=handle.bus_id))

    def nvmlDeviceGetTotalEccErrors(self, handle: FakeGpu, errorType: int, counterType: int) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetTotalEccErrors", handle, handle.ecc.get((errorType, counterType), 0))

    def nvmlDeviceGetMemoryErrorCounter(  # noqa: N802
        self, handle: FakeGpu, errorType: int, counterType: int, locationType: int
    ) -> Any:
        count = handle.placed_ecc.get((errorType, counterType, locationType), 0)
        return self._answer("nvmlDeviceGetMemoryErrorCounter", handle, count)

    def nvmlDeviceGetRemappedRows(self, device: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetRemappedRows", device, device.remapped)

    def nvmlDeviceGetPcieReplayCounter(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetPcieReplayCounter", handle, handle.pcie_replays)

    def nvmlDeviceGetNvLinkState(self, device: FakeGpu, link: int) -> Any:  # noqa: N802
        if link >= device.links:
            raise NVMLError(self.NVML_ERROR_INVALID_ARGUMENT)
        return self._answer("nvmlDeviceGetNvLinkState", device, 1)

    def nvmlDeviceGetNvLinkErrorCounter(self, device: FakeGpu, link: int, counter: int) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetNvLinkErrorCounter", device, device.nvlink.get((link, counter), 0))

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetCurrentClocksEventReasons", handle, handle.reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetCurrentClocksThrottleReasons", handle, handle.reasons)

    def nvmlDeviceGetTemperatureV(self, handle: FakeGpu, sensor: int) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetTemperatureV", handle, handle.temperature)

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetTemperature", handle, handle.temperature)

    def nvmlDeviceGetTemperatureThreshold(self, handle: FakeGpu, threshold: int) -> Any:  # noqa: N802
        value = handle.slowdown if threshold == self.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN else handle.shutdown
        return self._answer("nvmlDeviceGetTemperatureThreshold", handle, value)

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetPowerUsage", handle, handle.power_mw)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetEnforcedPowerLimit", handle, handle.limit_mw)

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> Any:  # noqa: N802
        return self._answer("nvmlDeviceGetUtilizationRates", handle, SimpleNamespace(gpu=handle.utilisation))

    def nvmlEventSetCreate(self) -> SimpleNamespace:  # noqa: N802
        self.event_sets += 1
        return SimpleNamespace(gpu=None)

    def nvmlDeviceRegisterEvents(self, handle: FakeGpu, eventTypes: int, eventSet: Any) -> None:  # noqa: N802
        self._answer("nvmlDeviceRegisterEvents", handle, None)
        eventSet.gpu = handle

    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any:  # noqa: N802
        self._answer("nvmlEventSetWait_v2", eventSet.gpu, None)
        if not eventSet.gpu.events:
            raise NVMLError(self.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(eventType=self.nvmlEventTypeXidCriticalError, eventData=eventSet.gpu.events.popleft())

    def nvmlEventSetFree(self, eventSet: Any) -> None:  # noqa: N802
        self.event_sets -= 1

    def _answer(self, function: str, gpu: FakeGpu, value: Any) -> Any:
        self.calls[function] = self.calls.get(function, 0) + 1
        for code in (self.driver_error, gpu.lost, self.NVML_ERROR_NOT_SUPPORTED * (function in gpu.unsupported)):
            if code:
                raise NVMLError(code)
        if isinstance(value, Exception):
            raise value
        return value

    @contextmanager
    def failing(self, code: int) -> Iterator[None]:
        """Every query fails with ``code`` meanwhile."""
        self.driver_error = code
        yield
        self.driver_error = 0
