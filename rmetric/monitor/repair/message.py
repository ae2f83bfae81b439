"""The message of a repair: what was found, what was done, and what it points at."""

from __future__ import annotations

from rmetric.monitor.alerts import in_words
from rmetric.monitor.repair.context import RepairRecord

_HARDWARE = (
    "What does not come twice from the same numbers points at the hardware: look at this device's memory errors (ECC, "
    "Xid), and replace it if it happens again"
)
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
    "went_back": (
        "{because}; weights and optimizer state are those of step {to_step} again, {steps_lost} steps are lost "
        "(attempt {attempt} of {max_tries})"
    ),
    "doomed": "{because}; hardly any run comes back from that",
    "no_checkpoint": "{because}, and there is no checkpoint yet to go back to",
    "gave_up": "{because}, after {attempts} attempts; what is wrong does not pass, and the training is stopped",
}
_POINTS_AT_HARDWARE = ("transient", "restored", "unsettled")
_NOT_NEWS = ("agrees", "random")
"""Verdicts that change nothing in the training: there is nothing to tell, or a warning has told it."""


def repair_message(repair: RepairRecord) -> str:
    """One or two sentences for people; empty if a repair changed nothing."""
    if repair.verdict in _NOT_NEWS:
        return ""
    where = f" in {_named(repair.differing)}" if repair.differing else ""
    done = _DONE.get(repair.verdict, repair.verdict).format(where=where, **repair.details)
    losses = f" (loss {in_words(repair.loss_before)} before, {in_words(repair.loss_after)} after)"
    changed = losses if repair.loss_before != repair.loss_after else ""
    hint = f" {_HARDWARE}." if repair.verdict in _POINTS_AT_HARDWARE else ""
    return f"Step {repair.step}: {repair.policy}: {done}{changed}.{hint}"


def _named(tensors: tuple[str, ...]) -> str:
    return tensors[0] if len(tensors) == 1 else f"{len(tensors)} tensors, {tensors[0]} the first of them"
