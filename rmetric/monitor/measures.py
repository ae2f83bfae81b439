"""Measurements of a step that stay on the device: gradient norms, update size, largest attention logit."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmetric.live.models.attention import AttentionFunction, masked_logits, unmasked_logits, wrapped_attention
from rmetric.live.models.structure import attentions
from rmetric.monitor.dispersion.collectives import CollectiveGuard
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.tensors import flat, gathered, norms_of, on_cpu, real, stored, stride_of

LOGGER = logging.getLogger("rmetric")
ENTRIES = 16_384
"""Entries whose update is measured by default: the RMS of so many is known to about 1 %."""
COMPARED, MEMORY = 4096, 0.9
"""Entries whose gradients are compared with those before (the cosine of so many is known to 0.016), and what their
running mean keeps from step to step."""
LEAST_NORM = 1e-18
"""Norm below which single precision cannot tell directions: the squares underflow."""
CHUNK = 2**24
"""Logits that are in memory at one time, at most (one query of all rows and heads at least)."""


class GradientNorms:
    """Euclidean norm of each gradient, in single precision whatever the gradients' own type.

    A tensor that holds a NaN or an infinity has a norm that is not finite, and so has one whose norm overflows; nothing
    else has. That is why no second pass over the gradients is needed to find them.

    Parameters
    ----------
    parameters
        Those that are watched.
    guard
        Asked whether every process takes part where gradients are sharded.
    """

    def __init__(self, parameters: ModelParameters, guard: CollectiveGuard | None = None) -> None:
        self._parameters = parameters
        self._shards = _Shards(parameters.tensors, CollectiveGuard() if guard is None else guard)

    def measure(self) -> tuple[list[int], Tensor | None]:
        """Return the numbers of the parameters that have a gradient, and the norms, shape (gradients,).

        ``None`` if there is no gradient at all. Nothing here waits for the device.
        """
        self._parameters.refresh()
        tensors = self._parameters.tensors
        gradients = {index: item.grad for index, item in enumerate(tensors) if item.grad is not None}
        present = list(gradients)
        if not present:
            return present, None
        whole = self._shards.whole([*gradients.values()])
        return present if whole is not None else [], whole


class _Shards:
    """Norms of whole gradients from those of their shards, by a small all-reduce over each group that shares some.

    What ``fully_shard`` or tensor parallelism has cut is summed over the dimensions of the mesh that cut it, and over
    no other: along those a gradient is the same in every process, as one that is no ``DTensor`` is in all.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], guard: CollectiveGuard) -> None:
        meshes = [item.device_mesh for item in parameters if hasattr(item, "device_mesh")]
        groups = [mesh.get_group(dim) for mesh in meshes for dim in range(mesh.ndim)]
        self._groups, self._guard = {group.group_name for group in groups}, guard

    def whole(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """Shape (gradients,); ``None`` if not every process asks, and a part would pass for the whole."""
        if not self._groups:
            return gathered(norms_of([*gradients]))
        groups: dict[dist.ProcessGroup, list[int]] = {}
        for index, gradient in enumerate(gradients):
            for group, cuts in _groups_of(gradient):
                groups.setdefault(group, []).extend([index] * cuts)
        agreed = [self._is_agreed(group) for group in groups]  # each is asked: others wait for the answer
        if not all(agreed):
            return None
        squares = gathered(norms_of([_summed(gradient) for gradient in gradients])).square()
        for group, shared in groups.items():
            if shared:
                sums = squares[shared]
                dist.all_reduce(sums, group=group)
                squares[shared] = sums
        return squares.sqrt()

    def _is_agreed(self, group: dist.ProcessGroup) -> bool:
        return group.group_name in self._groups and self._guard.all_ready(group, "gradient norms are off")


def _groups_of(gradient: Any) -> list[tuple[dist.ProcessGroup, bool]]:
    """Groups of processes that have not all of a gradient each, and whether each has a part of the entries."""
    if type(gradient) is Tensor or not hasattr(gradient, "placements"):
        return []
    mesh, places = gradient.device_mesh, enumerate(gradient.placements)
    return [(mesh.get_group(dim), not place.is_partial()) for dim, place in places if not place.is_replicate()]


def _summed(gradient: Any) -> Tensor:
    """A gradient of which no process has only a term of a sum, as sequence parallelism leaves some."""
    places = getattr(gradient, "placements", ())
    if not any(place.is_partial() for place in places):
        whole: Tensor = gradient
        return whole
    from torch.distributed.tensor import Replicate  # of use here alone, and slow to import

    summed: Tensor = gradient.redistribute(placements=[Replicate() if it.is_partial() else it for it in places])
    return summed


class UpdateSize:
    """Root mean square of parameter changes from one call to the next, over a fixed sample of the entries.

    .. math:: RMS = \\sqrt{\\frac{1}{n} \\sum_i (w_{t,i} - w_{t-1,i})^2}

    Parameters
    ----------
    parameters
        Those that are watched. Where they change, the change is that of the old ones once more, then of the new ones.
    entries
        About how many are watched, spread evenly over all tensors in proportion to their sizes; ``None``: all.

    **Deviation:** the change is measured on the parameters and not worked out from the optimizer's state. That is the
    same number for AdamW (a test compares them), needs no knowledge of the optimizer, contains clipping and weight
    decay, and also shows an update that was computed wrongly, which the state does not. Of sharded parameters it is
    that of this process's shards: nothing is exchanged for it.
    """

    def __init__(self, parameters: ModelParameters, entries: int | None = ENTRIES) -> None:
        self._source, self._entries = parameters, entries
        self._before: Tensor | None = None
        self._choose()

    def _choose(self) -> None:
        """Choose the entries, of the parameters as they are now."""
        self._version = self._source.version
        self._parameters = self._source.present
        self._stride = stride_of(sum(parameter.numel() for parameter in self._parameters), self._entries)
        self._views: list[Tensor] = []
        self._alike = False
        self._places: list[int] = []

    def begin(self) -> None:
        """Let the next :meth:`measure` say what has changed from now on."""
        if self._version != self._source.version:
            self._choose()
        self._before = torch.cat(self._sample())

    def measure(self) -> Tensor | None:
        """The RMS since the call before, a scalar on the device; ``None`` in the first call, and after a resize."""
        now = torch.cat(self._sample())
        before, self._before = self._before, now
        if self._version != self._source.version:
            self.begin()
        if before is None or len(before) != len(now):  # a vocabulary that has grown has more rows in the same tensor
            return None
        change = before.to(now.device).sub_(now)  # nobody needs the numbers before any more
        rms: Tensor = torch.linalg.vector_norm(change).div_(math.sqrt(len(now)))
        return rms

    def _sample(self) -> list[Tensor]:
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places:  # the first call, or the model was moved
            self._views = [flat(parameter)[:: self._stride] for parameter in self._parameters]
            whole = all(parameter.is_contiguous() for parameter in self._parameters)
            self._places = places if whole else []  # a view of what is not contiguous is a copy, and grows old
            forms = {(view.device, view.dtype) for view in self._views}
            self._alike = len(forms) == 1 and self._views[0].dtype == torch.float32
        if self._alike:
            return self._views
        home = self._views[0].device
        return [view.to(home, torch.float32, non_blocking=True) for view in self._views]

    def state_dict(self) -> dict[str, Tensor | None]:
        """The sample of the call before, so that a resumed run knows its first update."""
        return {"before": on_cpu(self._before)}

    def load_state_dict(self, state: dict[str, Tensor | None]) -> None:
        """Go on from a state, the parameters of which :class:`ModelParameters` has taken up."""
        self._choose()
        before = state["before"]
        entries = sum(map(len, self._sample()))
        # of other parameters than those the first change is not known
        self._before = before.clone() if before is not None and len(before) == entries else None


class GradientAgreement:
    r"""Cosine of a gradient and the mean direction of those before, over a fixed sample of the entries.

    .. math:: a_t = \frac{u_t \cdot m_{t-1}}{|m_{t-1}|}, \qquad
        u_t = \frac{g_t}{|g_t|}, \quad m_t = 0.9 \, m_{t-1} + 0.1 \, u_t

    1 if all gradients point the same way, about 0 if batches have nothing in common, below 0 if the last steps went too
    far. Directions are averaged and not gradients, so that no single large one fills the mean.

    Parameters
    ----------
    parameters
        Those that are watched. Where they change, it begins anew.
    entries
        About how many are watched, spread evenly over all tensors in proportion to their sizes.

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
        """The sample, with 0 where there is no gradient, or none that is a number."""
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
        self._stride = stride_of(sum(flat(parameter).numel() for parameter in self._parameters), self._entries)
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


class AttentionLogits:
    """Watches the largest attention logit max over rows, heads, layers, queries i and keys j of ``scaling · qᵢ·kⱼ``.

    They are those behind a cap or a bias of positions where the model has one. Only keys that a query may look at count
    (causal, sliding-window and padding masks), and only forward passes in training mode, so that what is watched does
    not depend on how often somebody validates. The model's own attention is called unchanged. All stays on the device:
    nothing waits for it.

    Parameters
    ----------
    model
        A transformers model; it may be wrapped by ``DistributedDataParallel`` or peft.
    chunk
        Logits in memory at one time.

    Raises
    ------
    UserError
        If the model's attention is of no known form.

    **Source:** growth of attention logits as a sign of instability: Wortsman et al. 2023, arXiv 2309.14322.
    """

    def __init__(self, model: nn.Module, *, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        self._largest: Tensor | None = None
        self._failed = False
        self._stack = ExitStack()
        modules = [attention.module for attention in attentions(model, "the maximum of the attention logits")]
        self._stack.enter_context(wrapped_attention(modules, self._watch))

    def collect(self) -> Tensor | None:
        """The largest logit since the last call, a float32 scalar on the device; +∞ where one is not finite.

        None if no forward pass in training mode came in between.
        """
        largest, self._largest = self._largest, None
        return largest

    def close(self) -> None:
        """Take everything off the model; more than once does no harm."""
        self._stack.close()

    def _watch(
        self,
        inner: AttentionFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if module.training and not self._failed:
            try:
                self._add(_largest_logit(module, query, key, mask, options, self._chunk))
            except Exception:  # watching must never break a training run
                self._failed, self._largest = True, None
                LOGGER.warning("the attention logits are no longer watched", exc_info=True)
        return inner(module, query, key, value, mask, **options)

    def _add(self, largest: Tensor) -> None:
        # layers of a model that is spread over several devices meet on that of the first
        self._largest = largest if self._largest is None else torch.maximum(self._largest, largest.to(self._largest))


@torch.no_grad()
def _largest_logit(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], chunk: int
) -> Tensor:
    rows, heads, tokens, _ = query.shape
    step = max(1, chunk // (rows * heads * key.shape[2]))
    largest = query.new_full((), -torch.inf, dtype=torch.float32)
    for first in range(0, tokens, step):
        logits = unmasked_logits(query[:, :, first : first + step], key, options, first)
        logits = masked_logits(logits, module, mask, options, first, tokens)
        largest = torch.maximum(largest, logits.amax().float())
    return largest.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
