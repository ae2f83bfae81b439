"""Look at a training loop from inside its passes: at the batch, its targets, the weights, kept or clipped gradients.

Nothing here waits for the device, and a probe that fails ends itself and not the training.
"""

from rmetric.monitor.loop_probes.batch import BatchProbe
from rmetric.monitor.loop_probes.hooks import ModelHook, PassHook, UpdateHook, remove_hooks
from rmetric.monitor.loop_probes.target import TargetProbe
from rmetric.monitor.loop_probes.update import StatisticsProbe, UpdateProbe

__all__ = [
    "BatchProbe", "ModelHook", "PassHook", "StatisticsProbe", "TargetProbe", "UpdateHook", "UpdateProbe",
    "remove_hooks",
]  # fmt: skip
