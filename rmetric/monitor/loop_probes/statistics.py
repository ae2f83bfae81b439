"""Look at the running statistics of batch norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_probes.samples import TENSORS, WEIGHTS, Measured, is_plain, is_same, sample_of
from rmetric.monitor.modes import batch_norms
from rmetric.monitor.parameters import ModelParameters


class StatisticsProbe:
    """Looks whether the running statistics of batch norm have moved since the step before."""

    watched = "the running statistics of batch norm"

    def __init__(self, model: nn.Module, parameters: ModelParameters) -> None:
        self._model, self._source, self._version = model, parameters, parameters.version
        self._modules = batch_norms(model)[:TENSORS]
        self._before: Tensor | None = None
        self._still: Tensor | None = None
        self.closed = False

    def measure(self) -> Measured:
        """``statistics_still``, a truth value on the device; ``None``: no module has any and is in training mode."""
        self._still = None
        self._look()
        return {"statistics_still": self._still}

    @ends_alone
    def _look(self) -> None:
        if self._version != self._source.version:
            self._version, self._modules = self._source.version, batch_norms(self._model)[:TENSORS]
        means = [module.running_mean for module in self._modules if module.training]
        plain = [mean for mean in means if isinstance(mean, Tensor) and is_plain(mean)]
        if plain:
            now = torch.cat([sample_of(mean, WEIGHTS) for mean in plain if mean.device == plain[0].device])
            self._still, self._before = is_same(now, self._before), now
