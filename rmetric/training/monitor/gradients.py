"""What the gradients of a step look like: one norm a tensor, in fused reductions, left on the device."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmetric.training.spread.agreement import Agreement
from rmetric.training.tensors import gathered


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
        self._shards = _shards(self._parameters)

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
        mine = gathered(norms)
        whole = mine if self._shards is None else self._shards.whole(mine)
        return present if whole is not None else [], whole


class _Shards:
    """Norms of whole gradients from those of their shards, by one small all-reduce over the processes."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self._agreement = group, Agreement(group)
        self._agreed: bool | None = None

    def whole(self, norms: Tensor) -> Tensor | None:
        """Shape (gradients,); ``None`` if not every process asks, and a part would pass for the whole."""
        if self._agreed is None:
            self._agreed = self._agreement.settle()
        if not self._agreed:
            return None
        squares = norms.square()
        dist.all_reduce(squares, group=self._group)
        return squares.sqrt()


def _shards(parameters: list[nn.Parameter]) -> _Shards | None:
    """The processes over which ``fully_shard`` has spread the parameters; ``None`` for a model that is whole here."""
    mesh = next((item.device_mesh for item in parameters if hasattr(item, "device_mesh")), None)
    return None if mesh is None else _Shards(mesh.get_group(mesh.ndim - 1))  # the last dimension shards, others repeat


def _values(gradient: Tensor | None) -> Tensor:
    """What a gradient stores: of a sparse one the entries, of a sharded one this process's part."""
    assert gradient is not None
    if gradient.is_sparse:
        return gradient.coalesce().values()
    return gradient.to_local() if hasattr(gradient, "to_local") else gradient
