"""The answer to "was my run in order?": what a run's events say, counted, and put into one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmetric.records import FAILURE, MAX_STEP, SUCCESS, TERMINAL_EVENTS, step_of
from rmetric.robust.reference import WARM_UP
from rmetric.states import RECOGNISERS

CALL_ORDER = "CALL_ORDER"
"""Event of a monitor that is called at the wrong place; ``wrong``, ``details``. People are told of it elsewhere."""

STATE = "STATE"
"""Event of a state in which a run is: ``state``, one of :data:`rmetric.states.RECOGNISERS`, ``since``, ``sure``; with
``over`` where it is in that state no more, with ``at_end`` where the run has ended by then."""

REPAIRS_ENDED = "REPAIRS_ENDED"
"""Event of an error in a policy, or in what it calls: from this step on nothing is repaired any more. With ``over``
where the run was resumed and repairs are at work again."""

REMARKS = {
    "evaluation mode": "the model was in evaluation mode while it trained",
    "other optimizer": "the optimizer that was watched updates no parameter of the model",
    "optimizer replaced": "the optimizer that was watched did not make the updates",
    "no gradients": "no gradient was there to be watched",
    "in part": "gradients, updates and loss were those of the first process's part alone",
    "rate of 0": "the learning rate was 0 in its first steps",
    "answer ignored": "an update was made that the monitor had refused",
    "update first": "updates were made before the monitor was asked, and none could be refused",
}
"""What such an event may have as ``wrong`` that is no reason not to judge the run → words of the verdict."""


def is_news(event: Mapping[str, Any]) -> bool:
    """Return whether people are told of an event: it has a message, and no other alert has told them of its cause.

    >>> is_news({"event": "ALERT", "step": 7, "message": "The loss is not finite."})
    True
    >>> is_news({"event": "ALERT", "step": 7, "message": "The loss is not finite.", "repeats": "numerics"})
    False
    """
    return bool(event.get("message")) and not event.get("repeats")


@dataclass
class RunSummary:
    """Counts of a run, kept while its events pass by, by the monitor that writes them or by a replay."""

    records: int = 0
    last_step: int = 0
    last_record: int | None = field(default=None, init=False)
    """Step of the last record; ``None``: not known."""
    alerts: int = 0
    """Causes that raised an alert; two detectors that saw the same are one."""
    first_alert: int | None = None
    """Step of the first of them."""
    first_detector: str = ""
    repairs: int = 0
    warnings: int = 0
    """Hangs, and workers that have become slow."""
    states: dict[str, int] = field(default_factory=dict)
    """State in which the run is at its latest look, or ended → step since which it lasts."""
    wrong_calls: int = 0
    """Ways in which the training loop called the monitor at the wrong place; what it saw is then not the training."""
    remarks: list[str] = field(default_factory=list)
    """Keys of :data:`REMARKS`."""
    unrepaired_since: int | None = field(default=None, init=False)
    """Step in which repairs ended before the run did."""
    ended: str = ""
    """Event that ended the run; empty: none has."""
    reason: str = ""
    """Reason of its failure."""

    def note(self, event: Mapping[str, Any]) -> None:
        """Count the next event."""
        kind = event.get("event")
        if kind == "METRICS":
            self.records += 1
            self.last_record = self.last_step = step_of(event) or self.last_step
        elif kind == "ALERT" and is_news(event):
            self.alerts += 1
            if self.first_alert is None:
                self.first_alert, self.first_detector = step_of(event), str(event.get("detector"))
        elif kind == "REPAIR" and is_news(event):
            self.repairs += 1
        elif kind in ("HANG", "HARDWARE_EVENT") and is_news(event):
            self.warnings += 1
        elif kind == STATE:
            self._note_state(event)
        elif kind == CALL_ORDER:
            self._note_call(str(event.get("wrong")))
        elif kind == REPAIRS_ENDED:
            self.unrepaired_since = None if event.get("over") is True else step_of(event)
        elif kind in TERMINAL_EVENTS:
            self.ended, self.reason = str(kind), str(event.get("reason") or "")
            self.last_step = step_of(event) or self.last_step

    def _note_state(self, event: Mapping[str, Any]) -> None:
        state, since = event.get("state"), event.get("since")
        if not isinstance(state, str) or state not in RECOGNISERS:
            return
        if event.get("over") is True:
            self.states.pop(state, None)
        elif type(since) is int and 0 <= since < MAX_STEP:
            self.states[state] = since

    def _note_call(self, wrong: str) -> None:
        if wrong not in REMARKS:
            self.wrong_calls += 1
        elif wrong not in self.remarks:
            self.remarks.append(wrong)

    @property
    def in_order(self) -> bool:
        """True if the run reached its end and nothing was found."""
        return self.ended == SUCCESS and not (
            self.alerts or self.states or self.repairs or self.warnings or self.wrong_calls
        )

    @property
    def sentence(self) -> str:
        """The verdict in words.

        >>> RunSummary(records=1200, last_step=1200, ended="EXPERIMENT_SUCCESS").sentence
        'in order as far as it was watched: no alert in 1,200 records'
        >>> RunSummary(records=20, last_step=20, ended="EXPERIMENT_SUCCESS").sentence
        'too short to be judged: no alert in 20 records'
        """
        return f"{self._judgement}: {self._counts}"

    @property
    def _judgement(self) -> str:
        if self.ended == FAILURE:
            return f"failed at step {self.last_step:,} ({self.reason or 'no reason given'})"
        if not self.ended:
            return f"not watched to its end, the last step is {self.last_step:,}"
        if self.alerts:
            return "not in order, look at its alerts"
        if self.states:
            return "reached its end in a state that healthy runs are seldom in"
        if self.repairs:
            return "reached its end, repaired on the way"
        if self.warnings:
            return "reached its end, with hangs or slow workers on the way"
        if self.wrong_calls:
            return "cannot be judged, the monitor was called at the wrong place"
        return "too short to be judged" if self.records <= WARM_UP else "in order as far as it was watched"

    @property
    def _counts(self) -> str:
        first = f", the first at step {self.first_alert:,} ({self.first_detector})" if self.alerts else ""
        lasting = {} if self.ended == FAILURE else self.states  # that of a look before it failed
        states = "".join(f"; {state} since step {since:,}" for state, since in lasting.items())
        repairs = f"; {_counted(self.repairs, 'repair')}" if self.repairs else ""
        if self.unrepaired_since is not None:
            repairs += f"; nothing could be repaired any more from step {self.unrepaired_since:,} on"
        warnings = f"; {_counted(self.warnings, 'warning')} of workers" if self.warnings else ""
        calls = f"; {_counted(self.wrong_calls, 'wrong call')} of the monitor" if self.wrong_calls else ""
        found = f"{_counted(self.alerts, 'alert')} in {_counted(self.records, 'record')}"
        if self.last_record is not None and self.last_record < self.last_step:
            found += f" up to step {self.last_record:,}"
        remarks = "".join(f"; {REMARKS[remark]}" for remark in self.remarks)
        return f"{found}{first}{states}{repairs}{warnings}{calls}{remarks}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}" if number else f"no {noun}"
