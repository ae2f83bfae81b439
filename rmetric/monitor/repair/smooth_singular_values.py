"""Compress the large singular values of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy
from rmetric.network.structure import layer_stacks, unwrapped


@dataclass(kw_only=True)
class SmoothSingularValues(InterventionPolicy):
    r"""Smooths the top of the singular spectrum of the weight matrices, after the update of a suspicious step.

    With singular values :math:`s_i` of a matrix, r the root of their mean square and c = ``times`` · r,

    .. math:: s_i \leftarrow c\,(1 + \ln(s_i / c)) \quad\text{where } s_i > c

    continuous and once differentiable at c; smaller values, and all singular vectors, stay as they are. The top values
    become logarithmically less extreme, the order of the values is kept, and a matrix whose spectrum is flat is not
    changed at all. A matrix that is not finite is left alone.

    Taken are the matrices of the layers of all stacks (each expert by itself), or all matrices of a model without such
    layers; embeddings and the output layer are not.

    **Source:** the idea, and that it restores trainability even after a failure: H. Cao et al. 2026, arXiv 2602.01308:
    the gradient norm is bounded by the top singular values of the weights, which grow with the updates.
    **Deviation:** the formula is this project's working definition, not theirs. The optimizer's state is left as it is.
    """

    times: float = 3.0
    """c in units of the root mean square of the singular values."""
    _model: nn.Module | None = field(init=False, repr=False, default=None)
    _due: StepContext | None = field(init=False, repr=False, default=None)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        if any(hasattr(parameter, "to_local") for parameter in model.parameters()):
            raise UserError("SmoothSingularValues needs whole matrices; it does not serve a model under fully_shard")
        self._model = model

    def intervene(self, context: StepContext) -> Decision:
        self._due = context
        return Decision.PASS

    def after_update(self) -> None:
        if self._due is None or self._model is None:
            return
        context, self._due = self._due, None
        changed = {}
        for name, parameter in _matrices(self._model):
            largest = smooth_(parameter.detach(), self.times)
            if largest is not None:
                changed[name] = list(largest)
        context.report(self, "smoothed", details={"spectral_norms": changed})

    def close(self) -> None:
        self._model = self._due = None


def _matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Matrices by name; one of three dimensions holds one matrix an expert, unless it is a kernel or has but one."""
    convolutions = (module for module in model.modules() if isinstance(module, nn.modules.conv._ConvNd))
    kernels = {id(item) for convolution in convolutions for item in convolution.parameters()}
    prefixes = tuple(f"{layer.name}." for stack in layer_stacks(model) for layer in stack)
    named = [(name, item) for name, item in unwrapped(model).named_parameters() if item.requires_grad]
    inside = [(name, item) for name, item in named if name.startswith(prefixes or ("",))]
    return [
        (name, item)
        for name, item in inside
        if item.ndim == 2 or (item.ndim == 3 and len(item) > 1 and id(item) not in kernels)
    ]


@torch.no_grad()
def smooth_(matrix: Tensor, times: float) -> tuple[float, float] | None:
    """Smooth in place; returns the spectral norm before and after, ``None`` if nothing had to be done.

    >>> weight = torch.diag(torch.tensor([10.0, 1.0, 1.0, 1.0]))
    >>> [round(value, 2) for value in smooth_(weight, times=1.0)]
    [10.0, 8.52]
    """
    if not bool(torch.isfinite(matrix).all()):
        return None
    left, values, right = torch.linalg.svd(matrix.float(), full_matrices=False)
    limit = times * values.square().mean(-1, keepdim=True).sqrt()
    smoothed = torch.where(values > limit, limit * (1.0 + (values / limit).log()), values)
    if torch.equal(smoothed, values):
        return None
    # only the top is replaced, so that what lies below keeps its bits as far as it can
    matrix.add_(((left * (smoothed - values).unsqueeze(-2)) @ right).to(matrix.dtype))
    before, after = float(values.max()), float(smoothed.max())
    return (before, after) if math.isfinite(after) else None
