"""The step that a policy repairs: its numbers, its recomputation, what all processes say of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rmetric.errors import LOGGER, on_one_line
from rmetric.measurements import Observation, in_convention
from rmetric.monitor.parameters import owned_by
from rmetric.monitor.repair.record import RepairRecord
from rmetric.monitor.repair.step_start import StepStart
from rmetric.monitor.repair.trigger import Alarm, Suspicion
from rmetric.monitor.tensors import bits, differing, relative_difference
from rmetric.monitor.transfer import StepComputation
from rmetric.monitor.votes import Votes

Recompute = Callable[[], Tensor | float]
"""Zeroes the gradients, does the forward and backward passes of the same batch, returns the loss."""
FLAGS = 3
"""Most flags of one vote on a step whose alarm is settled."""


class PeerGaveUpError(Exception):
    """One of several processes repairs nothing any more: alone, the others would wait for it."""


@dataclass(frozen=True)
class RunContext:
    """The parts of a run that all its steps share."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None
    names: Sequence[str]
    """Names of the trainable parameters."""
    parameters: Sequence[nn.Parameter]
    start: StepStart
    suspicion: Suspicion
    measure: Callable[[int, Tensor | float], StepComputation]
    """Collects the measurements of a step's computation; the next one begins anew."""
    record: Callable[[RepairRecord], None]
    """Receives every intervention."""
    votes: Votes

    def vote(
        self,
        wanted: Sequence[bool],
        *,
        suspicious: bool = False,
        certain: bool = False,
        cannot_recompute: bool = False,
        gave_up: bool = False,
    ) -> list[bool]:
        """Return, in this order, what some process says of a step. One collective, in every process."""
        return self.votes.any([*wanted, suspicious, not suspicious, certain, cannot_recompute, gave_up])


@dataclass(frozen=True)
class GradientSnapshot:
    computation: StepComputation
    gradients: list[Tensor | None]


def _left_to_policies(alarm: Alarm | None) -> Alarm | None:
    return None if alarm is None or alarm.left_to_scaler else alarm


