"""What one computation of a step's gradients has left behind for the monitor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from rmetric.training.monitor.readout import Packet, Readout


@dataclass(frozen=True)
class Computation:
    """One forward and backward pass of all micro-batches. A step that is repaired has more than one of them."""

    loss: Tensor
    """Scalar, nats, on its device."""
    gradients: list[int]
    """Which parameters have a gradient."""
    norms: Tensor | None
    """Norm of each, shape (gradients,); ``None``: there is none."""
    parts: Tensor | None
    """Gradient norms of the workers or micro-batches, shape (parts,); ``None``: not measured."""
    spread: str
    """Where the parts come from."""
    attention_logit: Tensor | None
    """The largest attention logit; ``None``: not measured."""

    @cached_property
    def readout(self) -> Readout:
        """Norms, parts and loss on the host. Waits for the device, once."""
        return Packet(self.gradients, self.norms, self.parts, {"training_loss": self.loss}).read()
