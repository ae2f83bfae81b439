"""Mechanism monitors: where inside a model a failure begins, often before the loss shows it.

The catalogue, :data:`rmetric.measurements.MECHANISM`, says what each measurement is, and whether the smallest or the
largest of several layers, heads, experts or tensors is recorded; ``measures`` of each monitor says which it gives. The
exact formulas stand in the classes. Every mechanism is one file.
"""

from rmetric.monitor.mechanism.alignment import GradientAlignment, UpdateAlignment
from rmetric.monitor.mechanism.attention import AttentionRows
from rmetric.monitor.mechanism.base import MechanismMonitor, MonitorResult
from rmetric.monitor.mechanism.execution import MechanismResult
from rmetric.monitor.mechanism.qk_spectral import QkSpectral, QkWeights
from rmetric.monitor.mechanism.router import Router
from rmetric.monitor.mechanism.update import UpdateExtremes
from rmetric.monitor.mechanism.watch import MONITORS, STRIDE, MechanismWatch

__all__ = [
    "MONITORS",
    "STRIDE",
    "AttentionRows",
    "GradientAlignment",
    "MechanismMonitor",
    "MechanismResult",
    "MechanismWatch",
    "MonitorResult",
    "QkSpectral",
    "QkWeights",
    "Router",
    "UpdateAlignment",
    "UpdateExtremes",
]
