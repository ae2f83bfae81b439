"""The contract of what takes the measurements of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmetric.monitor.pending_step import PendingStep
from rmetric.monitor.since_record import SinceRecord

if TYPE_CHECKING:  # a loop without torch has none
    from rmetric.monitor.repair.context import Recompute


class Measurer(ABC):
    """Takes the measurements of a step: of a model that it watches, or what the loop reports.

    What a loop that only reports has no use for does nothing here.
    """

    @abstractmethod
    def usable(self, number: Any) -> Any:
        """A number that the loop gives; ``None`` if it is not one real number."""

    @abstractmethod
    def computation(self, step: int, loss: Any) -> Any:
        """What is known of a step before its update; its ``loss`` is ``None`` if the one given is no usable number."""

    @abstractmethod
    def measure(self, step: int, computation: Any, step_time_s: float, since: SinceRecord) -> PendingStep:
        """Start the transfer of a step's numbers to the host."""

    def changed_batches(self) -> str:
        """What is changed with the shape of batches as of this step, in words; empty: nothing. Ask once a record."""
        return ""

    def rest(self, step: int) -> None:  # noqa: B027
        """Pass by a step between two that are measured."""

    def keep_pace(self, step: int) -> None:  # noqa: B027
        """Take part in what the other processes exchange in a step and is not yet done here, with nothing measured."""

    def restarting(self, recompute: Recompute) -> Recompute:
        """Wrap the recomputation of a step."""
        return recompute

    def forget_update(self) -> None:  # noqa: B027
        """Take in that the update of the latest step was left out: it has no size."""

    def state_dict(self) -> dict[str, Any]:
        """History that later measurements depend on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], step: int, source: str) -> None:  # noqa: B027
        """Go on from the state after a step, in which σ² came from this source."""

    def close(self) -> None:  # noqa: B027
        """Give back all that is held."""
