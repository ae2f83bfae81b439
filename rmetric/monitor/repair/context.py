"""The step that a policy repairs: its numbers, its recomputation, its record."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmetric.measurements import Observation, in_convention
from rmetric.monitor.repair.trigger import Alarm, Suspicion
from rmetric.monitor.tensors import bits, differing, relative_difference

if TYPE_CHECKING:
    from rmetric.monitor.transfer import StepComputation


@dataclass(frozen=True, kw_only=True)
class RepairRecord:
    """One intervention of a policy; the REPAIR event of the log has the same fields."""

    step: int
    policy: str
    """Name of the policy's class."""
    verdict: str
    """Finding or action: ``transient``, ``agrees``, ``unsettled``, ``restored``, ``skipped``, …"""
    loss_before: float
    """Loss of the computation that raised the suspicion, nats."""
    loss_after: float
    """Loss of the computation that the update is made from, nats."""
    differing: tuple[str, ...] = ()
    """Tensors that were not the same, bit for bit."""
    workers: tuple[int, ...] = ()
    """Workers (or micro-batches) whose gradient norms were not the same; empty: none, or not measured."""
    seconds: float = 0.0
    """Duration of the repair."""
    reasons: tuple[str, ...] = ()
    """Reasons for the suspicion."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further results of the policy, in plain values."""


class StepStart:
    """Remembers the state that a forward pass consumes or changes, so that a step can be computed a second time.

    At the first forward pass of a step in training mode: the random states of torch (CPU, and each CUDA device of the
    model), NumPy and Python; and all buffers, such as the running statistics of batch normalisation. A transformer has
    hardly any; which of them change cannot be asked, for batch normalisation does not count its changes as torch's
    other operations do.

    Parameters
    ----------
    model
        Gets one forward pre-hook. Drawing random numbers between the first forward pass of a step and its last backward
        pass is fine; a forward pass in training mode *between* steps, with gradients enabled, passes for the beginning
        of the next one and must be avoided.

    **Deviation:** buffers that are replaced rather than changed in place are not put back.
    """

    def __init__(self, model: nn.Module) -> None:
        tensors = [*model.parameters(), *model.buffers()]
        self._devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
        self._buffers = list(model.buffers())
        self._copies: list[Tensor] = []
        self._random: tuple[Any, ...] | None = None
        self._handle = model.register_forward_pre_hook(self._begin)

    @property
    def known(self) -> bool:
        """True if the beginning of the current step was seen."""
        return self._random is not None

    def _begin(self, module: nn.Module, _: Any) -> None:
        if self._random is None and module.training and torch.is_grad_enabled():
            of_devices = [torch.cuda.get_rng_state(index) for index in self._devices]
            of_libraries = np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's generator
            self._random = (torch.get_rng_state(), of_devices, *of_libraries)
            self._copies = [buffer.detach().clone() for buffer in self._buffers]

    @torch.no_grad()
    def go_back(self) -> None:
        """Restore the state that the first forward pass of this step found."""
        if self._random is None:
            raise RuntimeError("the beginning of this step was not seen: no forward pass of the model in training mode")
        of_cpu, of_devices, of_numpy, of_python = self._random
        torch.set_rng_state(of_cpu)
        for index, state in zip(self._devices, of_devices, strict=True):
            torch.cuda.set_rng_state(state, index)
        np.random.set_state(of_numpy)  # noqa: NPY002 - the user's generator
        random.setstate(of_python)
        for buffer, copy in zip(self._buffers, self._copies, strict=True):
            buffer.copy_(copy)

    def end_step(self) -> None:
        """End the step; the next forward pass begins another one."""
        self._random, self._copies = None, []

    def close(self) -> None:
        """Give back the hook. May be called twice."""
        self._handle.remove()
        self.end_step()
        self._buffers = []


