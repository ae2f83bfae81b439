"""One worker's whole gradient in a few hundred numbers: its norm, and a sketch that keeps angles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

SIZE = 512
"""Numbers of a sketch: the cosine of two sketches is that of the gradients within about 1/√512 = 0.04."""
SEED = 20_260_401
"""Of the signs: all workers must use the same."""


class GradientSketch:
    """Watches the gradient of each backward pass before it is added to others, and sketches it.

    .. math:: s_j = \\sum_{i: i \\bmod n = j} \\pm_i g_i

    with fixed random signs (a count sketch). Hooks on the parameters see what this process or this pass has made: under
    ``DistributedDataParallel`` the local gradient before it is averaged. A parameter without a gradient counts as 0.

    Parameters
    ----------
    model
        Its trainable parameters are watched.
    size
        Numbers of the sketch, n.
    """

    def __init__(self, model: nn.Module, size: int = SIZE) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        random = torch.Generator().manual_seed(SEED)
        self._size = size
        self._signs = [torch.randint(0, 2, (item.numel(),), generator=random).mul_(2).sub_(1) for item in parameters]
        self._handles = [item.register_hook(self._watcher(index)) for index, item in enumerate(parameters)]
        self._begin()

    def _begin(self) -> None:
        self._sum = torch.zeros(self._size, dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def _watcher(self, index: int) -> Callable[[Tensor], None]:
        def came(gradient: Tensor) -> None:
            flat = gradient.detach().reshape(-1).double()
            device = flat.device
            self._sum, self._squares = self._sum.to(device), self._squares.to(device)
            signed = flat * self._signs[index].to(device)
            padded = torch.nn.functional.pad(signed, (0, -len(signed) % self._size))
            self._sum += padded.view(-1, self._size).sum(0)
            self._squares += flat.square().sum()

        return came

    def take(self) -> Tensor:
        """Norm and sketch of what came since the last call, shape (1 + n,), float64."""
        taken = torch.cat([self._squares.sqrt().reshape(1), self._sum])
        self._begin()
        return taken

    def close(self) -> None:
        """Give back every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
