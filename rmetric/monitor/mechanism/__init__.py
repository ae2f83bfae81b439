"""Mechanism monitors: where inside a model a failure begins, often before the loss shows it.

Each measurement of :data:`rmetric.measurements.MECHANISM`, and which of several layers, heads, experts or tensors it
speaks of:

===================== ================== ==============================================================================
measurement           monitor            what it is
===================== ================== ==============================================================================
qk_entropy            qk_spectral        smallest spectral entropy of a head's update of W_QᵀW_K over the last stride
qk_effective_rank     qk_spectral        smallest effective rank of it
qk_spectral_norm      qk_spectral        largest spectral norm of it
router_similarity     router             largest mean pairwise cosine of the rows of a router's matrix
router_conditioning   router             largest condition number of a router's matrix minus its mean row
routing_entropy       router             smallest mean over tokens of the entropy of a router's choice
expert_load_max       router             share of the busiest expert of any layer
expert_load_min       router             share of the idlest expert of any layer
attention_entropy     attention          smallest mean entropy of a head's attention rows
query_norm, key_norm  attention          largest norm of a query and of a key as they meet in the logits
update_max            update             largest change of any parameter in the optimizer's last step
update_alignment      update_alignment   cosine of the change over the last stride and that over the one before it
gradient_alignment    gradient_alignment smallest cosine of a micro-batch's gradient and the mean of the others
===================== ================== ==============================================================================

The exact formulas stand in the classes. Every monitor is one file.
"""

from rmetric.monitor.mechanism.alignment import GradientAlignment, UpdateAlignment
from rmetric.monitor.mechanism.attention import AttentionRows
from rmetric.monitor.mechanism.base import MechanismMonitor, MonitorResult
from rmetric.monitor.mechanism.execution import MechanismResult
from rmetric.monitor.mechanism.qk_spectral import QkSpectral, QkWeights
from rmetric.monitor.mechanism.router import Router
from rmetric.monitor.mechanism.update import ByDifference, FromState, UpdateExtremes
from rmetric.monitor.mechanism.watch import MONITORS, STRIDE, MechanismWatch

__all__ = [
    "MONITORS",
    "STRIDE",
    "AttentionRows",
    "ByDifference",
    "FromState",
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
