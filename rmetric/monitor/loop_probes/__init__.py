"""Look at a training loop from inside its passes: at the batch, its targets, the weights, kept or clipped gradients.

Nothing here waits for the device, and a probe that fails ends itself and not the training.
"""

from rmetric.monitor.loop_probes.batch import BatchProbe
from rmetric.monitor.loop_probes.hooks import ModelHook, PassHook, UpdateHook, _look_at_nothing, _no_hook
from rmetric.monitor.loop_probes.statistics import StatisticsProbe
from rmetric.monitor.loop_probes.target import TargetProbe
from rmetric.monitor.loop_probes.update import UpdateProbe

SAVED = _no_hook, _look_at_nothing
"""What files of models that older versions have saved look for here, by these names."""
__all__ = ["BatchProbe", "ModelHook", "PassHook", "StatisticsProbe", "TargetProbe", "UpdateHook", "UpdateProbe"]
