"""The verdict on a run: what its events say, in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from rmetric.verdict import RunSummary

RECORDS = [{"event": "METRICS", "step": step} for step in range(1, 101)]
ALERT = {"event": "ALERT", "step": 81, "detector": "numerics", "message": "The gradient is not finite."}
AGAIN = {**ALERT, "detector": "r_metric_robust", "repeats": "numerics"}
REPAIR = {"event": "REPAIR", "step": 90, "verdict": "transient", "message": "It came out different."}
AGREES = {"event": "REPAIR", "step": 91, "verdict": "agrees"}
HANG = {"event": "HANG", "step": 70, "workers": [2], "message": "Worker 2 holds up the others."}
SLOW_STEP = {"event": "HARDWARE_EVENT", "step": 71, "component": "straggler"}
OVERFITS = {"event": "STATE", "step": 100, "state": "OVERFITS", "since": 40, "sure": 0.998, "message": "It overfits."}
SUCCESS = {"event": "EXPERIMENT_SUCCESS", "step": 100}
FAILURE = {"event": "EXPERIMENT_FAILURE", "step": 95, "reason": "NAN_LOSS"}


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([*RECORDS, SUCCESS], "in order as far as it was watched: no alert in 100 records"),
        ([*RECORDS[:20], SUCCESS], "too short to be judged: no alert in 20 records up to step 20"),
        (
            [*RECORDS, ALERT, AGAIN, SUCCESS],
            "not in order, look at its alerts: 1 alert in 100 records, the first at step 81 (numerics)",
        ),
        (
            [*RECORDS, OVERFITS, SUCCESS],
            "reached its end in a state that healthy runs are seldom in: no alert in 100 records; "
            "OVERFITS since step 40",
        ),
        (
            [*RECORDS, OVERFITS, {"event": "STATE", "step": 100, "state": "OVERFITS", "over": True}, SUCCESS],
            "in order as far as it was watched: no alert in 100 records",
        ),
        (
            [
                *RECORDS,
                *({**OVERFITS, "state": odd} for odd in ("\x1b[31m", [1], "LOSS_RISE")),
                *({**OVERFITS, "since": odd} for odd in ("40", -7, 10**300)),
                SUCCESS,
            ],
            "in order as far as it was watched: no alert in 100 records",
        ),
        (
            [*RECORDS, REPAIR, AGREES, SUCCESS],
            "reached its end, repaired on the way: no alert in 100 records; 1 repair",
        ),
        (
            [*RECORDS, ALERT, FAILURE],
            "failed at step 95 (NAN_LOSS): 1 alert in 100 records, the first at step 81 (numerics)",
        ),
        ([*RECORDS, OVERFITS, FAILURE], "failed at step 95 (NAN_LOSS): no alert in 100 records"),
        (
            [*RECORDS, OVERFITS, {**OVERFITS, "over": "false"}],
            "not watched to its end, the last step is 100: no alert in 100 records; OVERFITS since step 40",
        ),
        (RECORDS, "not watched to its end, the last step is 100: no alert in 100 records"),
        (
            [*RECORDS, HANG, SLOW_STEP, SUCCESS],
            "reached its end, with hangs or slow workers on the way: no alert in 100 records; 1 warning of workers",
        ),
        (
            [*RECORDS, {"event": "CALL_ORDER", "step": 12, "wrong": "clipped", "details": "Call it earlier."}, SUCCESS],
            "cannot be judged, the monitor was called at the wrong place: no alert in 100 records; "
            "1 wrong call of the monitor",
        ),
        (
            [*RECORDS, *[{"event": "CALL_ORDER", "step": 70, "wrong": "optimizer replaced"}] * 2, SUCCESS],
            "in order as far as it was watched: no alert in 100 records; "
            "the optimizer that was watched did not make the updates",
        ),
        (
            [*RECORDS, {"event": "REPAIRS_ENDED", "step": 3, "over": True}, SUCCESS],
            "in order as far as it was watched: no alert in 100 records",
        ),
        (
            [*RECORDS, {"event": "REPAIRS_ENDED", "step": 3}, SUCCESS],
            "in order as far as it was watched: no alert in 100 records; "
            "nothing could be repaired any more from step 3 on",
        ),
        ([SUCCESS], "too short to be judged: no alert in no record"),
    ],
)
def test_the_sentence(events: list[dict[str, Any]], sentence: str) -> None:
    summary = RunSummary()
    for event in events:
        summary.note(event)
    assert summary.sentence == sentence
    assert summary.in_order == sentence.startswith(("in order", "too short"))
