"""Look at a training loop from inside its passes: at the batch, its targets, the weights, kept or clipped gradients.

Nothing here waits for the device, and a probe that fails ends itself and not the training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_iter
from torch.utils.hooks import RemovableHandle

from rmetric.monitor.batch_shapes import Shape
from rmetric.monitor.guard import ends_quietly
from rmetric.monitor.modes import batch_norms
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.processes import Processes
from rmetric.monitor.tensors import INTEGERS, flat, stored, stride_of

TENSORS, LEAVES = 4, 64
"""Tensors of weights, of statistics and of a batch of which a sample is taken; arguments among which a batch's are."""
WEIGHTS, INPUTS = 64, 1024
"""Entries of each: of weights and statistics, and of a batch's."""
SIGNS = 8
"""Entries of a gradient, at least, that tell whether it is turned: a penalty that is added by hand may turn one."""
EXAMPLES, FEW = 1024, 4
"""Examples of a batch that are compared with each other, by 64 entries of each; so few are none to compare."""
WEIGHT_BITS, KEYS = 19, 16_777_213
"""Bits of the weights by which a batch's entries, of 32 bits, are added up: the sum does not overflow 64. Its rest by
the largest prime of 24 bits is a whole number in single precision."""
TARGETS, LOGITS = 16, 2**15
"""Targets of a batch that tell of its classes, at least; logits of which gradients are looked at, about."""
RESTS = 48
"""Calls of the monitor since the last update from which on weights that move are moved by somebody else."""
ROUNDED = 0.05
"""Rest in the sum of a target's gradient that is rounding, as a multiple of its least entry (half precision)."""
Measured = dict[str, Tensor | None]


