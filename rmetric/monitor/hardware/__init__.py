"""λ from real hardware: NVML, the kernel log and step times."""

from rmetric.monitor.hardware.kernel_log import KernelLogSource
from rmetric.monitor.hardware.nvml import NvmlSource
from rmetric.monitor.hardware.reports import COMPONENTS, SLOW_STEPS, HardwareReport, HardwareSource, HardwareUnavailable
from rmetric.monitor.hardware.step_times import StepTimes
from rmetric.monitor.hardware.watch import HardwareWatch, own_watch

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
    "own_watch",
]
