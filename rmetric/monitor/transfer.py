"""Transfer the numbers of a step from the device to the host, as one small tensor and without waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rmetric.monitor.step_numbers import StepNumbers


class PendingTensor:
    """A tensor on its way to the host. Making it starts the copy, :meth:`read` waits for its end.

    On an accelerator the copy goes to pinned memory behind the work that is queued already, and an event tells when it
    is done: a step later, as a rule, nobody has to wait.
    """

    def __init__(self, values: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if values.device.type != "cuda":
            self._values = values.cpu()
            return
        self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True, device="cpu")
        self._values.copy_(values, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def read(self) -> NDArray[np.float64]:
        """Return the numbers; waits until they have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._values.numpy().astype(np.float64)


@dataclass(frozen=True)
class StepComputation:
    """Results of one forward and backward pass of all micro-batches, on their device. A repaired step has several."""

    loss: Tensor | None = None
    """Scalar, nats, on its device; ``None``: the training loop gave none."""
    gradients: list[int] = field(default_factory=list)
    """Indices of the parameters that have a gradient."""
    norms: Tensor | None = None
    """Norm of each, shape (gradients,); ``None``: there is none."""
    parts: Tensor | None = None
    """Gradient norms of the workers or micro-batches, shape (parts,); ``None``: not measured."""
    dispersion_source: str = ""
    """Source of the parts."""
    attention_logit: Tensor | None = None
    """The largest attention logit; ``None``: not measured."""
    names: Sequence[str] = ()
    """Of all parameters."""

    @cached_property
    def numbers(self) -> StepNumbers:
        """Norms, parts and loss on the host. Waits for the device, once."""
        return DeviceTransfer(self, {"training_loss": self.loss}).read()


class DeviceTransfer:
    """Transfer, as one small tensor, of a computation's norms and of ``scalars`` by name (``None``: not measured)."""

    def __init__(self, computation: StepComputation, scalars: Mapping[str, Tensor | None]) -> None:
        self._gradients, self._parameters = computation.gradients, computation.names
        norms, parts = computation.norms, computation.parts
        self._names = [name for name, value in scalars.items() if value is not None]
        self._parts = 0 if parts is None else len(parts)
        vectors = [value.detach().reshape(1) for value in scalars.values() if value is not None]
        vectors += [vector for vector in (norms, parts) if vector is not None]
        self._copy = PendingTensor(torch.cat(_alike(vectors)) if vectors else torch.empty(0, device="cpu"))

    def read(self) -> StepNumbers:
        values = self._copy.read()
        scalars, rest = values[: len(self._names)], values[len(self._names) :]
        norms, parts = rest[: len(rest) - self._parts], rest[len(rest) - self._parts :]
        named = dict(zip(self._names, scalars.tolist(), strict=True))
        return StepNumbers(self._gradients, norms, parts, named, self._parameters)


def _alike(vectors: list[Tensor]) -> list[Tensor]:
    """All in single precision on the first one's device."""
    home = vectors[0].device
    return [
        vector
        if vector.dtype == torch.float32 and vector.device == home
        else vector.to(home, torch.float32, non_blocking=home.type != "cpu")  # the host waits for what it reads
        for vector in vectors
    ]
