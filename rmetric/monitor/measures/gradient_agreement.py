"""Agreement of a gradient with those before."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.tensors import flat, on_cpu, real, stored, stride_over

COMPARED, MEMORY = 4096, 0.9
"""Entries whose gradients are compared with those before (the cosine of so many is known to 0.016), and what their
running mean keeps from step to step."""
LEAST_NORM = 1e-18
"""Norm below which single precision cannot tell directions: the squares underflow."""


class GradientAgreement:
    r"""Cosine of a gradient and the mean direction of those before, over a fixed sample of the entries.

    .. math:: a_t = \frac{u_t \cdot m_{t-1}}{|m_{t-1}|}, \qquad
        u_t = \frac{g_t}{|g_t|}, \quad m_t = 0.9 \, m_{t-1} + 0.1 \, u_t

    1 if all gradients point the same way, about 0 if batches have nothing in common, below 0 if the last steps went too
    far. Directions are averaged and not gradients, so that no single large one fills the mean.

    About so many ``entries`` are compared, spread evenly over all tensors in proportion to their sizes. Where the
    parameters change, it begins anew.

    **Source:** the mean is that of momentum, with its usual 0.9; its product with the next gradient as a measure of the
    step: Baydin et al. 2018, arXiv 1703.04782 (hypergradient descent).
    """

    def __init__(self, parameters: ModelParameters, entries: int = COMPARED) -> None:
        self._source, self._entries = parameters, entries
        self._mean: Tensor | None = None
        self._choose()

    def measure(self) -> Tensor | None:
        """The cosine of the gradients that there are now, a scalar on the device; NaN if all are 0, or as good as 0.

        ``None`` without a gradient, in the first call, and after other parameters have come.
        """
        if self._version != self._source.version:
            self._choose()
        if all(item.grad is None for item in self._parameters):
            return None
        gradient = self._gradient()
        norm = torch.linalg.vector_norm(gradient)
        direction = gradient.div_(norm.masked_fill_(norm < LEAST_NORM, math.nan))
        mean, known = self._mean, direction.nan_to_num(nan=0.0)
        if mean is None or len(mean) != len(known):
            self._mean = known
            return None
        mean = mean.to(known.device)
        length = torch.linalg.vector_norm(mean)  # that shrinks with each gradient of 0
        cosine = torch.dot(direction, mean) / length.masked_fill_(length < LEAST_NORM, math.nan)
        self._mean = mean.lerp_(known, 1.0 - MEMORY)
        return cosine

    def _gradient(self) -> Tensor:
        """Sampled gradient, shape (entries,), FP32; 0 where it is missing or not finite."""
        samples = [self._sample(item) for item in self._parameters]
        if self._spread:
            samples = [sample.to(samples[0].device) for sample in samples]
        return torch.cat(samples).detach().to(torch.float32).nan_to_num_(0.0, 0.0, 0.0)

    def _sample(self, parameter: nn.Parameter) -> Tensor:
        """Entries of a gradient at a fixed distance; zeros for one that is missing, or sparse (no fixed places)."""
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse:
            return torch.zeros(self._length(flat(parameter)), device=self._source.device)
        values = real(stored(gradient))
        if values.is_contiguous():  # in one operation and not in two: there are as many of them as parameters
            return values.as_strided((self._length(values),), (self._stride,))
        return values.reshape(-1)[:: self._stride]

    def _length(self, values: Tensor) -> int:
        return math.ceil(values.numel() / self._stride)

    def _choose(self) -> None:
        """Choose the entries, of the parameters as they are now, and begin anew."""
        self._version = self._source.version
        self._parameters = self._source.present
        self._stride = stride_over(self._parameters, self._entries)
        self._spread = len({parameter.device for parameter in self._parameters}) > 1
        self._mean = None

    def state_dict(self) -> dict[str, Tensor | None]:
        """The running mean, so that a resumed run goes on with it."""
        return {"mean": on_cpu(self._mean)}

    def load_state_dict(self, state: dict[str, Tensor | None]) -> None:
        """Go on from a state, the parameters of which :class:`ModelParameters` has taken up."""
        self._choose()
        mean = state["mean"]
        self._mean = None if mean is None else mean.clone()
