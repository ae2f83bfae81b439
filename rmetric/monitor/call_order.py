"""Whether a training loop calls the monitor where it should: told once, with the line to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import OptState

from rmetric.measurements import Observation
from rmetric.monitor.answers import has_closure
from rmetric.monitor.gradient_stamps import GradientStamp
from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_invariants import TENSORS
from rmetric.monitor.loop_probes import UpdateHook, UpdateProbe, remove_hooks
from rmetric.monitor.loop_probes.samples import WEIGHTS, is_same, sample_of
from rmetric.monitor.parameters import owned_by
from rmetric.monitor.remarks import CLIPPED, STEPS, Remarks
from rmetric.network.modes import trains_as_in_evaluation

LOOKS = 6
"""Calls in which numbers of small gradients are looked at, which waits for the device."""
ALIKE = 1e-4
"""Share by which norms that were clipped to the same value may differ."""


class CallOrder(Remarks):
    """Watches the order of backward passes, calls of the monitor and updates in the first steps.

    The evidence is direct: which gradients are there, whether they are the very same ones as before, and which the
    optimizer finds. So nothing is said of a loop that accumulates, skips or freezes; of an optimizer that calls a
    closure, as all of Lightning's do, only that gradients of passes before it were clipped; of one that steps inside
    the backward pass, that its gradients are gone when the monitor comes.

    The list of ``parameters`` may grow; ``scaler`` is an enabled gradient scaler, or ``None``.
    """

    watched = "the calls of the monitor"

    def __init__(
        self,
        model: nn.Module,
        parameters: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        updates: UpdateProbe,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        super().__init__()
        self.closed = False
        self._model, self._parameters, self._update_probe, self._scaler = model, parameters, updates, scaler
        self._calls = self._updates = 0
        self._update_came_first = self._updating = self._touched = self._had_gradients = self._has_closure = False
        self._at_first: list[tuple[nn.Parameter, Tensor]] = []  # with a sample of each
        self._at_call: GradientStamp | None = None
        self._at_update: GradientStamp | None = None
        self._norms: list[tuple[float, str]] = []
        self._rests = True  # as far as records say
        self._of_updates = UpdateHook(self._after_update)
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(UpdateHook(self._before_update)),
            optimizer.register_step_post_hook(self._of_updates),
        ]
        if owned_by(optimizer).isdisjoint(map(id, parameters)):
            self.tell("other optimizer")

    def step(self) -> None:
        if self.closed:
            return
        self._calls += 1
        if self._updating or self._calls > STEPS:  # ``_updating``: a closure calls the monitor
            self.close()
        elif self._has_closure:
            self._look_inside()
        else:
            self._look()

    @ends_alone
    def _look_inside(self) -> None:
        """Look whether the gradients are those of the closure's own passes, which a loop cannot have clipped."""
        before, self._at_update = self._at_update, None
        self._touched |= before is not None and not self._stamp().same(before)

    @ends_alone
    def _look(self) -> None:
        now = self._stamp()
        if self._calls == 1:
            self._remember_weights()
        misplaced = self._misplaced(now) if now else []
        self._at_call, self._at_update = now, None
        self._had_gradients |= bool(now)
        for what in misplaced:
            self.count(what)
        if now and not misplaced and not self._told and self._gradients_are_scaled():
            self.count("scaled")
        if self._calls <= LOOKS and self._update_probe.gradients_kept:
            self.count("not cleared")
        if trains_as_in_evaluation(self._model):
            self.count("evaluation mode")
        if self._calls == STEPS:
            self._look_back(now)

    def _misplaced(self, now: GradientStamp) -> list[str]:
        """What the gradients of a call say of its place, compared with those before."""
        before, updated = self._at_call, self._at_update
        seen = {
            "late": updated is not None and now.same(updated),
            "twice": before is not None and now.same(before),
            "each pass": before is not None and now.one_pass_more(before),
        }
        return [what for what, there in seen.items() if there]

    def _look_back(self, now: GradientStamp) -> None:
        """Tell what was missing in all calls that were watched."""
        if now and not (self._updates or self._of_updates.compiled):
            moved = self._have_moved()
            self.tell("optimizer replaced" if moved else "no update")
            if moved:
                self._update_probe.expect_no_update()
        if not self._had_gradients and not self._told:
            self.tell("no gradients")
        if self._norms and self._rests:
            self.tell("rate of 0")

    def _remember_weights(self) -> None:
        """Take samples of the smallest parameters: a large one may be an embedding, of which few rows move."""
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        smallest = sorted(trained, key=Tensor.numel)[:TENSORS]
        self._at_first = [(parameter, sample_of(parameter, WEIGHTS).clone()) for parameter in smallest]

    def _have_moved(self) -> bool:
        """Whether weights are others than in the first call, as by hand or by another optimizer."""
        same = [is_same(sample_of(parameter, WEIGHTS), before) for parameter, before in self._at_first]
        return any(one is not None and not one for one in same)

    @ends_alone
    def record(self, observation: Observation) -> None:
        self._rests &= observation["learning_rate"] == 0.0 and not observation["update_rms"] > 0.0
        self._norms.append((observation["grad_norm"], f"{observation['training_loss']:.3g}"))
        largest = max(norm for norm, _ in self._norms)
        losses = {loss for norm, loss in self._norms if norm > 0.0 and norm >= largest * (1.0 - ALIKE)}
        if len(losses) == CLIPPED and not self._touched:
            self.tell("clipped")

    @ends_alone
    def _before_update(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._has_closure |= has_closure(args, kwargs)
        if self._has_closure:  # its passes, and the calls of the monitor in them, come after this
            self._at_update = self._stamp()
            return
        if torch._C._current_graph_task_id() != -1:  # an optimizer inside the backward pass
            return
        self._updating = True
        self._update_came_first |= self._calls == 0
        called, self._at_call = self._at_call, None
        now = self._stamp()
        cleared = called is not None and bool(now and not called)
        if cleared:
            self.count("late" if self._update_came_first else "early")
        if called is not None and self._calls <= LOOKS:  # later on zeros are not told from gradients
            self.gradients_cleared = cleared
        self._touched |= called is not None and not now.same(called)

    @ends_alone
    def _after_update(self, *_: Any) -> None:
        if not self._updating:
            return
        self._updating = False
        self._updates += 1
        self._at_update = self._stamp()

    def _stamp(self) -> GradientStamp:
        return GradientStamp(self._parameters, values=self._calls <= LOOKS)

    def _gradients_are_scaled(self) -> bool:
        """Whether a scaler that is in use has unscaled nothing since its last update."""
        if self._scaler is None or self._scaler._get_scale_async() is None:
            return False
        return all(state["stage"] is OptState.READY for state in self._scaler._per_optimizer_states.values())

    def close(self) -> None:
        self.closed = True
        remove_hooks(self._handles)
