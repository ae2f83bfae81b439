"""Query one GPU through NVML, and the error counters that can be queried.

**Source:** NVIDIA, *NVML API Reference* (docs.nvidia.com/deploy/nvml-api); the module is ``pynvml`` of nvidia-ml-py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rmetric.components import BUS, GPU_MEMORY, GPU_SRAM, LINK
from rmetric.monitor.hardware.reports import HardwareUnavailable, Kind

Read = Callable[[Any, Any], Any]
"""Query of a library about the GPU with a handle: (library, handle) → raw value."""

HIGHEST_COUNT = 2**31 - 1
"""A count above it is the driver's "not available" (all bits set) or garbage."""


class GpuLost(Exception):  # noqa: N818 - caught within this package
    """NVML cannot reach the GPU any longer."""


class Device:
    """One GPU of a library. A query that it does not support is not made again, and stops no other.

    Every query raises :class:`GpuLost` if the GPU is lost and :class:`HardwareUnavailable` if the driver is gone.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._unsupported: set[str] = set()

    def ask(self, name: str, read: Read) -> Any:
        """NVML's raw answer; ``None`` if there is none."""
        if name in self._unsupported:
            return None
        try:
            return read(self._nvml, self._handle)
        except self._nvml.NVMLError as error:
            self._classify(name, error)
        except AttributeError:  # a library of another version
            self._unsupported.add(name)
        except (TypeError, ValueError, LookupError):  # garbage, this time
            return None
        return None

    def number(self, name: str, read: Read, lowest: float, highest: float) -> float:
        """The answer as a number from ``lowest`` to ``highest``; NaN if it is none."""
        value = self.ask(name, read)
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
            return math.nan
        return float(value)

    def count(self, name: str, read: Read) -> int | None:
        """Answer to a query as a count, 0 or more; ``None`` if it is no count."""
        value = self.ask(name, read)
        return value if type(value) is int and 0 <= value <= HIGHEST_COUNT else None

    def _classify(self, name: str, error: Exception) -> None:
        nvml, code = self._nvml, getattr(error, "value", None)
        if code in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            raise GpuLost(str(error)) from None
        if code in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
            raise HardwareUnavailable(f"the NVIDIA driver is gone ({error})") from None
        if code in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        ):
            self._unsupported.add(name)


@dataclass(frozen=True, kw_only=True)
class Counter:
    name: str
    component: str
    kind: Kind
    read: Read


def call(function: str, *arguments: str | int) -> Read:
    """A query by the name of its function; an argument that is a text stands for the library's constant."""
    return lambda nvml, handle: getattr(nvml, function)(
        handle, *(getattr(nvml, item) if isinstance(item, str) else item for item in arguments)
    )


def _remapped(index: int) -> Read:
    return lambda nvml, handle: nvml.nvmlDeviceGetRemappedRows(handle)[index]


_ERRORS: tuple[tuple[str, str, Kind], ...] = (
    ("corrected", "NVML_MEMORY_ERROR_TYPE_CORRECTED", "correctable"),
    ("uncorrected", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "fatal"),
)
_MEMORIES = (("volatile", "NVML_VOLATILE_ECC"), ("aggregate", "NVML_AGGREGATE_ECC"))
_PLACES = (
    ("device memory", "NVML_MEMORY_LOCATION_DEVICE_MEMORY", GPU_MEMORY),
    ("SRAM", "NVML_MEMORY_LOCATION_SRAM", GPU_SRAM),
)
_NVLINK_ERRORS = (
    ("replays", "NVML_NVLINK_ERROR_DL_REPLAY"),
    ("recoveries", "NVML_NVLINK_ERROR_DL_RECOVERY"),
    ("flow-control CRC errors", "NVML_NVLINK_ERROR_DL_CRC_FLIT"),
    ("data CRC errors", "NVML_NVLINK_ERROR_DL_CRC_DATA"),
)

PLACED_ECC = tuple(
    Counter(
        name=f"{kept} {what} ECC errors of {place}",
        component=component,
        kind=kind,
        read=call("nvmlDeviceGetMemoryErrorCounter", error, memory, location),
    )
    for what, error, kind in _ERRORS
    for kept, memory in _MEMORIES
    for place, location, component in _PLACES
)
TOTAL_ECC = tuple(
    Counter(
        name=f"{kept} {what} ECC errors",
        component=GPU_MEMORY,
        kind=kind,
        read=call("nvmlDeviceGetTotalEccErrors", error, memory),
    )
    for what, error, kind in _ERRORS
    for kept, memory in _MEMORIES
)
OTHER_COUNTERS = (
    Counter(name="rows remapped (correctable)", component=GPU_MEMORY, kind="correctable", read=_remapped(0)),
    # The uncorrectable error itself has its own counter; the remapping is the repair.
    Counter(name="rows remapped (uncorrectable)", component=GPU_MEMORY, kind="correctable", read=_remapped(1)),
    Counter(name="row remapping waits for a reset", component=GPU_MEMORY, kind="correctable", read=_remapped(2)),
    Counter(name="row remapping failed", component=GPU_MEMORY, kind="fatal", read=_remapped(3)),
    Counter(name="PCIe replays", component=BUS, kind="correctable", read=call("nvmlDeviceGetPcieReplayCounter")),
)


def nvlink_counters(link: int) -> list[Counter]:
    """The counters of one NVLink of a GPU."""
    return [
        Counter(
            name=f"NVLink {link} {what}",
            component=LINK,
            kind="correctable",
            read=call("nvmlDeviceGetNvLinkErrorCounter", link, error),
        )
        for what, error in _NVLINK_ERRORS
    ]
