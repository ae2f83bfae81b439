"""The record of a repair, and what people are told of it: what was found, what was done, and what it points at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.plain_numbers import number_in_words
from rmetric.records import Event

_HARDWARE = (
    "What does not come twice from the same numbers points at the hardware: look at the memory errors (ECC, Xid) of "
    "{device}, and replace it if it happens again"
)
WENT_BACK = "went_back"
"""Verdict of a repair from which on the run is where it was before."""
_DONE = {
    "transient": "the step was computed again and came out different{where}; the update is made from the new gradients",
    "restored": "numbers in memory had changed between two updates{where}; they were put back",
    "unsettled": "every computation of the step came out different and suspicious{where}; none can be trusted",
    "skipped": "the update was left out",
    "refused": "no update is made as long as gradients are not finite; if that goes on, go back to a checkpoint",
    "clipped": "the gradient was clipped",
    "lowered": "the learning rate is lowered for a while",
    "normalised": "queries and keys are normalised from now on",
    "smoothed": "the weights with the largest spectral norms are scaled down",
    "reset": "the router's biases were set anew",
    WENT_BACK: (
        "{because}; weights and optimizer state are those of step {to_step} again, {steps_lost} steps are lost "
        "(attempt {attempt} of {max_tries})"
    ),
    "doomed": "{because}; hardly any run comes back from that",
    "no_checkpoint": "{because}, and there is no checkpoint yet to go back to",
    "gave_up": "{because}, after {attempts} attempts; what is wrong does not pass, and the training is stopped",
}
_POINTS_AT_HARDWARE = ("transient", "restored", "unsettled")
CHANGED_NOTHING = ("agrees", "random")
"""Verdicts that change nothing in the training, a second computation that agreed and a training that cannot be
repaired: there is nothing to tell, or a warning has told it."""


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
    """Workers in which something was not the same; in a single process micro-batches whose gradient norms were not.
    Empty: none, or not known."""
    processes: int = 1
    """Number of processes that train together; not in the log."""
    seconds: float = 0.0
    reasons: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further results of the policy, in plain values."""

    @property
    def message(self) -> str:
        """One or two sentences for people; empty if a repair changed nothing."""
        if self.verdict in CHANGED_NOTHING:
            return ""
        losses = f" (loss {number_in_words(self.loss_before)} before, {number_in_words(self.loss_after)} after)"
        changed = losses if self.loss_before != self.loss_after else ""
        hint = f" {_HARDWARE.format(device=self._device)}." if self.verdict in _POINTS_AT_HARDWARE else ""
        return f"Step {self.step}: {self.policy}: {self._done}{changed}.{hint}"

    @property
    def _device(self) -> str:
        """The device that it points at, in words."""
        if self.processes == 1:
            return "this device"
        return " and ".join(f"worker {worker}'s device" for worker in self.workers) or "some worker's device"

    @property
    def _done(self) -> str:
        """What was done, in words; a policy of one's own may have other verdicts, and other details."""
        where = f" in {_named(self.differing)}" if self.differing else ""
        try:
            return _DONE[self.verdict].format(**{**self.details, "where": where})
        except KeyError:
            return self.verdict

    def event(self) -> Event:
        fields = {name: value for name, value in vars(self).items() if name not in ("step", "details", "processes")}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
        told = {"message": self.message} if self.message else {}
        own = {"event": "REPAIR", "step": self.step, **lists}
        return {**own, **self.details, **own, **told}  # no detail takes the place of a field


def _named(tensors: tuple[str, ...]) -> str:
    return tensors[0] if len(tensors) == 1 else f"{len(tensors)} tensors, {tensors[0]} the first of them"
