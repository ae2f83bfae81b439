"""What the gradients of a step look like: one norm a tensor, in fused reductions, left on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class GradientNorms:
    """Euclidean norm of each gradient, in single precision whatever the gradients' own type.

    A tensor that holds a NaN or an infinity has a norm that is not finite, and so has one whose norm overflows; nothing
    else has. That is why no second pass over the gradients is needed to find them.

    Parameters
    ----------
    model
        Its trainable parameters are watched; tied ones count once.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]

    @property
    def device(self) -> torch.device:
        """Where the first parameter lies."""
        return self._parameters[0].device if self._parameters else torch.device("cpu")

    def measure(self) -> tuple[list[int], Tensor | None]:
        """Which parameters have a gradient, as indices of :attr:`names`, and the norms, shape (gradients,).

        ``None`` if there is no gradient at all. Nothing here waits for the device.
        """
        gradients = [parameter.grad for parameter in self._parameters]
        present = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if not present:
            return present, None
        norms = torch._foreach_norm([_values(gradients[index]) for index in present], 2, torch.float32)
        return present, gathered(norms)


def gathered(scalars: Sequence[Tensor]) -> Tensor:
    """Scalars of one or several devices as one tensor on the first one's device."""
    home = scalars[0].device
    return torch.stack([item if item.device == home else item.to(home, non_blocking=True) for item in scalars])


def _values(gradient: Tensor | None) -> Tensor:
    """What a gradient stores: of a sparse one the entries, of a sharded one this process's part."""
    assert gradient is not None
    if gradient.is_sparse:
        return gradient.coalesce().values()
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient
