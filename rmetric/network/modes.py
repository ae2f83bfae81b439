"""Modules that compute otherwise in training than in evaluation."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


def dropouts(model: nn.Module) -> list[nn.Module]:
    """Modules that drop something in training; attention and recurrent layers do it by themselves."""
    return [
        module
        for module in model.modules()
        if (isinstance(module, _DropoutNd) and module.p > 0.0)
        or (isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0.0)
    ]


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Modules with running statistics."""
    return [item for item in model.modules() if isinstance(item, _NormBase) and item.track_running_stats]


def trains_as_in_evaluation(model: nn.Module) -> bool:
    """Whether a model as a whole is in evaluation mode, and this makes a difference.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
    >>> trains_as_in_evaluation(model), trains_as_in_evaluation(model.eval()), trains_as_in_evaluation(model[0].eval())
    (False, True, False)
    """
    modules = [] if model.training else [*dropouts(model), *batch_norms(model)]
    return bool(modules) and not any(module.training for module in modules)
