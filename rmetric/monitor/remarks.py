"""What people are told of how a training loop calls the monitor: each thing once, with the line to change."""

from __future__ import annotations

from collections import Counter

from rmetric.errors import LOGGER
from rmetric.measurements import Observation
from rmetric.robust.context import APART

STEPS = 64
"""Calls of ``monitor.step`` that are watched: a loop does the same in each of its steps."""
OFTEN = 3
"""Times that something must be seen before it is told: once may be a batch that was left out."""
CLIPPED = 10
"""Steps with the same largest gradient norm, but other losses, before it is told."""
ANNOUNCED_TOO_OFTEN = (
    f"monitor.planned(...) announces changes less than {APART} records apart: what is usual is not known in between, "
    "and losses, gradients and updates are not judged; announce what comes seldom"
)
EMPTY_STATE = (
    "monitor.load_state_dict(state) is given an empty state, as an error leaves it: nothing is known of the steps "
    "before, and a new log begins"
)
WORDS = {
    "early": "monitor.step(loss) is called before loss.backward() and sees no gradients; call it after backward and "
    "before optimizer.step()",
    "late": "monitor.step(loss) is called after optimizer.step() or zero_grad(), when the gradients are used up or "
    "gone; call it after loss.backward() and before clipping and optimizer.step()",
    "twice": "monitor.step(loss) is called twice for the same gradients; call it once for each optimizer.step()",
    "each pass": "monitor.step(loss) is called after each of several backward passes that add up; call it once, after "
    "the last one and before optimizer.step()",
    "clipped": f"the gradient norm was the same in {CLIPPED} steps with other losses: gradients are clipped before "
    "monitor.step(loss) sees them; call it before clip_grad_norm_ (in Lightning, clip with self.clip_gradients, right "
    "before optimizer.step())",
    "scaled": "gradients are still multiplied by the scale of the GradScaler when monitor.step(loss) sees them; call "
    "scaler.unscale_(optimizer) before it",
    "not cleared": "gradients are never cleared: when backward() began, those of the last update were still there; add "
    "optimizer.zero_grad() after optimizer.step()",
    "no update": f"the optimizer of TrainingMonitor(model, optimizer) has made no step in {STEPS} calls of "
    "monitor.step(loss); pass the optimizer that updates this model",
    "other optimizer": "the optimizer updates no parameter of the model; make it from model.parameters() of the very "
    "model that TrainingMonitor(model, optimizer) is given",
    "evaluation mode": "the model is in evaluation mode while it trains: nothing is dropped, and normalisation "
    "statistics stand still; call model.train() before the first step (a model from from_pretrained() comes in "
    "evaluation mode)",
    "optimizer replaced": "the optimizer of TrainingMonitor(model, optimizer) makes no step, though its parameters "
    "change: no learning rate is logged from now on, and what holds in every step is not looked at; the run is judged "
    "all the same. If another optimizer updates them, close this monitor and make a new TrainingMonitor for that one",
    "no gradients": f"no parameter had a gradient in {STEPS} calls of monitor.step(loss): an optimizer that steps "
    "inside backward() uses them up; gradient norm, σ² and gradients that are not finite are not watched, loss and "
    "updates are",
    "rate of 0": f"the learning rate was 0 in the first {STEPS} steps, and no parameter has changed: nothing is "
    "learned; compare the schedule with the planned number of steps",
    "in part": "the model is cut by FullyShardedDataParallel (FSDP 1): gradient norm, gradients that are not finite, "
    "update and loss are those of the first process's part alone, and what happens in the others may not be seen; "
    "under fully_shard (FSDP 2) gradients and loss are measured whole",
    "no loss": "monitor.step(loss), monitor.validation(loss) and monitor.reward(reward) take one real number, a float "
    "or a tensor with one entry (of a complex loss, loss.real; in jax.jit, by jax.debug.callback; of JAX, one that was "
    "not donated); the value is ignored; where it was that of a step, it is not scored and no repair is made",
    "resumed late": "monitor.load_state_dict(state) is called after the first monitor.step(loss) and is ignored; "
    "call it right after the monitor is made",
    "answer ignored": "the optimizer has made an update that monitor.step(loss) refused (it answered False); write "
    "`if monitor.step(loss): optimizer.step()`",
    "update first": "optimizer.step(closure) makes its update before monitor.step(loss) is asked: no answer can "
    "prevent it, and no policy acts",
    "closed": "monitor.step(loss) is called after monitor.close() and watches nothing; close it after the last step, "
    "or make a new monitor",
}
"""What is found → what people are told."""


class Remarks:
    """Tells what is wrong with the calls of a loop of which nothing is seen but them."""

    gradients_cleared = False
    """True if a call saw no gradients, or zeros, and the next update others: as far as that was looked at last."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._told: set[str] = set()
        self._untold: list[str] = []

    def step(self) -> None:
        """Take in a call of ``monitor.step``."""

    def record(self, observation: Observation) -> None:
        """Take in what was measured in it."""

    def count(self, what: str) -> None:
        """Tell one of :data:`WORDS` that is seen for the third time."""
        self._seen[what] += 1
        if self._seen[what] == OFTEN:
            self.tell(what)

    def tell(self, what: str) -> None:
        """Tell one of :data:`WORDS`, or what else is wrong with a call, once."""
        if what not in self._told:
            self._told.add(what)
            self.remark(what)

    def remark(self, what: str) -> None:
        """Tell one of :data:`WORDS` that is said of the model, so that the calls are looked at as ever."""
        LOGGER.warning("%s", WORDS.get(what, what))
        if what in WORDS:
            self._untold.append(what)

    def taken(self) -> list[str]:
        """What of :data:`WORDS` was told since the last call, for the log."""
        found, self._untold = self._untold, []
        return found

    def close(self) -> None:
        """End; nothing is held."""
