"""λ from real hardware: NVML, the kernel log and step times."""

from rmetric.training.hardware.base import (
    COMPONENTS,
    SLOW_STEPS,
    HardwareReport,
    HardwareSource,
    HardwareUnavailable,
)
from rmetric.training.hardware.kernel_log import KernelLogSource
from rmetric.training.hardware.nvml import NvmlSource
from rmetric.training.hardware.step_times import StepTimes
from rmetric.training.hardware.watch import HardwareWatch

__all__ = [
    "COMPONENTS",
    "SLOW_STEPS",
    "HardwareReport",
    "HardwareSource",
    "HardwareUnavailable",
    "HardwareWatch",
    "KernelLogSource",
    "NvmlSource",
    "StepTimes",
]
