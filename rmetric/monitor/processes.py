"""The processes that train together, and this one's place among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch.distributed as dist


@dataclass(frozen=True)
class Processes:
    """All processes of a training. Known from the start: the process group may be gone when a run ends badly."""

    count: int = 1
    rank: int = 0
    """Number of this process, from 0."""

    @classmethod
    def current(cls) -> Self:
        """Processes of the default process group; without one, this process alone."""
        if dist.is_available() and dist.is_initialized():
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