class BatchProbe:
    """Looks at the batch of the first forward pass of a step that trains.

    Is it the one before, by which number is it known again, are its examples copies, how large are the inputs?

    Parameters
    ----------
    model
        Gets a hook, or those of its modules that can be called, where it cannot be called as a whole. Copies of it, and
        files of it, have none. What is called through ``torch.compile(model)`` is not looked at, unless that is what
        is given here.
    """

    def __init__(self, model: nn.Module) -> None:
        self.armed = True
        """Whether the next step is looked at."""
        self.closed = False
        """True if nothing is looked at any more."""
        self.shape: Shape = ()
        """Of each tensor of the latest batch that was looked at; empty: none was."""
        self._before: Tensor | None = None
        self._weights = self._mixed = torch.empty(0)
        self._measured: Measured = {}
        hook = ModelHook(self._look)
        self._handles = [part.register_forward_pre_hook(hook, with_kwargs=True) for part in _called(model)]

    def measure(self) -> Measured:
        """``batch_repeated``, ``batch_key``, ``examples_repeated`` and ``input_scale``, on the device.

        Two truth values, the second where half of the examples or more are copies of others; a whole number that is the
        same for the same batch; and the inputs' root mean square. ``None`` or missing: not known, as where the model is
        given no tensors. The next step begins.
        """
        measured, self._measured = self._measured, {}
        return measured

    @ends_quietly
    def _look(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not self.armed or self._measured:
            return
        given = islice(tree_iter((args, kwargs)), LEAVES)
        batch = [*islice(filter(_is_plain, given), TENSORS)]
        if not batch:
            return
        self.shape = tuple([tuple(tensor.shape) for tensor in batch])
        tensors = [*map(_by_example, batch)]
        samples = [_sample(tensor) for tensor in tensors]
        home = samples[0].device  # to fetch what is elsewhere could wait
        now = torch.cat([sample.float() for sample in samples if sample.device == home])
        # One number is none of the inputs: the Trainer of transformers hands over how many targets there are.
        inputs = next((sample for sample in samples if sample.is_floating_point() and len(sample) > 1), None)
        scale = None if inputs is None else torch.linalg.vector_norm(inputs.float()) / math.sqrt(len(inputs))
        key = self._key(now)
        self._measured = {
            "batch_repeated": _same(key, self._before),
            "batch_key": key % KEYS,
            "examples_repeated": self._copies(tensors),
            "input_scale": scale,
        }
        self._before = key

    def _key(self, sample: Tensor) -> Tensor:
        """Sum of the entries' bits, weighted: what differs in an entry has another, whatever its size."""
        if self._weights.device != sample.device or not len(self._weights):
            cosines = torch.arange(1, TENSORS * INPUTS + 1, device=sample.device).cos()
            self._weights = (cosines * 2**WEIGHT_BITS).long()
        return (sample.view(torch.int32) * self._weights[: len(sample)]).sum()

    def _copies(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """Whether at least half of the examples are copies; of the first tensor that holds several numbers of each."""
        examples = next((tensor for tensor in tensors if tensor.shape[1] > 1), None)
        if examples is None or len(examples) <= FEW:
            return None
        few = examples[:: stride_of(len(examples), EXAMPLES), :: stride_of(examples.shape[1], WEIGHTS)].float()
        if self._mixed.shape != few.shape[1:] or self._mixed.device != few.device:
            self._mixed = torch.arange(1, few.shape[1] + 1, device=few.device).cos()
        # What differs in some entry differs in a mixture of all. No matrix product: autocast would round it.
        keys = (few * self._mixed).sum(dim=1).sort().values
        return 2 * (keys[1:] == keys[:-1]).sum() >= len(keys)

    def close(self) -> None:
        """Give back the hooks. May be called twice."""
        self.closed = True
        for handle in self._handles:
            handle.remove()


def _called(model: nn.Module) -> list[nn.Module]:
    """The model, or, if it is but a container, without a ``forward``, those of its modules that a loop can call."""
    if getattr(model.forward, "__func__", None) is not nn.Module.forward:
        return [model]
    return [part for child in model.children() for part in _called(child)]


class TargetProbe:
    """Looks, through the gradient of what a model returns, at the targets of a step: are all of them one class?

    The gradient of a cross-entropy at the logits is the probabilities that are predicted, less 1 for the target: it
    sums to zero. At the logarithms of probabilities it is less than zero for the target and zero otherwise. The least
    entry is that of the target in both, wherever the loss is computed.

    Parameters
    ----------
    model
        Gets a hook, as :class:`BatchProbe` has one. Looked at are the classes in the last dimension of the first
        tensor with a gradient that it returns.
    """

    def __init__(self, model: nn.Module) -> None:
        self.armed = True
        """Whether the next step is looked at."""
        self.closed = False
        """True if nothing is looked at any more."""
        self._alike: Tensor | None = None
        self._of_pass: RemovableHandle | None = None
        self._of_model = model.register_forward_hook(ModelHook(self._look))

    def measure(self) -> Measured:
        """``targets_alike``, a truth value on the device; NaN or ``None``: not known. The next step begins."""
        alike, self._alike = self._alike, None
        self._leave_pass()
        return {"targets_alike": alike}

    @ends_quietly
    def _look(self, _: Sequence[Any], returned: Any) -> None:
        if not self.armed or self._of_pass is not None:
            return
        tensors = filter(_is_plain, islice(tree_iter(returned), LEAVES))
        logits = next((tensor for tensor in tensors if tensor.requires_grad and tensor.ndim > 1), None)
        if logits is not None and logits.shape[-1] > 1:
            self._of_pass = logits.register_hook(self._reached)  # type: ignore[no-untyped-call]

    @ends_quietly
    def _reached(self, gradient: Tensor) -> None:
        rows = gradient.detach().reshape(-1, gradient.shape[-1])
        rows = rows[:: stride_of(len(rows), max(2 * TARGETS, LOGITS // rows.shape[1]))].float()
        least, targets = rows.min(dim=1)
        total = rows.sum(dim=1)
        counted = least < 0.0  # others are left out of the loss
        of_classes = (total * (total - least)).abs() <= ROUNDED * least.square()  # the sum is 0, or the least entry
        alike = targets.where(counted, -1).amax() == targets.where(counted, rows.shape[1]).amin()
        self._alike = alike.float().where(of_classes.all() & (counted.sum() >= TARGETS), math.nan)

    def _leave_pass(self) -> None:
        """Give back the hook of a pass: a model may return the same tensor again."""
        if self._of_pass is not None:
            self._of_pass.remove()
            self._of_pass = None

    def close(self) -> None:
        """Give back both hooks. May be called twice."""
        self.closed = True
        self._of_model.remove()
        self._leave_pass()


class UpdateProbe:
    """Looks, when a backward pass reaches one parameter, at the weights and at the gradients that are there already.

    At an update, at whether up to four gradients are still those that the passes left, or their opposites; after it, at
    what has become of the one since the step was measured. Where updates have long not come, at whether the weights
    move all the same.

    Parameters
    ----------
    parameters
        Those that are trained. A small one of them gets two hooks, and of one process alone up to four of eight entries
        or more get one.
    optimizer
        Gets two hooks: after each update a few weights are remembered.
    """

    def __init__(self, parameters: ModelParameters, optimizer: torch.optim.Optimizer) -> None:
        self.closed = False
        """True if nothing is looked at any more."""
        self._source, self._optimizer = parameters, optimizer
        self._alone = Processes.current().count == 1
        self._version: int | None = None
        self._parameter: nn.Parameter | None = None
        self._compared: list[nn.Parameter] = []
        self._places: list[int] = []
        self._views: list[Tensor] = []
        self._left: Tensor | None = None
        self._changed: Tensor | None = None
        self._is_first: Tensor | None = None
        self._first_passes: Tensor | None = None
        self._passed: dict[int, Tensor] = {}
        self._turned: Tensor | None = None
        self._measured_norm: Tensor | None = None
        self._left_of_gradient: Tensor | None = None
        self._at_rest: Tensor | None = None
        self._moved_at_rest: Tensor | None = None
        self._calls_since_update = 0.0
        self._armed = True
        self._hook = UpdateHook(self._updated)
        self._of_updates: list[RemovableHandle] = []
        self._of_passes: list[RemovableHandle] = []

    def arm(self, due: bool) -> None:
        """Look at the next step, or do not; to be called before the update that leads to it.

        The first call takes the hooks of the optimizer: then they come after those of a policy that changes weights.
        """
        if not self._of_updates and not self.closed:
            self._of_updates = [
                self._optimizer.register_step_pre_hook(UpdateHook(self._updating)),
                self._optimizer.register_step_post_hook(self._hook),
            ]
        self._armed = due
        self._calls_since_update += 1
        if not due:
            self._leave_passes()

    @property
    def gradients_kept(self) -> bool:
        """Whether each pass since the update has found gradients. Waits for the device."""
        return self._first_passes is not None and not self._first_passes

    def measure(self) -> Measured:
        """What was seen since the call before, on the device; ``None``: there was nothing to see.

        Truth values of the passes since the last update: ``weights_changed``, the first of them found other weights
        than the update had left; ``gradients_kept``, each of them found gradients; and ``first_passes``, the number of
        those that found none. Of the update after the call
        before: ``gradient_left``, what it found of a gradient, as a multiple of what that call had found; and
        ``gradient_turned``, it found the opposite of what the passes had left in one of four tensors or in more.
        Nothing is looked at before the next update: where one is skipped, what was found after the last would be found
        once more.
        ``updated_elsewhere``: weights that this optimizer has updated move, though it has made no step for long.
        """
        self._moved_at_rest = None
        self._look_at_rest()
        measured: Measured = {
            "updated_elsewhere": self._moved_at_rest,
            "weights_changed": self._changed,
            "gradients_kept": None if self._first_passes is None else self._first_passes == 0,
            "first_passes": self._first_passes,
            "gradient_left": self._left_of_gradient,
            "gradient_turned": self._turned,
        }
        self._forget()
        self._left_of_gradient = self._measured_norm = self._turned = None
        self._look_at_gradient()
        return measured

    @ends_quietly
    def _look_at_rest(self) -> None:
        """Look whether the weights have moved since the record before; from the second record at rest on."""
        if self._calls_since_update < RESTS or self._parameter is None or self._hook.compiled:
            return
        before, self._at_rest = self._at_rest, self._weights()
        same = _same(self._at_rest, before)
        self._moved_at_rest = None if same is None else torch.logical_not(same)

    @ends_quietly
    def _look_at_gradient(self) -> None:
        """Remember the norm that a step is measured with."""
        self._measured_norm = self._norm()

    @ends_quietly
    def _updating(self, *_: Any) -> None:
        """Count no call inside an update: a closure makes many, each with other weights. Look at the gradient."""
        self._calls_since_update = -math.inf
        passed, self._passed = self._passed, {}
        kept = [(passed[id(item)], item.grad) for item in self._compared if id(item) in passed]
        pairs = [(before, _sample(now, WEIGHTS)) for before, now in kept if now is not None]
        alike = [(before, now) for before, now in pairs if (before.shape, before.device) == (now.shape, now.device)]
        if alike:
            agreement = torch._foreach_mul([before for before, _ in alike], [now for _, now in alike])
            columns = pad_sequence([*agreement])
            self._turned = ((columns.amax(0) <= 0) & (columns.amin(0) < 0)).any()

    @ends_quietly
    def _updated(self, *_: Any) -> None:
        """Remember the weights that an update has left."""
        self._calls_since_update, self._at_rest = 0.0, None
        self._forget()
        before, self._measured_norm = self._measured_norm, None
        if before is not None and (norm := self._norm()) is not None and norm.device == before.device:
            self._left_of_gradient = norm / before
        if not self._armed:
            return
        if self._version != self._source.version:
            self._choose()
        if self._parameter is not None:
            self._watch_passes(self._parameter)
            self._left = self._weights()

    @ends_quietly
    def _look(self, _: Tensor) -> None:
        """Look at weights and gradients, as a backward pass finds them."""
        if self._left is None or self._parameter is None:
            return
        if self._changed is None:  # in the first pass alone: sharpness-aware steps move the weights before the second
            now = self._weights()
            if now.device != self._left.device:  # the model was moved
                self._left = None
                return
            self._changed = (now != self._left).any()
        earlier = self._parameter.grad
        cleared = torch.ones_like(self._changed) if earlier is None else (stored(earlier) == 0).all()
        self._is_first = cleared.int()

    @ends_quietly
    def _added(self, _: Tensor) -> None:
        """Count what a pass found if it has added to it: ``torch.autograd.grad`` leaves ``grad`` alone."""
        is_first, self._is_first = self._is_first, None
        if is_first is not None:
            self._first_passes = is_first if self._first_passes is None else self._first_passes + is_first

    @ends_quietly
    def _keep(self, parameter: Tensor) -> None:
        """Remember some of a gradient as a pass leaves it; not of a sparse one, which would be sorted for it."""
        gradient = parameter.grad
        if gradient is not None and gradient.layout is torch.strided:
            self._passed[id(parameter)] = _sample(gradient, WEIGHTS).clone()

    def _norm(self) -> Tensor | None:
        """Norm of the one gradient as it is now."""
        gradient = None if self._parameter is None else self._parameter.grad
        return None if gradient is None else torch.linalg.vector_norm(flat(gradient).float())

    def _forget(self) -> None:
        self._left = self._changed = self._is_first = self._first_passes = None

    def _choose(self) -> None:
        """Choose what is looked at, of what the optimizer has just updated."""
        self._version = self._source.version
        owned = {id(item) for group in self._optimizer.param_groups for item in group["params"]}
        whole = [item for item in self._source.present if type(item) is nn.Parameter and item.is_contiguous()]
        updated = [item for item in whole if id(item) in owned and item.requires_grad and item.grad is not None]
        self._leave_passes()
        self._parameter = min(updated, key=nn.Parameter.numel, default=None)
        if self._parameter is None:
            return
        form = self._parameter.dtype, self._parameter.device
        alike = [item for item in updated if (item.dtype, item.device) == form]
        self._compared, self._places = alike[:: math.ceil(len(alike) / TENSORS)], []

    def _watch_passes(self, parameter: nn.Parameter) -> None:
        """Take the hooks of passes, if they are not there: between records they would cost for nothing."""
        if self._of_passes:
            return
        self._of_passes = [
            parameter.register_hook(self._look),  # type: ignore[no-untyped-call]
            parameter.register_post_accumulate_grad_hook(self._added),
        ]
        if self._alone:  # with several processes gradients are averaged after a pass
            large = [item for item in self._compared if item.numel() >= SIGNS]
            self._of_passes += [item.register_post_accumulate_grad_hook(self._keep) for item in large]

    def _leave_passes(self) -> None:
        for handle in self._of_passes:
            handle.remove()
        self._of_passes = []

    def _weights(self) -> Tensor:
        """A sample of the weights, bit for bit: a NaN is the same as before, too."""
        places = [item.data_ptr() for item in self._compared]
        if places != self._places:  # the first call, or the parameters have other memory, as a pass with old copies has
            self._places = places
            samples = [_sample(item, WEIGHTS) for item in self._compared]
            self._views = [sample.view(INTEGERS[sample.element_size()]) for sample in samples]
        return torch.cat(self._views)

    def close(self) -> None:
        """Give back all hooks. May be called twice."""
        self.closed = True
        self._leave_passes()
        for handle in self._of_updates:
            handle.remove()


class StatisticsProbe:
    """Looks whether the running statistics of batch norm have moved since the step before.

    Parameters
    ----------
    model
        The module that is trained.
    parameters
        Its parameters: where they change, its modules are looked for anew.
    """

    def __init__(self, model: nn.Module, parameters: ModelParameters) -> None:
        self._model, self._source, self._version = model, parameters, parameters.version
        self._modules = batch_norms(model)[:TENSORS]
        self._before: Tensor | None = None
        self._still: Tensor | None = None
        self.closed = False
        """True if nothing is looked at any more."""

    def measure(self) -> Measured:
        """``statistics_still``, a truth value on the device; ``None``: no module has any and is in training mode."""
        self._still = None
        self._look()
        return {"statistics_still": self._still}

    @ends_quietly
    def _look(self) -> None:
        if self._version != self._source.version:
            self._version, self._modules = self._source.version, batch_norms(self._model)[:TENSORS]
        means = [module.running_mean for module in self._modules if module.training]
        plain = [mean for mean in means if isinstance(mean, Tensor) and _is_plain(mean)]
        if plain:
            now = torch.cat([_sample(mean, WEIGHTS) for mean in plain if mean.device == plain[0].device])
            self._still, self._before = _same(now, self._before), now


class ModelHook:
    """A hook for passes that train the model it is made for; in a copy, and in a file, stands one that does nothing."""

    def __init__(self, look: Callable[..., None]) -> None:
        self._look = look

    def __call__(self, module: nn.Module, *given: Any) -> None:
        if module.training and torch.is_grad_enabled() and not _is_traced():
            self._look(*given)

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _no_hook, ()


class UpdateHook:
    """A hook for the steps of an optimizer; a step that is compiled is passed by: it could not go into one graph."""

    def __init__(self, look: Callable[..., None]) -> None:
        self._look = look
        self.compiled = False
        """True if a step was passed by."""

    def __call__(self, *given: Any) -> None:
        if torch.compiler.is_compiling():
            self.compiled = True  # the compiled step does that, each time
        else:
            self._look(*given)


def _is_traced() -> bool:
    """Whether this is a pass of a compiler: what a hook does would become part of the model."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def _no_hook() -> Callable[..., None]:
    return _look_at_nothing


def _look_at_nothing(*_: Any) -> None:
    """Do nothing."""


def _is_plain(value: Any) -> bool:
    """Whether this is a tensor with numbers to look at; those inside ``torch.func`` may not be kept."""
    return (
        type(value) is Tensor
        and value.layout is torch.strided
        and value.numel() > 0
        and not value.is_complex()
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def _by_example(tensor: Tensor) -> Tensor:
    """Shape (examples, entries of each), in memory's order of the entries: nothing is copied to take a few of them."""
    tensor = tensor.detach()
    for dim in range(tensor.ndim - 1, 0, -1):
        if tensor.stride(dim) == 0:  # expanded: the same all along
            tensor = tensor.select(dim, 0)
    if tensor.ndim < 2:
        return tensor.reshape(-1, 1)
    inner = sorted(range(1, tensor.ndim), key=tensor.stride, reverse=True)
    return tensor.permute(0, *inner).flatten(1)


def _sample(tensor: Tensor, entries: int = INPUTS) -> Tensor:
    """About so many entries, evenly spread."""
    values = flat(tensor)
    return values[:: stride_of(len(values), entries)]


def _same(now: Tensor, before: Tensor | None) -> Tensor | None:
    """Whether two samples are the same; ``None`` without a former one."""
    if before is None or before.device != now.device:
        return None
    return (now == before).all() if now.shape == before.shape else now.new_zeros(())
