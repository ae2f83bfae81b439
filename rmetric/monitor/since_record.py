"""What a training loop has reported since the last record, for the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, SupportsFloat


@dataclass
class SinceRecord:
    """What has come since the last record. A checkpoint holds it, but for the loss."""

    validation: list[tuple[int, float]] = field(default_factory=list)
    """Steps and validation losses, nats."""
    rewards: list[float] = field(default_factory=list)
    planned_changes: int = 0
    """Changes that were announced."""
    loss: SupportsFloat | None = None
    """Loss of the latest step, if it has no record."""

    @property
    def validation_losses(self) -> list[float]:
        return [loss for _, loss in self.validation]

    @property
    def reward(self) -> float | None:
        """Mean reward since the last record; ``None`` if none was reported."""
        return fmean(self.rewards) if self.rewards else None

    def state_dict(self) -> dict[str, Any]:
        """What the next record needs, as entries of the monitor's state."""
        return {
            "validation": list(self.validation),
            "rewards": list(self.rewards),
            "planned_changes": self.planned_changes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; what has been reported before stays, but for validation losses of another model."""
        self.validation = [(step, loss) for step, loss in state["validation"]]
        self.rewards = [*state["rewards"], *self.rewards]
        self.planned_changes += state["planned_changes"]
