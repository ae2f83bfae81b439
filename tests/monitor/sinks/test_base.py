"""Tests of the fan-out: one sink cannot harm another, nor the training."""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Mapping
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.monitor.sinks import Sink, Sinks
from rmetric.monitor.sinks.base import optional_module, scalars, sentence


class Recorder(Sink):
    """Remembers what it was told; raises where it is told to."""

    def __init__(self, name: str = "recorder", fails_in: str = "", error: BaseException | None = None) -> None:
        self.name, self.fails_in, self.error = name, fails_in, error
        self.told: list[Any] = []

    def __str__(self) -> str:
        return self.name

    def _tell(self, what: str, *more: Any) -> None:
        self.told.append((what, *more))
        if what == self.fails_in:
            raise self.error or RuntimeError("no luck\nat all")

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        self._tell("start", dict(config), resume_step)

    def event(self, event: Mapping[str, Any]) -> None:
        self._tell("event", dict(event))

    def flush(self) -> None:
        self._tell("flush")

    def close(self) -> None:
        self._tell("close")

    def state_dict(self) -> dict[str, Any]:
        self._tell("state_dict")
        return {"name": self.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tell("load_state_dict", dict(state))


METRICS = {"event": "METRICS", "step": 7, "training_loss": 2.5}


def test_every_sink_is_told_everything_in_order() -> None:
    first, second = Recorder("a"), Recorder("b")
    sinks = Sinks([first, second])
    sinks.load_state_dict({"1": {"name": "b"}})  # as older checkpoints have it
    sinks.start({"seed": 3}, resume_step=6)
    sinks.event(METRICS)
    sinks.flush()
    state = sinks.state_dict()
    sinks.close()
    common = [("start", {"seed": 3}, 6), ("event", METRICS), ("flush",), ("state_dict",), ("close",)]
    assert first.told == [("load_state_dict", {}), *common]
    assert second.told == [("load_state_dict", {"name": "b"}), *common]
    assert state == {"Recorder/0": {"name": "a"}, "Recorder/1": {"name": "b"}}


@pytest.mark.parametrize("moment", ["start", "event", "flush", "state_dict", "load_state_dict", "close"])
def test_a_sink_that_raises_is_dropped_with_one_warning(moment: str, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = Recorder("bad", fails_in=moment), Recorder("good")
    sinks = Sinks([bad, good])
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        sinks.load_state_dict({})
        sinks.start({}, resume_step=None)
        sinks.event(METRICS)
        sinks.event(METRICS)
        sinks.flush()
        sinks.state_dict()
        sinks.close()
        sinks.close()
    assert sinks.active == (good,)
    assert [told[0] for told in good.told] == [
        "load_state_dict", "start", "event", "event", "flush", "state_dict", "close", "close",
    ]  # fmt: skip
    again = moment in ("close", "state_dict")  # dropping keeps its state, and closes it
    assert [told[0] for told in bad.told].count(moment) == 1 + again
    where = "never starts" if moment in ("start", "load_state_dict") else "stops at step 7"
    if moment == "event":
        where = "never starts"  # it failed at the first one
    assert [record.message for record in caplog.records] == [
        f"bad: RuntimeError: no luck at all; this sink {where}, training goes on"
    ]


def test_a_sink_whose_state_could_not_be_told_begins_anew_in_a_run_that_is_resumed() -> None:
    state = Sinks([Recorder("a", fails_in="state_dict"), Recorder("b")]).state_dict()
    assert state == {"Recorder/1": {"name": "b"}}
    a, b = Recorder("a"), Recorder("b")
    Sinks([a, b]).load_state_dict(state)
    assert [a.told, b.told] == [[("load_state_dict", {})], [("load_state_dict", {"name": "b"})]]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "permission denied"),
        (UserError("say please"), "say please"),
        (KeyError("lr"), "KeyError: 'lr'"),
    ],
)
def test_the_warning_says_what_happened(error: Exception, said: str, caplog: pytest.LogCaptureFixture) -> None:
    sinks = Sinks([Recorder("log", fails_in="flush", error=error)])
    sinks.event(METRICS)
    sinks.flush()
    assert caplog.messages == [f"log: {said}; this sink stops at step 7, training goes on"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_program_passes_through(error: BaseException) -> None:
    sink = Recorder(fails_in="event", error=error)
    sinks = Sinks([sink])
    with pytest.raises(type(error)):
        sinks.event(METRICS)
    assert sinks.active == (sink,)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(UserError, match=r"^Weights & Biases is not installed; pip install 'rmetric\[sinks\]'$"):
        optional_module("wandb", "Weights & Biases")


def test_numbers_and_sentences() -> None:
    record = {"event": "METRICS", "step": 3, "r_metric": math.inf, "is_nan": True, "alerts": {}, "non_finite_count": 2}
    assert scalars(record) == {"r_metric": math.inf, "non_finite_count": 2.0}
    assert sentence({"event": "ALERT", "step": 3, "detector": "d", "message": "look here"}) == "look here"
    assert sentence({"event": "HARDWARE_EVENT", "step": 3, "component": "GPU", "worker": 0}) == (
        "component: GPU, worker: 0"
    )


def test_what_stands_under_mechanism_is_a_number_like_the_others() -> None:
    record = {"step": 3, "training_loss": 2.5, "mechanism": {"qk_entropy": 0.5, "non_finite": ["query_norm"]}}
    assert scalars(record) == {"training_loss": 2.5, "qk_entropy": 0.5, "query_norm": math.inf}
