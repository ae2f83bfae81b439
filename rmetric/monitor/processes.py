"""The processes that train together, and this one's place among them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Processes:
    """All processes of a training. Known from the start: the process group may be gone when a run ends badly."""

    count: int = 1
    rank: int = 0

    @classmethod
    def current(cls) -> Self:
        """Processes of the default process group; without one, this process alone."""
        dist: Any = sys.modules.get("torch.distributed")  # who has not imported it has no process group
        if dist is not None and dist.is_available() and dist.is_initialized():
            return cls(dist.get_world_size(), dist.get_rank())
        return cls()

    @property
    def first(self) -> bool:
        """True in the process that writes."""
        return self.rank == 0

    @property
    def other(self) -> int | None:
        """Rank of the other process if there are two."""
        return 1 - self.rank if self.count == 2 else None


def measured_in_part(model: nn.Module) -> bool:
    """Whether FSDP 1 has cut a model, of which a process then measures its own part alone."""
    fsdp: Any = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:  # nobody can have made such a model, and the import takes seconds
        return False
    units: list[Any] = [module for module in model.modules() if isinstance(module, fsdp.FullyShardedDataParallel)]
    return any(unit._handle is not None and unit._handle.uses_sharded_strategy for unit in units)
