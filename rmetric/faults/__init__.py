"""Faults: one contract, found by name in :data:`FAULTS`.

The built-in ones are in alphabetical order, which is that of the tables; those of plug-ins follow as they are loaded.
"""

from rmetric.faults.base import (
    FAULTS,
    HARDWARE_FAULTS,
    NEVER,
    SEVERITIES,
    CombinedFault,
    Fault,
    check_fault_fits,
    check_simulated,
    fault_parts,
    file_name_part,
    injected,
    load_fault_entry_points,
    make_fault,
    register_fault,
)
from rmetric.faults.bugs import Bug
from rmetric.faults.data_corruption import DataCorruption
from rmetric.faults.expert_failure import ExpertFailure
from rmetric.faults.gqa_mismatch import GqaMismatch
from rmetric.faults.gradient_explosion import GradientExplosion
from rmetric.faults.learning_rate import LargeLr, LrSpike
from rmetric.faults.low_precision_attention import LowPrecisionAttention
from rmetric.faults.network_degradation import NetworkDegradation
from rmetric.faults.node_failure import NodeFailure
from rmetric.faults.parse import parse_fault, severities_of
from rmetric.faults.processes import HardwareEvent, RunProcesses
from rmetric.faults.rms_norm_error import RmsNormError
from rmetric.faults.router_imbalance import RouterImbalance
from rmetric.faults.silent_data_corruption import SilentDataCorruption
from rmetric.records import NO_FAULT

FAULTS.sort(key=lambda name, fault: name)
load_fault_entry_points()

__all__ = [
    "FAULTS",
    "HARDWARE_FAULTS",
    "NEVER",
    "NO_FAULT",
    "SEVERITIES",
    "Bug",
    "CombinedFault",
    "DataCorruption",
    "ExpertFailure",
    "Fault",
    "GqaMismatch",
    "GradientExplosion",
    "HardwareEvent",
    "LargeLr",
    "LowPrecisionAttention",
    "LrSpike",
    "NetworkDegradation",
    "NodeFailure",
    "RmsNormError",
    "RouterImbalance",
    "RunProcesses",
    "SilentDataCorruption",
    "check_fault_fits",
    "check_simulated",
    "fault_parts",
    "file_name_part",
    "injected",
    "load_fault_entry_points",
    "make_fault",
    "parse_fault",
    "register_fault",
    "severities_of",
]
