"""Bugs of the mode: dropout and batch norm act as in evaluation while they train, or the reverse, or far too much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from rmetric.attributes import replaced
from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import Bug

if TYPE_CHECKING:
    from torch import nn

    from rmetric.live.run import LiveRun

Dropout = Literal["off", "on"]
Statistics = Literal["used", "stale"]


@register_fault("DROPOUT_STATE")
@dataclass(frozen=True, kw_only=True)
class DropoutState(Bug):
    """Dropout is always off, in training too, or always on, in evaluation too.

    Off: the training loss falls at once, and the model may overfit. On: training is as it should be, and the held-out
    loss is that of a crippled model.
    """

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (transformers-33844: on in evaluation)"
    severities = {"low": {"dropout": "on"}, "medium": {}, "high": {}}
    one_of = {"dropout": get_args(Dropout)}

    dropout: Dropout = "off"
    """State in which it stays."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.network.modes import dropouts

        if not (modules := dropouts(training.model)):
            raise UserError(f"{self.name} needs a model with dropout, and this one has none")
        return _held_in_mode(modules, training=self.dropout == "on")


@register_fault("EVAL_MODE_IN_TRAINING")
@dataclass(frozen=True, kw_only=True)
class EvalModeInTraining(Bug):
    """``model.train()`` is not called again after an evaluation: no dropout, and batch norm with frozen statistics."""

    source = "Karpathy 2018, most common neural net mistakes (to toggle train and eval mode is forgotten)"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.network.modes import batch_norms, dropouts

        if not dropouts(training.model) and not batch_norms(training.model):
            raise UserError(f"{self.name} changes nothing: this model has neither dropout nor batch norm")

        def evaluate(batch: Any) -> Any:
            training.model.eval()
            return batch

        return training.at("batch", evaluate)


@register_fault("NORM_STATISTICS_FROZEN")
@dataclass(frozen=True, kw_only=True)
class NormStatisticsFrozen(Bug):
    """The running statistics of batch norm stay as they are while the activations change.

    ``used``: training normalises by them, so that nothing is normalised any more as weights grow. ``stale``: training
    normalises by the batch, as it should, and evaluation by what was true at the onset.
    """

    source = "Wu, Johnson 2021, arXiv 2105.07576 (frozen and inconsistent statistics of batch norm)"
    severities = {"low": {"statistics": "stale"}, "medium": {}, "high": {}}
    one_of = {"statistics": get_args(Statistics)}

    statistics: Statistics = "used"
    """Whether the frozen statistics are used in training, or only become stale."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        from rmetric.network.modes import batch_norms

        if not (modules := batch_norms(training.model)):
            raise UserError(f"{self.name} needs a model with batch norm, and this one has none")
        with ExitStack() as stack:
            if self.statistics == "used":
                stack.enter_context(_held_in_mode(modules, training=False))
            else:
                for module in modules:
                    stack.enter_context(replaced(module, "momentum", 0.0))
            yield


@contextmanager
def _held_in_mode(modules: list[nn.Module], *, training: bool) -> Iterator[None]:
    """Whatever mode the model is in, these modules compute as in training, or as in evaluation."""

    def set_mode(module: nn.Module, inputs: Any) -> None:
        module.train(training)

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(set_mode).remove)
        yield


@register_fault("DROPOUT_TOO_HIGH")
@dataclass(frozen=True, kw_only=True)
class DropoutTooHigh(Bug):
    """Dropout leaves out nearly everything: its rate was given where the share that is kept was asked for."""

    source = "Srivastava et al. 2014, JMLR 15 (p is the probability to keep a unit there, to drop it in libraries)"
    severities = {"low": {"rate": 0.7}, "medium": {}, "high": {"rate": 0.99}}
    above = {"rate": 0.0}
    below = {"rate": 1.0}

    rate: float = 0.95
    """Probability that an entry is left out, in (0, 1)."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        from rmetric.network.modes import dropouts

        if not (modules := [module for module in dropouts(training.model) if hasattr(module, "p")]):
            raise UserError(f"{self.name} needs a model with dropout, and this one has none")
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(replaced(module, "p", self.rate))
            yield