class StepContext:
    """One step, between its backward pass and its update.

    ``alerts`` and ``observation`` are those of the step before, the latter with the scheduled learning rate, as if no
    policy had lowered it; ``recompute`` is ``None`` where the training loop gave
    none.
    """

    def __init__(
        self,
        run: RunContext,
        step: int,
        computation: StepComputation,
        recompute: Recompute | None,
        alerts: Sequence[str],
        observation: Observation | None,
    ) -> None:
        self._run, self._recompute = run, recompute
        self.step, self.alerts, self.observation = step, tuple(alerts), observation
        self.model, self.optimizer, self.scaler = run.model, run.optimizer, run.scaler
        self.suspicion, self.votes = run.suspicion, run.votes
        self.computation = self.first = computation
        """The latest computation, and the one that the training loop made."""
        self._alarm: Alarm | None = self._judged()
        self.suspicious, self.certain = self._state_of_alarm()
        """True if the latest computation is suspicious in any process; and if it has, in any process, numbers that no
        healthy step has."""
        self._ever_certain = self.certain
        self.can_recompute = recompute is not None
        """True if :meth:`recompute` can be called; the same in all processes once the alarm is settled."""
        self.sound = False
        """True if what is unusual in this step turned out to be right, and goes into the update as it is: set by a
        policy that knows. It raises the bar for its like."""
        self.reasons: tuple[str, ...] = self._alarm.reasons if self._alarm else ()
        """Reasons why the first computation was suspicious."""
        self.all_gave_up = False
        """True once all processes have learnt together, in this step, that one of them repairs nothing any more."""
        self._first_snapshot: GradientSnapshot | None = None
        self._scaler_marks: Any = None
        self._began_s = time.perf_counter()

    @property
    def alarm(self) -> Alarm | None:
        """Alarm of the latest computation in this process; ``None``: not suspicious, or left to the gradient scaler."""
        return _left_to_policies(self._alarm)

    def alarm_by(self, factors: NDArray[np.float64]) -> Alarm | None:
        """The alarm with these factors k of :class:`Suspicion`, such as those of steps ago."""
        return _left_to_policies(self.suspicion.judge(self.computation.numbers, factors))

    @property
    def worth_recomputing(self) -> bool:
        """True if the latest computation is suspicious in this process, even if its update is left to the scaler."""
        return self._alarm is not None

    @property
    def loss(self) -> float:
        """Loss of the latest computation, nats."""
        return float(self.computation.numbers.scalars["training_loss"])

    @property
    def norm(self) -> float:
        """Norm of the whole gradient of the latest computation."""
        return self.computation.numbers.norm

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        return self._run.parameters

    # -- computing again ----------------------------------------------------------------------------------------------

    def recompute(self) -> bool:
        """Compute the step again from its beginning: same batch, same random state, same buffers.

        Returns whether that was possible, in all processes alike. It is not where both the step, before its first
        forward pass, and somebody between two steps draw random numbers; all is then as the first computation left it.
        """
        alarm, suspicious, certain = self._alarm, self.suspicious, self.certain
        if self._first_snapshot is None:
            self.keep()
        if self._compute():
            return True
        self._run.start.begin_elsewhere()
        if self._compute():
            return True
        self.restore()
        self._alarm, self.suspicious, self.certain = alarm, suspicious, certain
        return False

    def replace(self) -> bool:
        """Compute the step again after a part of it was mended: no computation before counts any more.

        Returns what :meth:`recompute` does.
        """
        replaced = self.recompute()
        if replaced:
            self._first_snapshot = None
            self._run.start.forget()
        return replaced

    def _compute(self) -> bool:
        """Return whether it was the same step."""
        assert self._recompute is not None
        if self.scaler is not None:  # forgets that this step's gradients were unscaled; keeps the scale
            self.scaler.update(self.scaler.get_scale())
        self._run.start.go_back()
        try:
            with torch.enable_grad():
                loss = self._recompute()
            self.computation = self._run.measure(self.step, loss)
            self._alarm = self._judged()
        except Exception as error:
            self.give_up(error)
            raise
        self.suspicious, self.certain, missed = self._vote(*self._state_of_alarm(), self._run.start.missed)
        self._ever_certain |= self.certain
        return not missed

    def _judged(self) -> Alarm | None:
        return self.suspicion.judge(self.computation.numbers, broken_buffers=self._run.start.broken_buffers())

    def settle_alarm(self, wanted: Sequence[bool]) -> list[bool]:
        """Agree with all processes on what each knows alone, and on who wants to be asked. One collective.

        Raises :class:`PeerGaveUpError` if one of them repairs nothing any more.
        """
        suspicious, certain = self._state_of_alarm()
        votes = self._run.vote(wanted, suspicious=suspicious, certain=certain, cannot_recompute=not self.can_recompute)
        *wanted, self.suspicious, some_are_not, self.certain, cannot, gave_up = votes
        if gave_up:
            raise PeerGaveUpError("another process repairs nothing any more")
        self.can_recompute = not cannot
        self._ever_certain = self.certain
        if self.suspicious and some_are_not:
            self._agree_on_reasons()
        return list(wanted)

    def _agree_on_reasons(self) -> None:
        """Take the reasons of the first worker that has some where this one has none: its log is to have them."""
        said = enumerate(self.votes.gather(self.reasons))
        others = next(([f"worker {worker}: {reason}" for reason in reasons] for worker, reasons in said if reasons), ())
        self.reasons = self.reasons or tuple(others)

    def _state_of_alarm(self) -> tuple[bool, bool]:
        return self._alarm is not None, self._alarm is not None and self._alarm.certain

    def keep(self) -> GradientSnapshot:
        """Copy the gradients as they are now."""
        gradients = [parameter.grad for parameter in self._run.parameters]
        copies = [None if gradient is None else gradient.detach().clone() for gradient in gradients]
        kept = GradientSnapshot(self.computation, copies)
        if self._first_snapshot is None:
            self._first_snapshot = kept
            self._scaler_marks = None if self.scaler is None else self.scaler._per_optimizer_states
        return kept

    @torch.no_grad()
    def restore(self) -> None:
        """Restore all that the first computation has left: gradients, random states, buffers, a scaler's marks."""
        kept = self._first_snapshot
        if kept is None:
            return
        self._run.start.leave()
        if self.scaler is not None:
            self.scaler._per_optimizer_states = self._scaler_marks
        self.computation = kept.computation
        for parameter, gradient in zip(self._run.parameters, kept.gradients, strict=True):
            if gradient is None or parameter.grad is None:
                parameter.grad = gradient
            else:  # in place: the gradient may be a view into a bucket
                parameter.grad.copy_(gradient)

    def differing(self, kept: GradientSnapshot, tolerance: float = 0.0) -> tuple[str, ...]:
        """Names of the optimizer's parameters whose gradients differ from a snapshot in any process.

        Those of other parameters add up where a training loop zeroes only what its optimizer updates. Bit for bit; with
        a ``tolerance`` those whose difference has a norm of more than that share of the gradient's.
        """
        found = self.votes.any(self._differing_here(kept, tolerance))
        return tuple(name for name, flag in zip(self._run.names, found, strict=True) if flag)

    def _differing_here(self, kept: GradientSnapshot, tolerance: float) -> list[bool]:
        """Whether each parameter's gradient differs from the kept one in this process."""
        now = [parameter.grad for parameter in self._run.parameters]
        pairs = list(zip(kept.gradients, now, strict=True))
        both = [index for index, (old, new) in enumerate(pairs) if old is not None and new is not None]
        old, new = [pairs[index][0] for index in both], [pairs[index][1] for index in both]
        unequal = {both[index] for index in differing(old, new)}  # type: ignore[arg-type]
        if tolerance > 0.0:
            unequal = {index for index in unequal if relative_difference(*pairs[index]) > tolerance}  # type: ignore[arg-type]
        updated = owned_by(self.optimizer)
        return [
            id(parameter) in updated and (index in unequal or (old is None) != (new is None))
            for index, (parameter, (old, new)) in enumerate(zip(self._run.parameters, pairs, strict=True))
        ]

    def differing_workers(self, kept: GradientSnapshot, tolerance: float = 0.0) -> tuple[int, ...]:
        """Workers whose own gradient differs from a snapshot's, in a single process micro-batches; empty: not known.

        Told by the norms from before the gradients were averaged, where these were measured. If they are the same, by
        the gradients themselves, as in :meth:`differing`: those of a worker whose memory they were corrupted in. Every
        process must call it.
        """
        votes = self.votes
        if not votes.several:
            return self._differing_parts(kept) or ()
        holders = votes.who(any(self._differing_here(kept, tolerance)))
        parts = self._differing_parts(kept) if self.computation.dispersion_source == "workers" else None
        if parts is None and any(hasattr(parameter, "to_local") for parameter in self._run.parameters):
            return ()  # who holds the part of the sum that came out wrong need not have made it
        return parts or (holders if len(holders) < votes.count else ())

    def _differing_parts(self, kept: GradientSnapshot) -> tuple[int, ...] | None:
        """Workers or micro-batches whose gradient norm differs from a snapshot's; ``None``: not measured."""
        old, new = kept.computation.parts, self.computation.parts
        if old is None or new is None or len(old) != len(new):
            return None
        return tuple(torch.nonzero(bits(old) != bits(new)).flatten().tolist())

    # -- recording ----------------------------------------------------------------------------------------------------

    def not_finite(self) -> bool:
        """Return whether a gradient of the latest computation is not finite in some process; all must call it.

        A collective only in a step that was alarming for certain in some process; of that they all know.
        """
        return self._ever_certain and self.any(not self.computation.numbers.finite)

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in some process; every process must call it.

        Raises :class:`PeerGaveUpError` where an error in one of them has kept it from saying so.
        """
        return self._vote(flag)[0]

    def give_up(self, error: Exception) -> None:
        """Let the others know that an error ends the repairs here: they end theirs in their next vote on this step.

        Those that wait for the gradients of a backward pass that this process has not made never get there, and this
        one waits in the vote; so its line is written before.
        """
        if not self.votes.several or self.all_gave_up:
            return
        LOGGER.warning(
            "step %d: the other processes are asked to end their repairs; if they wait in an average of gradients, "
            "end the job: %s", self.step, on_one_line(error),
        )  # fmt: skip
        with suppress(PeerGaveUpError, RuntimeError):  # a peer has died: training learns of it at its next collective
            self._vote(gave_up=True)

    def check_peers(self) -> None:
        """Raise :class:`PeerGaveUpError` if some process has given up since the last vote. One collective."""
        self._vote()

    def _vote(self, *flags: bool, gave_up: bool = False) -> list[bool]:
        """Return for each flag whether it is set in some process.

        All votes have one width, so that a process that gives up takes part in whichever the others hold next.
        """
        *said, some_gave_up = self.votes.any([*flags, *[False] * (FLAGS - len(flags)), gave_up])
        if some_gave_up:
            self.all_gave_up = True
            raise PeerGaveUpError("another process repairs nothing any more")
        return said[: len(flags)]

    def report(
        self,
        policy: object,
        verdict: str,
        *,
        differing: Sequence[str] = (),
        workers: Sequence[int] = (),
        details: Mapping[str, Any] | None = None,
    ) -> RepairRecord:
        """Record an intervention, in ``monitor.repairs`` and in the log; also later than in its step."""
        repair = RepairRecord(
            step=self.step,
            policy=type(policy).__name__,
            verdict=verdict,
            loss_before=in_convention(self.first.numbers.scalars["training_loss"]),
            loss_after=in_convention(self.loss),
            differing=tuple(differing),
            workers=tuple(workers),
            processes=self.votes.count,
            seconds=time.perf_counter() - self._began_s,
            reasons=self.reasons,
            details=details or {},
        )
        self._run.record(repair)
        return repair
