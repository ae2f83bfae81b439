"""A source of σ² over workers, however their gradients come together: it begins once all of them agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch.distributed as dist
from torch import Tensor

from rmetric.monitor.dispersion.collectives import CollectiveGuard, NormGather
from rmetric.monitor.dispersion.mean_loss import LossExchange, PendingMean


class WorkerExchange:
    """Exchanges the norm of each worker's own gradient, in every step from the one on in which all have agreed.

    Parameters
    ----------
    group
        The workers.
    make_gather
        Makes a gather that receives every gradient from then on. Called once, unless this is closed before.
    guard
        Asked whether every process takes part.
    """

    name: ClassVar[str] = "workers"

    def __init__(self, group: dist.ProcessGroup, make_gather: Callable[[], NormGather], guard: CollectiveGuard) -> None:
        self._group, self._guard = group, guard
        self._make_gather: Callable[[], NormGather] | None = make_gather
        self._gather: NormGather | None = None
        self._losses: LossExchange | None = None
        self._settled = False

    @property
    def worker_times(self) -> Tensor | None:
        return self._gather.worker_times if self._gather else None

    def collect(self) -> Tensor | None:
        if not self._settled:
            self.start_measuring()
            return None
        return self._gather.collect() if self._gather else None

    def start_measuring(self) -> None:
        self._settled = True
        if self._make_gather is not None and self._guard.all_ready(self._group):
            self._gather = self._make_gather()
            self._losses = self._gather.losses

    def mean_loss(self, loss: Tensor | None) -> PendingMean | None:
        return self._losses.report(loss) if self._losses else None

    def next_step(self, measured: bool) -> None:
        """Do nothing: what the workers exchange they exchange in every step."""

    def refresh(self) -> None:
        """Do nothing: torch exchanges the parameters that it was given when the model was wrapped."""

    def close(self) -> None:
        self._make_gather = None
        self._gather = None
