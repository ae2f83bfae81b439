"""The counts that NVML keeps of one GPU, and what it means when one has grown."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.training.hardware.base import BUS, GPU_MEMORY, GPU_SRAM, LINK, Kind
from rmetric.training.hardware.device import Read


@dataclass(frozen=True, kw_only=True)
class Counter:
    """A count that NVML keeps."""

    name: str
    component: str
    kind: Kind
    read: Read


def _ecc_total(error: str, memory: str) -> Read:
    return lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(handle, getattr(nvml, error), getattr(nvml, memory))


def _ecc_at(error: str, memory: str, place: str) -> Read:
    return lambda nvml, handle: nvml.nvmlDeviceGetMemoryErrorCounter(
        handle, getattr(nvml, error), getattr(nvml, memory), getattr(nvml, place)
    )


def _remapped(index: int) -> Read:
    return lambda nvml, handle: nvml.nvmlDeviceGetRemappedRows(handle)[index]


def _nvlink(link: int, error: str) -> Read:
    return lambda nvml, handle: nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, getattr(nvml, error))


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
        read=_ecc_at(error, memory, location),
    )
    for what, error, kind in _ERRORS
    for kept, memory in _MEMORIES
    for place, location, component in _PLACES
)
TOTAL_ECC = tuple(
    Counter(name=f"{kept} {what} ECC errors", component=GPU_MEMORY, kind=kind, read=_ecc_total(error, memory))
    for what, error, kind in _ERRORS
    for kept, memory in _MEMORIES
)
OTHER_COUNTERS = (
    Counter(name="rows remapped (correctable)", component=GPU_MEMORY, kind="correctable", read=_remapped(0)),
    # The uncorrectable error itself has its own counter; the remapping is the repair.
    Counter(name="rows remapped (uncorrectable)", component=GPU_MEMORY, kind="correctable", read=_remapped(1)),
    Counter(name="row remapping waits for a reset", component=GPU_MEMORY, kind="correctable", read=_remapped(2)),
    Counter(name="row remapping failed", component=GPU_MEMORY, kind="fatal", read=_remapped(3)),
    Counter(
        name="PCIe replays",
        component=BUS,
        kind="correctable",
        read=lambda nvml, handle: nvml.nvmlDeviceGetPcieReplayCounter(handle),
    ),
)


def nvlink_counters(link: int) -> list[Counter]:
    """The counters of one NVLink of a GPU."""
    return [
        Counter(name=f"NVLink {link} {what}", component=LINK, kind="correctable", read=_nvlink(link, error))
        for what, error in _NVLINK_ERRORS
    ]
