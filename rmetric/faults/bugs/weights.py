"""Bugs of the weights: begun anew, noise, too few bits, an old copy, an average, replicas that drift apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from rmetric.attributes import replaced
from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import (
    Bug,
    PartialBug,
    is_distributed,
    number_of,
    randomness_kept,
    trained_parameters,
)

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from rmetric.live.run import LiveRun

Precision = Literal["bfloat16", "float16"]


@register_fault("LAYER_REINITIALISED")
@dataclass(frozen=True, kw_only=True)
class LayerReinitialised(PartialBug):
    """Some layers begin anew, since the checkpoint did not have them under their names. An event, not a state.

    The optimizer keeps what it knows about the old weights.
    """

    source = "transformers' warning that some weights were newly initialized; torch: load_state_dict(strict=False)"
    severities = {"low": {"share": 0.05}, "medium": {}, "high": {"share": 1.0}}

    share: float = 0.3
    """Share of the modules with weights of their own, drawn at the onset: at least one; above 0 and up to 1."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        import torch

        modules = _resettable(training)
        rng = training.rng(self.name)
        size = number_of(self.share, len(modules))
        chosen = [modules[index] for index in sorted(rng.choice(len(modules), size, replace=False))]
        training.observer.note("CORRUPTION", fault=self.name, modules=[name for name, _ in chosen])
        with randomness_kept(training):
            torch.manual_seed(int(rng.integers(2**62)))
            for _, module in chosen:
                module.reset_parameters()  # type: ignore[operator]
        yield


def _resettable(training: LiveRun) -> list[tuple[str, nn.Module]]:
    """Modules that are trained and know how to begin anew."""
    found = [
        (name, module)
        for name, module in training.model.named_modules()
        if hasattr(module, "reset_parameters") and any(item.requires_grad for item in module.parameters(recurse=False))
    ]
    if not found:
        raise UserError("LAYER_REINITIALISED needs a model with modules of torch that can be reset, and finds none")
    return found


@register_fault("WEIGHTS_ROT")
@dataclass(frozen=True, kw_only=True)
class WeightsRot(Bug):
    """Every step adds a little noise to all weights, as a broken copy between devices or a lossy checkpoint does."""

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (pytorch-84803: data lost between devices)"
    severities = {"low": {"noise": 1e-3}, "medium": {}, "high": {"noise": 3e-2}}
    above = {"noise": 0.0}

    noise: float = 1e-2
    """Standard deviation of the noise of a step, relative to the tensor's root mean square; above 0."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        import torch

        generator = torch.Generator(training.device)

        @torch.no_grad()
        def add_noise() -> None:
            generator.manual_seed(int(training.rng(self.name).integers(2**62)))
            for _, parameter in trained_parameters(training):
                parameter.add_(_like(parameter, generator) * (self.noise * parameter.square().mean().sqrt()))

        return training.at("update", add_noise)


def _like(tensor: Tensor, generator: Generator) -> Tensor:
    """Standard normal numbers in a tensor's shape."""
    import torch

    return torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)


