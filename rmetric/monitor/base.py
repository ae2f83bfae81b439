"""What all monitors of a training have in common, whatever they measure it by."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsFloat, SupportsIndex

from rmetric.measurements import Observation
from rmetric.monitor.arguments import hardware_report
from rmetric.monitor.ending import Failure
from rmetric.monitor.guard import never_raises
from rmetric.monitor.notes import note_of
from rmetric.monitor.run_watch import RunWatch


class Monitor:
    """Watches a run by the parts that a subclass makes, which is called in each step."""

    def __init__(self, run: RunWatch) -> None:
        self._run = run

    @property
    def enabled(self) -> bool:
        """True while it watches: until :meth:`close` or an error inside."""
        return self._run.enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self._run.enabled = enabled

    @property
    def step_number(self) -> int:
        """Calls of :meth:`step` so far, those before a resume included."""
        return self._run.step_number

    @step_number.setter
    def step_number(self, step: int) -> None:
        self._run.step_number = step

    @property
    def last(self) -> Observation | None:
        """The latest observation that was looked at."""
        return self._run.pipeline.last

    @property
    def alerts(self) -> dict[str, int]:
        """Detector → step of its first alert."""
        return dict(self._run.pipeline.detectors.first_alerts)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied or pickled: a copy would watch a model that has none of the hooks."""
        raise TypeError(
            "a monitor cannot be copied or pickled; keep it outside of what is, or copy model.state_dict(), and "
            "monitor.state_dict() for a checkpoint"
        )

    # -- in the training loop -----------------------------------------------------------------------------------------

    @never_raises(None)
    def validation(self, loss: SupportsFloat) -> None:
        """Report a validation loss, nats: that of the model after the latest step.

        The log has it at that step; detectors see it in the next record, or at the end one that is not finite. It is
        taken for a loss, of which less is better: of an accuracy, report 1 minus it.
        """
        self._run.validation(loss)

    @never_raises(None, ends=False)
    def reward(self, reward: SupportsFloat) -> None:
        """Report the reward of an agent's episode, or a mean of some; more is better.

        The next record has the mean of those reported since the record before. A loss that rises with the reward, or
        that stands still meanwhile, is then no sign of a run that got worse or never learns.
        """
        self._run.reward(reward)

    @never_raises(None, ends=False)
    def hardware_event(self, component: str, *, kind: str = "correctable", worker: int = 0, details: str = "") -> None:
        """Report a hardware event that something else saw (a cluster manager); it counts for λ.

        ``kind`` is ``correctable``, or ``fatal``: that worker is lost.
        """
        self._run.pipeline.reports.append(hardware_report(component, kind, worker, details))

    @never_raises(None, ends=False)
    def note(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        """Add a line of your own to the log, at the current step unless ``step`` is given.

        What JSON has no form for (a tensor of several numbers, a path) is written as text.
        """
        self._run.recorder.note(note_of(event, self.step_number + 1 if step is None else step, fields))

    @never_raises(None, ends=False)
    def planned(self, what: str) -> None:
        """Announce a change of the training, made on purpose and right before the next step, in your words.

        Another task, other data, layers that are drawn anew: from its numbers alone a change that is meant cannot be
        told from one that is not. The robust R-Metric learns anew what is usual, and no change of a setting in that
        step alerts. Until it has learned (17 records for a loss that is lost again, 32 to 104 for all else) it sees
        less: what comes every few steps is the way of a run, and not to be announced. Where several processes train,
        call it in each of them.
        """
        self._run.announce(what, self.step_number + 1)

    def leave_out(self) -> None:
        """Give the step under way no time, since something else took place in it, too."""
        self._run.clock.leave_out()

    def paused(self) -> AbstractContextManager[None]:
        """Exclude what is done in this context (an evaluation of your own, a snapshot) from the step time."""
        return self._run.clock.paused()

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, failure: Failure | None = None) -> None:
        """End the log properly and remove every hook. May be called twice.

        The last line says how the run ended: as ``failure`` has it; else NAN_LOSS if the loss was not finite to the
        end; else success. A run that is left through an exception has no such line: it is incomplete. The monitor
        goes on to refer to the model; to free its memory, let go of both.
        """
        self._run.close(failure)

    def detach(self) -> None:
        """Stop watching and remove every hook; the log is left without an end, which the caller writes."""
        self._run.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._run.ended_with_lost_worker(error):
            self.detach()

    def disable(self, error: Exception) -> None:
        """End the monitor because of an error inside, with one warning; training goes on."""
        self._run.disable(error)

    def pass_by(self, error: Exception) -> None:
        """Report, once, that a call is ignored because of its arguments."""
        self._run.pass_by(error)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State that all later scores depend on: plain values and tensors. Looks at the pending step first.

        After :meth:`close`, that of the last step, from which a later training goes on, in the same log. Empty if an
        error has stopped the monitor, or if a detector's state cannot be told in plain values.
        """
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; before the first :meth:`step`. The log goes on where the checkpoint was taken.

        The detectors must be those of the run that is resumed; otherwise the monitor says so and disables itself. One
        that cannot go on from its state, which another version or other settings have left, begins anew, and so does
        the check of the loop; with an empty state a new run begins, and after the first step a state is passed by: each
        with a warning. The state may be that of a monitor of the other kind, with a model or without.

        Raises
        ------
        UserError
            For what :meth:`state_dict` has not returned, such as a checkpoint that holds it.
        """
        self._run.load_state_dict(state)
