"""All mechanism monitors by name."""

from __future__ import annotations

from rmetric.registry import Registry
from rmetric.training.mechanism.alignment import GradientAlignment, UpdateAlignment
from rmetric.training.mechanism.attention import AttentionRows
from rmetric.training.mechanism.base import MechanismMonitor
from rmetric.training.mechanism.qk_spectral import QkSpectral
from rmetric.training.mechanism.router import Router
from rmetric.training.mechanism.update import UpdateExtremes

MONITORS: Registry[type[MechanismMonitor]] = Registry("mechanism monitor")
"""In the order in which they are asked."""
for _kind in (QkSpectral, Router, AttentionRows, UpdateExtremes, UpdateAlignment, GradientAlignment):
    MONITORS.add(_kind.name, _kind)
