"""Likely causes of what is found in a run, and what to do about it, said once for all that speak to people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmetric.records import DIVERGED, NAN_LOSS
from rmetric.states import State, earlier


@dataclass(frozen=True)
class Advice:
    """Likely causes of a finding, and what to do."""

    causes: tuple[str, ...]
    """Likely causes, the likeliest first."""
    action: str
    """One or two sentences."""


def setting_in_words(setting: object, before: object, now: object) -> str:
    """A setting that has changed, for people.

    >>> setting_in_words("weight_decay", 0.01, 10.0)
    'weight_decay changed from 0.01 to 10'
    """
    values = (f"{value:g}" if isinstance(value, float) else value for value in (before, now))
    return "{} changed from {} to {}".format(setting, *values)


RATE_OF_0, RATE_JUMP = "a learning rate of 0 at the end of a schedule", "a jump of the learning rate"
"""Causes that a known rate rules out."""
_WRONG_SIGN = "a term of the loss with the wrong sign, or a weight below 0"
"""A cause of a loss that leaps down, and of one that falls without a bound; told once where there are both."""
ADVICE: Mapping[str, Advice] = {
    "FAILED": Advice(
        ("a process that was killed, or ran out of memory", "an error in the training loop", "a machine or link that "
         "failed"),
        "Read the output of the run about this step, of the worker that was lost first of all; go on from the last "
        "checkpoint.",
    ),
    "NOT_FINITE": Advice(
        ("a learning rate that is too high", "an overflow in half precision", "a bad batch", "a faulty device"),
        "Go back to the last checkpoint before this step; look at the batch of this step, and at the loss scale. If it "
        "comes back on one machine only, test that device's memory.",
    ),
    "ZERO_GRADIENT": Advice(
        ("a corrupted weight in the output layers", "a graph that is detached from the loss", "a loss scale so small "
         "that half precision rounds gradients to 0", "clipping of a norm that is not finite", "a batch whose examples "
         "are all solved"),
        "Check that parameters still change from step to step. If the zeros last, go back to the last checkpoint.",
    ),
    "ZERO_UPDATE": Advice(
        (RATE_OF_0, "an optimizer without the model's parameters", "steps that the loss scaler skips", "a line search "
         "that finds no better point: the optimizer has converged"),
        "Compare the schedule with the planned number of steps, and the optimizer's parameters with the model's.",
    ),
    "UNIFORM_ANSWER": Advice(
        ("a corrupted weight in the output layers", "activations that have collapsed"),
        "The model answers every token alike and will not recover: go back to the last checkpoint.",
    ),
    "LOSS_RISE": Advice(
        ("a learning rate that is too high here", "a change in the data", "a restart that lost state",
         "corrupted weights"),
        "Compare learning rate, data and code version of this step with those before; keep the last checkpoint from "
        "before it.",
    ),
    "GRADIENT_RISE": Advice(
        ("a learning rate that is too high here", "damaged batches", "corrupted weights", "too little clipping"),
        "Look at the batches of these steps; lower the learning rate or the clipping threshold if it comes back.",
    ),
    "UPDATE_RISE": Advice(
        (RATE_JUMP, "an optimizer that lost its state", "a corrupted optimizer state"),
        "Compare the learning rate and the optimizer's state with those of the last checkpoint.",
    ),
    "GRADIENT_REPEATS": Advice(
        ("parameters that the optimizer does not change any more", "gradients of an earlier step that are used again",
         "a gradient or a loss term with another sign or weight", "an error that all batches share, such as shifted "
         "labels or examples that are no longer shuffled", "the same batch again and again"),
        "Check that every parameter that gets a gradient still changes, and by the gradient of its own step; compare "
        "the loss and the batches of these steps with those before.",
    ),
    "SETTING_CHANGED": Advice(
        ("a run that was resumed with other settings", "a model that was left in evaluation mode", "a line of the loop "
         "that was lost, moved or called twice: clearing or clipping gradients, taking the next batch, the schedule's "
         "step"),
        "Compare the settings of the optimizer, model.training and the lines of the loop with those that the run began "
        "with; if the change is meant, nothing has to be done.",
    ),
    "HARDWARE_EVENTS": Advice(
        ("a failing device or link", "a worker that is about to be lost"),
        "Read the machine's error log for the worker named; save a checkpoint and take the machine out.",
    ),
    "SLOW_STEPS": Advice(
        ("a slow or throttled worker", "a congested network", "data that does not arrive in time", "another job on the "
         "machine"),
        "Compare the step times of the workers; look at clocks, temperature and the input pipeline.",
    ),
    "NEVER_LEARNS": Advice(
        ("a learning rate of 0, or far too high", "labels that do not belong to the inputs", "parameters that are "
         "frozen or not in the optimizer", "gradients that are cleared before the step", "a model that was "
         "trained before and has little left to learn"),
        "Try to overfit one batch; check that parameters change and that inputs and labels belong together.",
    ),
    "DEAD": Advice(
        ("weights that are no longer finite", "a corrupted weight", "units that have all died"),
        "Stop the run: nothing is learned any more. Go back to the last checkpoint before it began, if there is one.",
    ),
    "UNBOUNDED": Advice(
        (_WRONG_SIGN, "an objective without a lower bound"),
        "Look at the sign and the bounds of each term of the loss; go back to a checkpoint from before it began.",
    ),
    "OVERFITS": Advice(
        ("too many passes over too little data", "too little regularisation", "training data that is unlike the "
         "validation data", "a metric that should rise, reported as a loss"),
        "Take the checkpoint with the lowest validation loss; stop here, or add data or regularisation.",
    ),
    "GRADIENT_GROWS": Advice(
        ("a loss scale that is never lowered", "weights that grow without decay", "a slow divergence"),
        "Look at the norm of the weights and at the loss scale; lower the learning rate before the loss follows.",
    ),
    "WORSE_LEVEL": Advice(
        ("a shock that the run did not recover from (learning rate, data, corrupted weights)", "harder data from here "
         "on", "a restart that lost state"),
        "Go back to a checkpoint from before it began, unless the task was meant to become harder there.",
    ),
    "WORSE_VALIDATION": Advice(
        ("training data, labels or inputs that are treated otherwise than in validation from here on", "statistics of "
         "batch norm, or averaged weights, that evaluation alone sees", "a shock of which the training loss has "
         "recovered", "overfitting, within few evaluations", "another validation set, or a mode in which the model is "
         "evaluated"),
        "Evaluate the checkpoint from before it began once more: if its loss is as high now, the evaluation has "
        "changed; if not, go back to it and compare what has changed in training since.",
    ),
}  # fmt: skip
"""Kind of finding → its advice."""

WEIGHTS_MOVED = Advice(
    ("weights that were loaded, averaged, pruned or drawn anew", "weights that are overwritten after the update"),
    "Something else than the optimizer has moved the weights before this step: announce it if it was meant "
    "(monitor.planned), else keep the last checkpoint and look for it.",
)  # fmt: skip
"""On an alert of a monitor that saw the weights move."""
_OF_THE_OPTIMIZER = Advice(
    ("a run that was resumed with other settings", "a setting in the wrong place or of another optimizer",
     "an optimizer that was made anew with other settings"),
    "Compare the settings of the optimizer with those that the run began with",
)  # fmt: skip
# What a monitor says has changed.
MODES = "modules in evaluation mode"
RATE = "learning_rate"
SCHEDULE = "steps of the learning-rate schedule in a step"
CLIPPING = "the norm that gradients are clipped to"
INPUTS = "the root mean square of the inputs"
CENTRE = "the mean of the inputs"
WEIGHT = "the weight that a pass begins with"
KEPT_GRADIENT = "the gradient that a backward pass begins with"
UPDATE_GRADIENT = "the gradient that updates go by"
BATCH = "the batch"
EXAMPLES = "the content of a batch"
TARGETS = "the content of a batch's targets"
LOSS_GRADIENT = "the gradient of the loss"
TRAINED = "the number of tensors that are trained"
CUT_OFF = "the number of tensors that get no gradient any more"
FIRST_PASSES = "the number of passes of a step that begin with no gradient"
LOSS = "the loss"
NORM = "the norm of the gradient"
STATISTICS = "the state of batch norm's running statistics"
ON_SETTINGS: Mapping[str, Advice] = {
    MODES: Advice(
        ("a model that was left in evaluation mode after an evaluation", "layers that were frozen or unfrozen by their "
         "mode"),
        "Look at model.training, and call model.train() after each evaluation",
    ),
    RATE: Advice(
        ("a run that was resumed with another learning rate", "a schedule that was made anew, or counts other steps"),
        "Compare the learning rate with the schedule that was planned",
    ),
    SCHEDULE: Advice(
        ("scheduler.step() that is called twice in a step, or once a process", "a schedule with a kink, or one that "
         "goes by examples or tokens"),
        "Call the schedule's step once a step",
    ),
    CLIPPING: Advice(
        ("a clipping that was lost, added, or given another norm", "gradients that are clipped before they are "
         "unscaled, or by the norm of other gradients"),
        "Look at the line that clips gradients, and at what comes before it",
    ),
    INPUTS: Advice(
        ("inputs that are no longer normalised, or normalised twice", "another source of the data, or other units"),
        "Compare inputs of this step with those before",
    ),
    CENTRE: Advice(
        ("inputs that are no longer centred, or centred twice", "another source of the data, or other units"),
        "Compare inputs of this step with those before",
    ),
    WEIGHT: Advice(
        ("weights that are rounded, cast, masked, averaged or overwritten after the update", "a pass that uses old "
         "copies of the weights"),
        "Look for what else than the optimizer changes the weights",
    ),
    KEPT_GRADIENT: Advice(
        ("gradients that are no longer cleared after an update",),
        "Look at the line that clears gradients",
    ),
    UPDATE_GRADIENT: Advice(
        ("gradients that are negated, or reversed, between the backward pass and the update",),
        "Look at the lines that change gradients: updates go up the loss",
    ),
    BATCH: Advice(
        ("a loader that gives the same batch again and again", "a next batch that is no longer taken"),
        "Compare the batches of these steps",
    ),
    EXAMPLES: Advice(
        ("workers of a loader that share one seed", "inputs that were replaced by one value, or views that are one"),
        "Look at the examples of a batch",
    ),
    TARGETS: Advice(
        ("examples that come sorted: they are no longer shuffled", "targets that were replaced by one class"),
        "Look at the targets of a batch, and at the shuffling",
    ),
    LOSS_GRADIENT: Advice(
        ("targets that are all masked or ignored", "a loss or weights of examples that were multiplied by 0"),
        "Look at the targets of a batch and at their mask: nothing is learned",
    ),
    TRAINED: Advice(
        ("requires_grad_(False) on more than was meant, or on what is trained again later", "a part of the model that "
         "was removed, merged or replaced"),
        "Look at requires_grad of model.named_parameters()",
    ),
    CUT_OFF: Advice(
        ("a part of the model that was detached, or is no longer used", "units that have all died", "gradients too "
         "small for their precision"),
        "Look at what the forward pass does with these tensors",
    ),
    FIRST_PASSES: Advice(
        ("gradients that are cleared for each micro-batch instead of once an update", "a second pass on purpose, as "
         "for a sharpness-aware step"),
        "Look at the line that clears gradients: of micro-batches only the last one of a step counts then",
    ),
    LOSS: Advice(
        ("another function or another mean of the errors, such as one over what is masked", _WRONG_SIGN,
         "targets that have come to be among the inputs"),
        "Compare the loss of one batch by the code of this step and by that of the step before",
    ),
    NORM: Advice(
        ("a part of the model that was detached", "a loss that is divided, weighted or masked after it was logged",
         "gradients that are no longer unscaled or summed as before"),
        "Compare the gradient norms of tensors (TENSOR_GRAD_NORMS) before and after this step",
    ),
    STATISTICS: Advice(
        ("a momentum of batch norm that was set to 0", "statistics that are copied back after each step"),
        "Compare the running statistics of two steps: evaluation relies on them",
    ),
}  # fmt: skip
"""What a monitor says has changed → its advice, the end of the sentence left out; any other is the optimizer's."""