@register_fault("BF16_WEIGHTS")
@dataclass(frozen=True, kw_only=True)
class Bf16Weights(Bug):
    """Weights are kept in 16 bits: after each update they are rounded to the nearest of few numbers.

    Updates below half of a weight's last bit (of bfloat16: 1/512 to 1/256 of the weight) are lost.
    """

    source = "Zamirai et al. 2020, arXiv 2010.06192 (nearest rounding of weight updates)"
    severities = {"low": {"precision": "float16"}, "medium": {}, "high": {}}
    one_of = {"precision": get_args(Precision)}

    precision: Precision = "bfloat16"
    """Type that the weights are rounded to."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        import torch

        coarse = getattr(torch, self.precision)
        parameters = [item for _, item in trained_parameters(training) if item.itemsize > coarse.itemsize]
        if not parameters:
            raise UserError(f"{self.name} changes nothing: this model's weights have 16 bits or fewer already")

        @torch.no_grad()
        def round_off() -> None:
            for parameter in parameters:
                parameter.copy_(parameter.to(coarse))

        return training.at("update", round_off)


@register_fault("STALE_WEIGHTS")
@dataclass(frozen=True, kw_only=True)
class StaleWeights(Bug):
    """Forward and backward passes use old copies of the weights, while the optimizer changes the true ones.

    It happens where a cache of cast weights outlives a step, as under one autocast around the whole loop, or where a
    worker is not told of new weights. Evaluations use the true weights.
    """

    source = "PyTorch documentation, torch.autocast (cache_enabled); TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (lightning-thunder-725)"  # noqa: E501
    severities = {"low": {"refresh_every": 4}, "medium": {"refresh_every": 32}, "high": {}}

    refresh_every: int = 0
    """Steps after which the copies are made anew; 0: never."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        parameters = [item for _, item in trained_parameters(training)]
        copies: list[Tensor] = []
        true: list[Tensor] = []
        made_at = 0

        def use_copies(worker: int) -> None:
            nonlocal made_at, copies
            if true:
                return  # of this step's first micro-batch
            if not copies or (self.refresh_every and training.step - made_at >= self.refresh_every):
                copies, made_at = [item.detach().clone() for item in parameters], training.step
            true.extend(item.data for item in parameters)
            for item, copy in zip(parameters, copies, strict=True):
                item.data = copy

        def use_true() -> None:
            for item, weights in zip(parameters, true, strict=False):
                item.data = weights
            true.clear()

        try:
            with training.at("micro_batch", use_copies), training.at("gradients", use_true):
                yield
        finally:
            use_true()  # where a step was broken off


@register_fault("WORKERS_DRIFT")
@dataclass(frozen=True, kw_only=True)
class WorkersDrift(Bug):
    """The processes of DistributedDataParallel no longer average their gradients: each trains a model of its own.

    Nobody is told; checkpoints hold the model of one of them, which has learned from its share of the data alone.
    """

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (pytorch-104336, x-jxmnop-ddp-out-of-sync)"

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        if not is_distributed(training):
            raise UserError(f"{self.name} needs a model that several processes train: DistributedDataParallel")
        return replaced(training.model, "require_backward_grad_sync", False)


@register_fault("AVERAGE_NOT_TAKEN_OUT")
@dataclass(frozen=True, kw_only=True)
class AverageNotTakenOut(Bug):
    """For each evaluation the weights are replaced by their moving average, and nobody puts the true ones back."""

    source = "Tarvainen, Valpola 2017, arXiv 1703.01780 (averages of weights are for evaluation)"
    severities = {"low": {"every": 50}, "medium": {}, "high": {"every": 1}}
    at_least = {"every": 1}
    above = {"decay": 0.0}
    below = {"decay": 1.0}

    every: int = 5
    """Steps from one evaluation to the next, at least 1."""
    decay: float = 0.99
    """Share of the average that is kept in a step, in (0, 1)."""

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        import torch

        weights: list[Tensor] = [item for _, item in trained_parameters(training)]
        averages = [item.detach().clone() for item in weights]

        @torch.no_grad()
        def average() -> None:
            torch._foreach_lerp_(averages, weights, 1.0 - self.decay)
            if training.step % self.every == 0:
                torch._foreach_copy_(weights, averages)

        return training.at("update", average)


@register_fault("EMBEDDING_CORRUPTED")
@dataclass(frozen=True, kw_only=True)
class EmbeddingCorrupted(PartialBug):
    """Some rows of the embeddings are large noise, since a shard of them was lost. An event, not a state."""

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (pytorch-84803: data lost between devices)"
    severities = {"low": {"share": 0.02}, "medium": {}, "high": {"share": 0.5}}

    share: float = 0.125
    """Share of the rows, drawn at the onset: at least one; above 0 and up to 1."""
    noise: float = 20.0
    """Standard deviation of what they become, in those of the embedding; above 0."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        import torch
        from torch import nn

        tables = [
            module.weight
            for module in training.model.modules()
            if isinstance(module, nn.Embedding) and module.weight.requires_grad
        ]
        if not tables:
            raise UserError(f"{self.name} needs a model with an embedding that is trained")
        rng = training.rng(self.name)
        generator = torch.Generator(training.device).manual_seed(int(rng.integers(2**62)))
        with torch.no_grad():
            for table in tables:
                rows = rng.choice(len(table), number_of(self.share, len(table)), replace=False).tolist()
                table[rows] = _like(table[rows], generator) * (self.noise * table.std())
        yield
