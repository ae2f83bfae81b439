"""Hardware reports of NVIDIA GPUs through NVML.

**Source:** NVIDIA, *NVML API Reference* (docs.nvidia.com/deploy/nvml-api); the module is ``pynvml`` of nvidia-ml-py.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from rmetric.training.hardware.base import HardwareReport, HardwareUnavailable
from rmetric.training.hardware.gpu import WatchedGpu

MOST_GPUS = 1_024
"""A machine with more has a library that returns garbage."""


class NvmlSource:
    """Watches GPUs: memory errors, remapped rows, clocks, links, temperature, power and Xid events.

    One report for all that one poll sees of one component, kind and worker: λ counts events, not the counters that show
    them. A lost GPU is reported once as fatal; when all are lost, the source raises :class:`HardwareUnavailable`.

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

    **Deviation:** an index is NVML's, in the order of the PCI bus; CUDA's own order differs on machines with different
    models of GPU, unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. A UUID is always right.
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
        """Give NVML back."""
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
