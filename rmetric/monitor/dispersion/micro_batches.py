"""σ² over the micro-batches of gradient accumulation: the norm of what each backward pass adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle, unserializable_hook

from rmetric.errors import LOGGER, on_one_line
from rmetric.monitor.gradient_stamps import GradientStamp
from rmetric.monitor.tensors import gathered, norms_of

HELD_BYTES = 64 * 2**20
"""Bytes of gradients that are kept alive at most until their norms are taken."""
NO_PASS = -1
"""Number that no backward pass has."""


class MicroBatchDispersion:
    """Gradient norms of the micro-batches, from the second step with several of them on.

    Until a step has had two backward passes, two hooks count them and that is all. Then every parameter gets a hook
    that sees the gradient of the pass before it is added to the others'. The hook only remembers an alias of it, which
    leaves autograd free to keep the very same memory as ``.grad``; the norms are taken at the end of the pass, by one
    fused kernel.

    What a pass has added and ``zero_grad`` has taken away again, as that of a closure that an optimizer calls many
    times, is no micro-batch (zeros in its place cannot be told from a gradient without waiting for the device).

    A pass ends when autograd ends it, but what follows belongs to the same micro-batch until a parameter comes a second
    time. So the many small passes of re-entrant checkpointing count as the one that they are (unless two checkpoints
    share a parameter). A parameter without a gradient in a pass adds nothing. One that is unfrozen later is seen from
    the step after its first gradient on. ``torch.autograd.grad`` with respect to parameters adds to no gradient, and is
    no pass.
    """

    name: ClassVar[str] = "micro_batches"
    worker_times = None

    def __init__(self, model: nn.Module, chosen: Callable[[Tensor], bool] = lambda _: True) -> None:
        self._model, self._chosen = model, chosen
        self._measuring = self._resting = False
        self._watched: dict[int, tuple[nn.Parameter, RemovableHandle]] = {}
        """Those with a hook, by identity."""
        self._counts: Counter[int] = Counter()
        self.refresh()

    def refresh(self) -> None:
        """Watch the parameters that the model trains now, too; one that is frozen meanwhile may be trained again."""
        self._forget()
        if self._resting:
            return
        there = list(filter(self._chosen, self._model.parameters()))
        for gone in self._watched.keys() - set(map(id, there)):
            self._watched.pop(gone)[1].remove()
        trained = [parameter for parameter in there if parameter.requires_grad]
        for parameter in trained if self._measuring else trained[:1] + trained[-1:]:
            if id(parameter) not in self._watched:
                self._watched[id(parameter)] = parameter, self._hooked(parameter)

    def _hooked(self, parameter: nn.Parameter) -> RemovableHandle:
        handle: RemovableHandle
        if self._measuring:
            handle = parameter.register_hook(unserializable_hook(self._watcher(parameter)))
        else:
            handle = parameter.register_post_accumulate_grad_hook(self._count)
        return handle

    def collect(self) -> Tensor | None:
        if not self._measuring:
            if max(self._counts.values(), default=0) > 1:
                self.start_measuring()
            self._counts.clear()
            return None
        if self._resting:
            return None
        broke_off = bool(self._fresh)
        self._complete_part()
        parts = self._parts
        self._forget()
        return None if broke_off or len(parts) < 2 else gathered(parts) * len(parts)

    def next_step(self, measured: bool) -> None:
        """Hook the parameters for the next step, unless it is not measured."""
        if self._measuring and measured == self._resting:
            self._resting = not measured
            self.close()
            self.refresh()

    def mean_loss(self, loss: Tensor | None) -> None:
        """No mean: there is one worker."""

    def close(self) -> None:
        for _, handle in self._watched.values():
            handle.remove()
        self._watched = {}
        self._forget()

    # -- counting -----------------------------------------------------------------------------------------------------

    def _count(self, parameter: Tensor) -> None:
        self._counts[id(parameter)] += 1

    # -- measuring ----------------------------------------------------------------------------------------------------

    def start_measuring(self) -> None:
        self.close()
        self._measuring, self._resting = True, False
        self.refresh()

    def _forget(self) -> None:
        """Begin a step."""
        self._held: list[Tensor] = []
        self._held_bytes = 0
        self._fresh: dict[int, nn.Parameter] = {}
        self._fresh_norms: list[Tensor] = []
        self._pass = NO_PASS
        self._first: tuple[nn.Parameter, GradientStamp] | None = None
        self._added_to: nn.Parameter | None = None
        """One that the passes of this step have added to."""
        self._seen: set[int] = set()
        self._norms: list[Tensor] = []
        self._parts: list[Tensor] = []

    def _watcher(self, parameter: nn.Parameter) -> Callable[[Tensor], None]:
        """Make the hook of a parameter: it does as little as possible with each gradient, and never fails."""
        identity, size = id(parameter), parameter.nbytes
        task_id, queue = torch._C._current_graph_task_id, torch.autograd.Variable._execution_engine.queue_callback

        def remember(gradient: Tensor) -> None:
            try:
                current = task_id()
                if current != self._pass:
                    if self._added_to is not None and self._added_to.grad is None:
                        self._forget()
                    self._pass = current
                    self._first = parameter, GradientStamp([parameter], values=False)
                    queue(self._pass_ended)
                self._fresh[identity] = parameter
                self._held.append(gradient.detach())  # the tensor itself, kept, would force autograd to copy it
                self._held_bytes += size
                if self._held_bytes > HELD_BYTES:
                    self._take_norms()
            except Exception as error:  # noqa: BLE001 - see _give_up
                self._give_up(error)

        return remember

    def _take_norms(self) -> None:
        if self._held:
            self._fresh_norms += norms_of(self._held)
            self._held, self._held_bytes = [], 0

    def _pass_ended(self) -> None:
        """End a backward pass; autograd calls this more than once if others ran inside it."""
        try:
            if not self._added():
                self._held, self._held_bytes, self._fresh, self._fresh_norms = [], 0, {}, []
                return
            self._take_norms()
            if not self._seen.isdisjoint(self._fresh):
                self._complete_part()
            self._seen |= self._fresh.keys()
            if self._added_to is None and self._fresh:
                self._added_to = next(iter(self._fresh.values()))
            self._norms += self._fresh_norms
            self._fresh, self._fresh_norms = {}, []
        except Exception as error:  # noqa: BLE001 - see _give_up
            self._give_up(error)

    def _added(self) -> bool:
        """Whether the pass has added to the gradient of its first parameter: to ask for gradients adds to none."""
        if self._first is None:
            return True
        parameter, before = self._first
        return not GradientStamp([parameter], values=False).same(before)

    def _complete_part(self) -> None:
        if self._norms:
            self._parts.append(torch.linalg.vector_norm(gathered(self._norms)))
        self._seen, self._norms = set(), []

    def _give_up(self, error: Exception) -> None:
        """Go on without these norms; no error of this class may leave a backward pass."""
        LOGGER.warning("gradients of micro-batches are no longer measured: %s", on_one_line(error))
        self.close()
