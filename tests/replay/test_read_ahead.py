"""Reading a log ahead in a thread gives what reading it gives: the same events, damage and errors, in that order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.batches import Batch
from rmetric.errors import UserError
from rmetric.log_reader import NumberedEvent, OnDamage, read_batches, strict
from rmetric.replay import replay_log, replayer
from rmetric.replay.read_ahead import PORTIONS, RECORDS, read_ahead


def _log(path: Path, lines: int, damaged: range = range(0)) -> Path:
    record = '{{"event":"METRICS","step":{},"training_loss":{}}}\n'
    text = (record.format(number, 3.0 + 1.0 / number) for number in range(1, lines + 1))
    path.write_text("".join("not JSON\n" if number in damaged else line for number, line in enumerate(text)))
    return path


def _listen(events: Iterator[NumberedEvent], heard: list[tuple[int, object]]) -> None:
    for line, event in events:
        heard.append((line, event.step.tolist() if isinstance(event, Batch) else event))


@pytest.mark.parametrize("lines", [0, 1, RECORDS, 3 * RECORDS + 5])
def test_events_and_damage_come_in_their_order(tmp_path: Path, lines: int) -> None:
    log = _log(tmp_path / "run.jsonl", lines, range(50, lines, 997))
    heard: list[list[tuple[int, object]]] = [[], []]
    for read, told in zip((read_batches, _ahead), heard, strict=True):
        _listen(read(log, lambda line, message, told=told: told.append((line, message))), told)
    assert heard[0] == heard[1]
    assert any(isinstance(what, str) for _, what in heard[0]) == (lines > 50)


def _ahead(log: Path, on_damage: OnDamage) -> Iterator[NumberedEvent]:
    return read_ahead(lambda report: read_batches(log, report), on_damage)


def test_only_some_portions_are_read_ahead() -> None:
    read: list[int] = []

    def endless(_: OnDamage) -> Iterator[NumberedEvent]:
        for line in range(10**9):
            read.append(line)
            yield line, {}

    events = read_ahead(endless, strict("a log"))
    assert next(events) == (0, {})
    events.close()  # type: ignore[attr-defined]
    assert len(read) <= (PORTIONS + 1) * RECORDS + 1


def test_an_error_comes_after_what_was_read_before_it() -> None:
    def breaks(_: OnDamage) -> Iterator[NumberedEvent]:
        for line in range(2 * RECORDS):
            yield line, {}
        raise OSError(5, "Input/output error")

    events = read_ahead(breaks, strict("a log"))
    assert [next(events)[0] for _ in range(2 * RECORDS)] == [*range(2 * RECORDS)]
    with pytest.raises(OSError, match="Input/output"):
        next(events)


def test_a_replay_is_the_same_with_it_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log(tmp_path / "run.jsonl", 3 * RECORDS, range(RECORDS, RECORDS + 3))
    replays, damage = [], []
    for long in (1, 1 << 40):
        monkeypatch.setattr(replayer, "LONG_BYTES", long)
        heard: list[tuple[int, str]] = []
        replays.append(replay_log(log, on_damage=lambda *what, heard=heard: heard.append(what)))
        damage.append(heard)
    assert replays[0] == replays[1]
    assert damage[0] == damage[1] and len(damage[0]) == 3
    with pytest.raises(UserError, match=f"line {RECORDS + 1}"):
        monkeypatch.setattr(replayer, "LONG_BYTES", 1)
        replay_log(log)


def test_the_thread_ends_with_the_replay(tmp_path: Path) -> None:
    log = _log(tmp_path / "run.jsonl", RECORDS)
    events = _ahead(log, strict("a log"))
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read ahead")]