Recompute = Callable[[], Tensor | float]
"""Zeroes the gradients, does the forward and backward passes of the same batch, returns the loss."""


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
    measure: Callable[[Tensor | float], StepComputation]
    """Collects the measurements of a computation; the next one begins anew."""
    record: Callable[[RepairRecord], None]
    """Receives every intervention."""
    processes: int
    device: torch.device

    def minimum(self, value: float) -> float:
        """Return the smallest value of all processes. One collective, in every process."""
        if self.processes == 1:
            return value
        smallest = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(smallest, dist.ReduceOp.MIN)
        return smallest.item()

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return for each flag whether it is set in some process. One collective, in every process."""
        if self.processes == 1 or not flags:
            return list(flags)
        votes = torch.tensor([float(flag) for flag in flags], device=self.device)
        dist.all_reduce(votes, dist.ReduceOp.MAX)
        return [bool(vote) for vote in votes.tolist()]

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
        return self.any([*wanted, suspicious, certain, cannot_recompute, gave_up])


@dataclass(frozen=True)
class GradientSnapshot:
    """Copy of one computation's gradients."""

    computation: StepComputation
    gradients: list[Tensor | None]


class StepContext:
    """One step, between its backward pass and its update.

    Parameters
    ----------
    run
        The run.
    step
        Its number.
    computation
        What was computed.
    recompute
        Computes the step again; ``None``: the training loop gave none.
    alerts
        Detectors that were above their threshold in the step before.
    observation
        Record of the step before; ``None``: there is none.
    """

    def __init__(
        self,
        run: RunContext,
        step: int,
        computation: StepComputation,
        recompute: Recompute | None,
        alerts: Sequence[str],
        observation: Observation | None = None,
    ) -> None:
        self._run, self._recompute = run, recompute
        self.step, self.alerts, self.observation = step, tuple(alerts), observation
        self.model, self.optimizer, self.scaler = run.model, run.optimizer, run.scaler
        self.suspicion = run.suspicion
        self.computation = self.first = computation
        """The latest computation, and the one that the training loop made."""
        self.alarm: Alarm | None = run.suspicion.judge(computation.numbers)
        """Alarm of the latest computation in this process; ``None``: it is not suspicious."""
        self.suspicious = self.alarm is not None
        """True if the latest computation is suspicious in any process."""
        self.certain = self.alarm is not None and self.alarm.certain
        """True if it has, in any process, numbers that no healthy step has."""
        self._ever_certain = self.certain
        self.can_recompute = recompute is not None and run.start.known
        """True if :meth:`recompute` can be called; the same in all processes once the alarm is settled."""
        self.reasons: tuple[str, ...] = self.alarm.reasons if self.alarm else ()
        """Reasons why the first computation was suspicious."""
        self._first_snapshot: GradientSnapshot | None = None
        self._began_s = time.perf_counter()

    @property
    def loss(self) -> float:
        """Loss of the latest computation, nats."""
        return float(self.computation.numbers.scalars["training_loss"])

    @property
    def norm(self) -> float:
        """Norm of the whole gradient of the latest computation."""
        norms = self.computation.numbers.norms
        return math.sqrt(float(norms @ norms))

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """Parameters that are trained."""
        return self._run.parameters

    # -- computing again ----------------------------------------------------------------------------------------------

    def recompute(self) -> None:
        """Compute the step again from its beginning: same batch, same random state, same buffers."""
        assert self._recompute is not None
        if self._first_snapshot is None:
            self.keep()
        if self.scaler is not None:  # forgets that this step's gradients were unscaled; keeps the scale
            self.scaler.update(self.scaler.get_scale())
        self._run.start.go_back()
        with torch.enable_grad():
            loss = self._recompute()
        self.computation = self._run.measure(loss)
        self.alarm = self.suspicion.judge(self.computation.numbers)
        self.suspicious, self.certain = self._run.any(self._state_of_alarm())
        self._ever_certain |= self.certain

    def settle_alarm(self, wanted: Sequence[bool]) -> list[bool]:
        """Agree with all processes on what each knows alone, and on who wants to be asked. One collective.

        Raises :class:`PeerGaveUpError` if one of them repairs nothing any more.
        """
        suspicious, certain = self._state_of_alarm()
        votes = self._run.vote(wanted, suspicious=suspicious, certain=certain, cannot_recompute=not self.can_recompute)
        *wanted, self.suspicious, self.certain, cannot, gave_up = votes
        if gave_up:
            raise PeerGaveUpError("another process repairs nothing any more")
        self.can_recompute = not cannot
        self._ever_certain = self.certain
        return list(wanted)

    def _state_of_alarm(self) -> list[bool]:
        return [self.alarm is not None, self.alarm is not None and self.alarm.certain]

    def keep(self) -> GradientSnapshot:
        """Copy the gradients as they are now."""
        gradients = [parameter.grad for parameter in self._run.parameters]
        copies = [None if gradient is None else gradient.detach().clone() for gradient in gradients]
        kept = GradientSnapshot(self.computation, copies)
        if self._first_snapshot is None:
            self._first_snapshot = kept
        return kept

    @torch.no_grad()
    def restore(self, kept: GradientSnapshot | None = None) -> None:
        """Restore the gradients of an earlier computation; by default of the first."""
        kept = kept or self._first_snapshot
        if kept is None:
            return
        self.computation = kept.computation
        for parameter, gradient in zip(self._run.parameters, kept.gradients, strict=True):
            if gradient is None or parameter.grad is None:
                parameter.grad = gradient
            else:  # in place: the gradient may be a view into a bucket
                parameter.grad.copy_(gradient)

    def differing(self, kept: GradientSnapshot, tolerance: float = 0.0) -> tuple[str, ...]:
        """Names of the parameters whose gradients differ from a snapshot in any process.

        Bit for bit; with a ``tolerance`` those whose difference has a norm of more than that share of the gradient's.
        """
        now = [parameter.grad for parameter in self._run.parameters]
        pairs = list(zip(kept.gradients, now, strict=True))
        both = [index for index, (old, new) in enumerate(pairs) if old is not None and new is not None]
        old, new = [pairs[index][0] for index in both], [pairs[index][1] for index in both]
        unequal = {both[index] for index in differing(old, new)}  # type: ignore[arg-type]
        if tolerance > 0.0:
            unequal = {index for index in unequal if relative_difference(*pairs[index]) > tolerance}  # type: ignore[arg-type]
        flags = [index in unequal or (old is None) != (new is None) for index, (old, new) in enumerate(pairs)]
        found = self._run.any(flags)
        return tuple(name for name, flag in zip(self._run.names, found, strict=True) if flag)

    def differing_workers(self, kept: GradientSnapshot) -> tuple[int, ...]:
        """Workers or micro-batches whose gradient norm differs from a snapshot's; empty where not measured."""
        old, new = kept.computation.parts, self.computation.parts
        if old is None or new is None or len(old) != len(new):
            return ()
        return tuple(torch.nonzero(bits(old) != bits(new)).flatten().tolist())

    def mean_over_processes(self, values: Tensor) -> Tensor:
        """Average a tensor over all processes; every process must call it."""
        if self._run.processes > 1:
            dist.all_reduce(values)
            values = values / self._run.processes
        return values

    # -- recording ----------------------------------------------------------------------------------------------------

    def not_finite(self) -> bool:
        """Return whether a gradient of the latest computation is not finite in some process; all must call it.

        A collective only in a step that was alarming for certain in some process; of that they all know.
        """
        return self._ever_certain and self.any(not self.computation.numbers.finite)

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in some process; every process must call it."""
        return self._run.any([flag])[0]

    def minimum(self, step: int | None) -> int | None:
        """Return the earliest step of all processes, ``None`` if none has one; every process must call it."""
        earliest = self._run.minimum(math.inf if step is None else step)
        return None if math.isinf(earliest) else int(earliest)

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
            seconds=time.perf_counter() - self._began_s,
            reasons=self.reasons,
            details=details or {},
        )
        self._run.record(repair)
        return repair
