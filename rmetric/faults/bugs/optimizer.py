"""Bugs of the optimizer: its state is lost, it lacks parameters, or a setting of it is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug, PartialBug, number_but_one, trained_parameters

if TYPE_CHECKING:
    from torch import Tensor

    from rmetric.live.run import LiveRun


@register_fault("OPTIMIZER_STATE_LOST")
@dataclass(frozen=True, kw_only=True)
class OptimizerStateLost(Bug):
    """Training is resumed without the optimizer's state: moments and step counts begin anew. An event, not a state.

    The first steps of Adam without its moments are as long as the learning rate in every coordinate.
    """

    source = "PyTorch tutorials, saving and loading a general checkpoint (the optimizer's state_dict belongs to it)"

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        if not any(training.optimizer.state.values()):
            raise UserError(f"{self.name} changes nothing: {_name(training)} has no state here")
        training.optimizer.state.clear()
        yield


@register_fault("PARAMETERS_NOT_IN_OPTIMIZER")
@dataclass(frozen=True, kw_only=True)
class ParametersNotInOptimizer(PartialBug):
    """The optimizer does not know the last parameters of the model: a new head, or a plain list of modules.

    They stay as they are. Nobody clears their gradients either: those of all steps add up, and where all gradients are
    clipped together they take the others' share.
    """

    source = "PyTorch documentation, torch.optim (an optimizer is made of the parameters that the model has then)"
    severities = {"low": {"share": 0.1}, "medium": {}, "high": {"share": 0.9}}

    share: float = 0.5
    """Share of the tensors, from the last one back; above 0 and below 1."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        tensors = [item for _, item in trained_parameters(training)]
        forgotten = tensors[-number_but_one(self, tensors) :]
        ids = {id(item) for item in forgotten}
        training.observer.note("CORRUPTION", fault=self.name, tensors=len(forgotten), of=len(tensors))
        state = training.optimizer.state
        lost: dict[Tensor, Any] = {item: state.pop(item) for item in forgotten if item in state}
        try:
            with _in_groups(training, "params", lambda items: [item for item in items if id(item) not in ids]):
                yield
        finally:
            state.update(lost)
            for item in forgotten:
                item.grad = None


@register_fault("WEIGHT_DECAY_TOO_LARGE")
@dataclass(frozen=True, kw_only=True)
class WeightDecayTooLarge(Bug):
    """The weight decay is far too large, and acts on all parameters, biases and norms included.

    Weights shrink towards 0. A number that suits SGD can be a hundred times too large for AdamW, and the reverse.
    """

    source = "Loshchilov, Hutter 2019, arXiv 1711.05101 (L2 penalty and decoupled decay need other numbers)"
    severities = {
        "low": {"weight_decay": 1.0},
        "medium": {},
        "high": {"weight_decay": 50.0},
    }
    above = {"weight_decay": 0.0}

    weight_decay: float = 10.0
    """The optimizer's setting in all groups, above 0."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        if "weight_decay" not in training.optimizer.param_groups[0]:
            raise UserError(f"{self.name} needs an optimizer with weight decay, and {_name(training)} has none")
        return _in_groups(training, "weight_decay", lambda _: self.weight_decay)


@register_fault("MOMENTUM_WRONG")
@dataclass(frozen=True, kw_only=True)
class MomentumWrong(Bug):
    """The momentum (of Adam: the first β) is far too near 1, as when the two β are given in the wrong order.

    An SGD that had 0.9 makes steps that are longer in the long run by 0.1 / (1 − momentum); under Adam steps follow
    gradients that are hundreds of steps old, and oscillate.
    """

    source = "Kingma, Ba 2015, arXiv 1412.6980 (β1 = 0.9, β2 = 0.999)"
    severities = {"low": {"momentum": 0.98}, "medium": {}, "high": {"momentum": 0.999}}
    at_least = {"momentum": 0.0}
    below = {"momentum": 1.0}

    momentum: float = 0.99
    """Momentum, or first β, in [0, 1)."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        known = training.optimizer.param_groups[0]
        if "betas" in known:
            changed = _in_groups(training, "betas", lambda betas: (self.momentum, *betas[1:]))
        elif known.get("momentum"):
            changed = _in_groups(training, "momentum", lambda _: self.momentum)
        else:
            raise UserError(f"{self.name} needs an optimizer with momentum, and {_name(training)} has none")
        return changed


def _name(training: LiveRun) -> str:
    return type(training.optimizer).__name__


@contextmanager
def _in_groups(training: LiveRun, key: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Change a setting in all groups of parameters, as long as the context lasts."""
    groups = list(training.optimizer.param_groups)
    before = [group[key] for group in groups]
    for group in groups:
        group[key] = change(group[key])
    try:
        yield
    finally:
        for group, value in zip(groups, before, strict=True):
            group[key] = value