def advice_on_settings(settings: Sequence[str]) -> Advice:
    """Advice on a change of these settings; general advice if it is not known which have changed.

    >>> advice_on_settings(["weight_decay"]).causes[0]
    'a run that was resumed with other settings'
    """
    chosen = dict.fromkeys(ON_SETTINGS.get(setting, _OF_THE_OPTIMIZER) for setting in settings)
    if not chosen:
        return ADVICE["SETTING_CHANGED"]
    causes = dict.fromkeys(cause for advice in chosen for cause in advice.causes)
    actions = ". ".join(advice.action for advice in chosen)
    return Advice(tuple(causes), f"{actions}; if the change is meant, nothing has to be done.")


def possible(causes: Sequence[str], rate: float, rate_before: float = math.nan) -> tuple[str, ...]:
    """Those of some causes that the learning rate does not rule out: one that is above 0, or no higher than before.

    NaN: not known.
    """
    ruled_out = {RATE_OF_0: rate > 0.0, RATE_JUMP: rate <= rate_before}
    return tuple(cause for cause in causes if not ruled_out.get(cause))


def action_in_state(state: State, states: Sequence[State]) -> str:
    """What to do about one of the states of a run: what it was in before is no place to go back to."""
    before = " and ".join(one.name for one in earlier(state, states))
    return ADVICE[state.name].action + (f" {before} began before it: go back to before that." if before else "")


def advice_on_failure(reason: str) -> Advice:
    """What a failure that the log states may come from."""
    return ADVICE[{NAN_LOSS: "NOT_FINITE", DIVERGED: "LOSS_RISE"}.get(reason, "FAILED")]


KINDS_OF_MEASUREMENTS: Mapping[str, str] = {
    "training_loss": "LOSS_RISE",
    "validation_loss": "LOSS_RISE",
    "delta_l": "LOSS_RISE",
    "uniform_gap": "UNIFORM_ANSWER",
    "grad_norm": "GRADIENT_RISE",
    "sigma_sq": "GRADIENT_RISE",
    "non_finite_count": "NOT_FINITE",
    "settings_changed": "SETTING_CHANGED",
    "grad_agreement": "GRADIENT_REPEATS",
    "update_rms": "UPDATE_RISE",
    "hardware_events": "HARDWARE_EVENTS",
    "event_worker": "HARDWARE_EVENTS",
    "lambda": "HARDWARE_EVENTS",
    "step_time_s": "SLOW_STEPS",
    "step_time_max_s": "SLOW_STEPS",
}
"""Measurement that stands out → kind of finding."""
