"""Questions to NVML about one GPU, each of which may go unanswered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rmetric.training.hardware.base import HardwareUnavailable

Read = Callable[[Any, Any], Any]
"""Asks a library about the GPU with a handle: (library, handle) → raw value."""

HIGHEST_COUNT = 2**31 - 1
"""A count above it is the driver's "not available" (all bits set) or garbage."""


class GpuLost(Exception):  # noqa: N818 - caught within this package
    """NVML cannot reach the GPU any longer."""


class Device:
    """One GPU of a library. A question that it does not support is not asked again, and stops no other.

    Every question raises :class:`GpuLost` if the GPU is lost and :class:`HardwareUnavailable` if the driver is gone.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._unsupported: set[str] = set()

    def ask(self, name: str, read: Read) -> Any:
        """What NVML answers, whatever it is; ``None`` if it does not."""
        if name in self._unsupported:
            return None
        try:
            return read(self._nvml, self._handle)
        except self._nvml.NVMLError as error:
            self._understand(name, error)
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
        """The answer as a count; ``None`` if it is none."""
        value = self.ask(name, read)
        return value if type(value) is int and 0 <= value <= HIGHEST_COUNT else None

    def _understand(self, name: str, error: Exception) -> None:
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
