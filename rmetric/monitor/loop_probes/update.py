"""Look at weights and gradients from inside backward passes and updates, and at running statistics after them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.hooks import RemovableHandle, unserializable_hook

from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_invariants import TENSORS
from rmetric.monitor.loop_probes.hooks import UpdateHook, remove_hooks
from rmetric.monitor.loop_probes.samples import WEIGHTS, Measured, is_plain, is_same, sample_of
from rmetric.monitor.parameters import ModelParameters, owned_by
from rmetric.monitor.processes import Processes
from rmetric.monitor.tensors import INTEGERS, flat, stored
from rmetric.network.modes import batch_norms

SIGNS = 8
"""Entries of a gradient, at least, that tell whether it is turned: a penalty that is added by hand may turn one."""
RESTS = 48
"""Calls of the monitor since the last update, or the first, from which on what moves weights is somebody else."""


def _are_others(now: Tensor, before: Tensor) -> Tensor:
    """Whether weights are others than before, but for a clamp: what that has moved has one of two values.

    >>> before = torch.tensor([1, 5, 7, 9])
    >>> [bool(_are_others(torch.tensor(now), before)) for now in ([2, 5, 6, 6], [2, 5, 6, 8])]
    [False, True]
    """
    moved, limits = now != before, torch.iinfo(now.dtype)
    low, high = now.where(moved, limits.max).amin(), now.where(moved, limits.min).amax()
    return (moved & (now != low) & (now != high)).any()


class UpdateProbe:
    """Looks, when a backward pass reaches one parameter, at the weights and at the gradients that are there already.

    At an update, at whether up to four gradients are still those that the passes left, or their opposites; after it, at
    what has become of the one since the step was measured. Where updates have long not come, at whether the weights
    move all the same.

    A small parameter gets two hooks, and of one process alone up to four of eight entries or more get one.
    """

    watched = "weights and gradients between updates"

    def __init__(self, parameters: ModelParameters, optimizer: torch.optim.Optimizer) -> None:
        self.closed = False
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
        self._calls_since_update += 1
        if self._armed and not due:
            remove_hooks(self._of_passes)
        self._armed = due

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
        ``updated_elsewhere``: weights of this optimizer move, though it has made no step for long.
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

    @ends_alone
    def expect_no_update(self) -> None:
        """Look at the weights of an optimizer that has not made one update."""
        self._choose()

    @ends_alone
    def _look_at_rest(self) -> None:
        """Look whether the weights have moved since the record before; from the second record at rest on."""
        if self._calls_since_update < RESTS or self._parameter is None or self._hook.compiled:
            return
        before, self._at_rest = self._at_rest, self._weights()
        same = is_same(self._at_rest, before)
        self._moved_at_rest = None if same is None else torch.logical_not(same)

    @ends_alone
    def _look_at_gradient(self) -> None:
        """Remember the norm that a step is measured with."""
        self._measured_norm = self._norm()

    @ends_alone
    def _updating(self, *_: Any) -> None:
        """Count no call inside an update: a closure makes many, each with other weights. Look at the gradient."""
        self._calls_since_update = -math.inf
        passed, self._passed = self._passed, {}
        kept = [(passed[id(item)], item.grad) for item in self._compared if id(item) in passed]
        pairs = [(before, sample_of(now, WEIGHTS)) for before, now in kept if now is not None]
        alike = [(before, now) for before, now in pairs if (before.shape, before.device) == (now.shape, now.device)]
        if alike:
            agreement = torch._foreach_mul([before for before, _ in alike], [now for _, now in alike])
            columns = pad_sequence([*agreement])
            self._turned = ((columns.amax(0) <= 0) & (columns.amin(0) < 0)).any()

    @ends_alone
    def _updated(self, *_: Any) -> None:
        """Remember the weights that an update has left."""
        self._calls_since_update, self._at_rest = 0.0, None
        self._forget()
        before, self._measured_norm = self._measured_norm, None
        if before is not None and (norm := self._norm()) is not None and norm.device == before.device:
            self._left_of_gradient = norm / before
        if not self._armed:
            return
        watched = [] if self._parameter is None else [self._parameter, *self._compared]
        if not all(item.requires_grad for item in watched) or self._version != self._source.version:
            self._choose()
        if self._parameter is not None:
            self._watch_passes(self._parameter)
            self._left = self._weights()

    @unserializable_hook  # said to torch, which warns where a parameter with another one is sent to a process
    @ends_alone
    def _look(self, _: Tensor) -> None:
        """Look at weights and gradients, as a backward pass finds them."""
        if self._left is None or self._parameter is None:
            return
        if self._changed is None:  # in the first pass alone: sharpness-aware steps move the weights before the second
            now = self._weights()
            if (now.device, now.shape) != (self._left.device, self._left.shape):  # the model was moved, or resized
                self._left = None
                return
            self._changed = _are_others(now, self._left)
        earlier = self._parameter.grad
        cleared = torch.ones_like(self._changed) if earlier is None else (stored(earlier) == 0).all()
        self._is_first = cleared.int()

    @ends_alone
    def _added(self, _: Tensor) -> None:
        """Count what a pass found if it has added to it: ``torch.autograd.grad`` leaves ``grad`` alone."""
        is_first, self._is_first = self._is_first, None
        if is_first is not None:
            self._first_passes = is_first if self._first_passes is None else self._first_passes + is_first

    @ends_alone
    def _keep(self, parameter: Tensor) -> None:
        """Remember some of a gradient as a pass leaves it; not of a sparse one, which would be sorted for it."""
        gradient = parameter.grad
        if gradient is not None and gradient.layout is torch.strided:
            self._passed[id(parameter)] = sample_of(gradient, WEIGHTS).clone()

    def _norm(self) -> Tensor | None:
        """Norm of the one gradient as it is now."""
        gradient = None if self._parameter is None else self._parameter.grad
        return None if gradient is None else torch.linalg.vector_norm(flat(gradient).float())

    def _forget(self) -> None:
        self._left = self._changed = self._is_first = self._first_passes = None

    def _choose(self) -> None:
        """Choose what is looked at, of what the optimizer has just updated, or is to update."""
        self._version = self._source.version
        owned = owned_by(self._optimizer)
        left_alone = [item for item in self._source.present if id(item) not in self._source.renormalised]
        whole = [item for item in left_alone if type(item) is nn.Parameter and item.is_contiguous()]
        updated = [item for item in whole if id(item) in owned and item.requires_grad and item.grad is not None]
        remove_hooks(self._of_passes)
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
            parameter.register_hook(self._look),
            parameter.register_post_accumulate_grad_hook(self._added),
        ]
        if self._alone:  # with several processes gradients are averaged after a pass
            large = [item for item in self._compared if item.numel() >= SIGNS]
            self._of_passes += [item.register_post_accumulate_grad_hook(self._keep) for item in large]

    def _weights(self) -> Tensor:
        """A sample of the weights, bit for bit: a NaN is the same as before, too."""
        places = [item.data_ptr() for item in self._compared]
        if places != self._places:  # the first call, or the parameters have other memory, as a pass with old copies has
            self._places = places
            samples = [sample_of(item, WEIGHTS) for item in self._compared]
            self._views = [sample.view(INTEGERS[sample.element_size()]) for sample in samples]
        return torch.cat(self._views)

    def close(self) -> None:
        self.closed = True
        remove_hooks(self._of_passes)
        remove_hooks(self._of_updates)


class StatisticsProbe:
    """Looks whether the running statistics of batch norm have moved since the step before."""

    watched = "the running statistics of batch norm"

    def __init__(self, model: nn.Module, parameters: ModelParameters) -> None:
        self._model, self._source, self._version = model, parameters, parameters.version
        self._modules = batch_norms(model)[:TENSORS]
        self._before: Tensor | None = None
        self._still: Tensor | None = None
        self.closed = False

    def measure(self) -> Measured:
        """``statistics_still``, a truth value on the device; ``None``: no module has any and is in training mode."""
        self._still = None
        self._look()
        return {"statistics_still": self._still}

    @ends_alone
    def _look(self) -> None:
        if self._version != self._source.version:
            self._version, self._modules = self._source.version, batch_norms(self._model)[:TENSORS]
        means = [module.running_mean for module in self._modules if module.training]
        plain = [mean for mean in means if isinstance(mean, Tensor) and is_plain(mean)]
        if plain:
            now = torch.cat([sample_of(mean, WEIGHTS) for mean in plain if mean.device == plain[0].device])
            self._still, self._before = is_same(now, self._before), now
