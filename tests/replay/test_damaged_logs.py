"""Damaged logs: a warning with the line number, and the rest is used; with --strict, an error."""

from __future__ import annotations

import io
import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmetric.compiled
from replay_and_analyze_logs import main
from rmetric.batches import NumberedEvent
from rmetric.compiled import PAYS_FROM
from rmetric.errors import UserError
from rmetric.importers import IMPORTERS
from rmetric.log_lines import MAX_LINE_BYTES
from rmetric.log_writer import encode_event
from rmetric.records import Event
from rmetric.replay import Replay, Replayer, replay_log
from rmetric.replay.report import SHOWN_WARNINGS, DamageReport, replays_to_folder

GOOD = [
    encode_event({"event": "EXPERIMENT_START", "config": {"model_type": "tiny", "fault_injection": {"type": "NONE"}}}),
    *(
        encode_event(
            {"event": "METRICS", "step": step, "training_loss": 3 - step / 100, "validation_loss": 3 - step / 99}
        )
        for step in range(1, 21)
    ),
    encode_event({"event": "EXPERIMENT_SUCCESS", "step": 20}),
]
LINE_11 = GOOD[10]
DAMAGE = {
    "bad UTF-8 in a text": (LINE_11.replace(b"METRICS", b"METRICS\xff"), "not UTF-8", 19),
    "bad UTF-8 in an unknown field": (LINE_11.replace(b"}", b',"note":"\xc3("}'), "not UTF-8", 20),
    "no JSON": (b"Traceback (most recent call last):\n", "not JSON but text; skipped", 19),
    "half a line with the next one after it": (LINE_11[:20] + LINE_11, "not JSON; skipped", 19),
    "no object": (b"[1, 2]\n", "a JSON object is due", 19),
    "zero bytes": (b"\0" * 4096 + b"\n", "not JSON; skipped", 19),
    "no step": (LINE_11.replace(b'"step":10,', b""), "needs a whole number below 2^53 as its step", 19),
    "a step that is no number": (
        LINE_11.replace(b'"step":10', b'"step":"ten"'),
        "needs a whole number below 2^53 as its step",
        19,
    ),
    "half a step": (LINE_11.replace(b'"step":10', b'"step":10.5'), "needs a whole number below 2^53 as its step", 19),
    "a repeated step": (GOOD[9], "step 9 after step 9 repeats a step", 19),
    "a step out of order": (LINE_11.replace(b'"step":10', b'"step":2'), "goes back in time", 19),
    "a loss that is no number": (LINE_11.replace(b"2.9,", b'"high",'), "training_loss is 'high', not a number", 20),
    "a loss that is a list": (LINE_11.replace(b"2.9,", b"[2.9],"), "training_loss is '[2.9]', not a number", 20),
    "an event that is no name": (LINE_11.replace(b'"METRICS"', b'{"a":1}'), "event must be a name", 19),
    "a second start": (GOOD[0], "a second EXPERIMENT_START", 19),
    "a hardware event without a time": (b'{"event":"HARDWARE_EVENT","step":3}\n', "no usable time_s", 19),
    "a fault without a step": (b'{"event":"FAULT_INJECTED"}\n', "no usable step", 19),
    "a deep nest": (b'{"event":"METRICS","x":' + b"[" * 100_000 + b"\n", "not JSON", 19),
}


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def read_with_damage(path: Path) -> tuple[Replay, list[tuple[int, str]]]:
    damage: list[tuple[int, str]] = []
    replay = replay_log(path, on_damage=lambda line, message: damage.append((line, message)))
    return replay, damage


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_reported_with_its_line_and_the_rest_is_used(tmp_path: Path, kind: str) -> None:
    line, message, records = DAMAGE[kind]
    replay, damage = read_with_damage(write(tmp_path / "run.jsonl", *GOOD[:10], line, *GOOD[11:]))
    assert [number for number, _ in damage] == [11]
    assert message in damage[0][1]
    assert replay.records == records
    assert replay.outcome == "clean"


@pytest.mark.parametrize("kind", DAMAGE)
def test_strict_makes_any_damage_an_error(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "run.jsonl", *GOOD[:10], DAMAGE[kind][0], *GOOD[11:])
    assert main([str(log), "--out", str(tmp_path / "out"), "--strict", "--no-plot"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {log}, line 11: ")
    assert error.count("\n") == 1
    assert not list((tmp_path / "out").iterdir())


def test_a_cut_last_line_leaves_an_incomplete_log(tmp_path: Path) -> None:
    replay, damage = read_with_damage(write(tmp_path / "run.jsonl", *GOOD[:15], GOOD[15][:30]))
    assert damage == [(16, "cut off; skipped")]
    assert replay.records == 14
    assert replay.outcome == "incomplete"


def test_bare_nan_is_no_damage_and_counts_as_measured(tmp_path: Path) -> None:
    line = LINE_11.replace(b"2.9,", b"NaN,")
    assert line != LINE_11
    replay, damage = read_with_damage(write(tmp_path / "run.jsonl", *GOOD[:10], line, *GOOD[11:]))
    assert not damage
    assert replay.records == 20


def test_a_lost_head_leaves_the_fault_known_from_its_event(tmp_path: Path) -> None:
    fault = encode_event({"event": "FAULT_INJECTED", "step": 5, "fault": "NIC_FLAP"})
    failure = encode_event({"event": "EXPERIMENT_FAILURE", "step": 15, "reason": "NAN_LOSS"})
    replay, damage = read_with_damage(write(tmp_path / "run.jsonl", GOOD[0][:40], b"\n", fault, *GOOD[1:-1], failure))
    assert [number for number, _ in damage] == [1]
    assert (replay.fault, replay.onset, replay.failure_step) == ("NIC_FLAP", 5, 15)


def test_missing_fields_are_not_measured_and_no_damage(tmp_path: Path) -> None:
    replay, damage = read_with_damage(
        write(tmp_path / "run.jsonl", b'{"event":"METRICS","step":1}\n{"event":"METRICS","step":2}\n')
    )
    assert not damage
    assert replay.records == 2
    assert set(replay.signals.values()) == {"not in the log"}


def test_an_empty_file_is_listed_and_the_rest_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "good.jsonl", *GOOD)
    write(tmp_path / "empty.jsonl")
    write(tmp_path / "blank.jsonl", b"\n\n")
    write(tmp_path / "poem.csv", b"roses are red\n")
    out = tmp_path / "out"
    assert main([str(tmp_path), "--out", str(out), "--no-plot"]) == 0
    captured = capsys.readouterr()
    assert "empty.jsonl, line 1: an empty file" in captured.err
    assert "no record in the whole file could be used" in captured.err
    assert "poem.csv is not a log in a known format" in captured.err
    assert [line.split("|")[1].strip() for line in captured.out.splitlines()[2:6]] == ["blank", "empty", "good", "poem"]
    assert orjson.loads((out / "empty.summary.json").read_bytes())["unusable"] == "no records"
    assert not (out / "empty.csv").exists()


def test_a_log_without_the_column_that_is_mapped_to_the_loss_is_an_error_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "good.csv", b"step,objective\n" + b"".join(b"%d,2.5\n" % step for step in range(9)))
    write(tmp_path / "other.csv", b"step,nll,val_loss\n" + b"".join(b"%d,2.5,2.5\n" % step for step in range(9)))
    out = tmp_path / "out"
    assert main([str(tmp_path), "--out", str(out), "--no-plot", "--map", "training_loss=objective"]) == 0
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"error: {tmp_path / 'other.csv'}: there is no column 'objective' (columns with values: ")
    assert not (out / "other.csv").exists()
    assert (out / "good.csv").exists()


def test_when_no_log_can_be_used_that_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name)
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    each = [f"error: {tmp_path / name}: no records" for name in ("a.jsonl", "b.jsonl")]
    assert said == [*each, "error: none of the 2 logs could be used; see the errors above"]


@pytest.mark.parametrize("content", [b"hello\n", b""])
def test_a_single_log_that_cannot_be_used_is_told_once(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.log", content)
    assert main([str(tmp_path / "a.log"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("error: ") == 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "trainer_state.json"])
def test_an_empty_file_is_an_error_with_strict(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path / name)), "--out", str(tmp_path / "out"), "--strict"]) == 2
    assert "an empty file" in capsys.readouterr().err


def test_only_the_first_warnings_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    screen = io.StringIO()
    report = DamageReport(tmp_path / "x.jsonl", stream=screen)
    for line in range(1, 1235):
        report(line, "bad")
    report.close()
    shown = screen.getvalue().splitlines()
    assert len(shown) == SHOWN_WARNINGS + 1
    assert shown[0] == f"warning: {tmp_path}/x.jsonl, line 1: bad"
    assert shown[-1] == f"warning: {tmp_path}/x.jsonl: 1,229 more"


def test_a_failed_replay_leaves_no_half_file(tmp_path: Path) -> None:
    log = write(tmp_path / "run.jsonl", *GOOD[:10], b"oops\n")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UserError, match="line 11"):
        [*replays_to_folder(log, {None: "run"}, out, strict=True)]
    assert not list(out.iterdir())


def test_a_full_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(tmp_path / "run.jsonl", *GOOD)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmetric.files.os.fsync", full)
    assert main([str(log), "--out", str(tmp_path / "out"), "--no-plot"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "run.csv: the disk is full" in error
    assert not list((tmp_path / "out").iterdir())


def test_a_log_that_cannot_be_read_does_not_blame_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(UserError, match="folder is a folder and no log itself; name a log in it"):
        replay_log(folder)


# --- any bytes at all -----------------------------------------------------------------------------------------------

JUNK = st.one_of(
    st.binary(max_size=80),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
)
NAMES = st.sampled_from(
    ["event", "step", "training_loss", "validation_loss", "lambda", "sigma_sq", "delta_l_norm", "r_metric", "alerts",
     "non_finite", "time_s", "config", "fault_injection", "step_time_s", "log_history"]
)  # fmt: skip
EVENTS = st.sampled_from(["METRICS", "EXPERIMENT_START", "HARDWARE_EVENT", "FAULT_INJECTED", "EXPERIMENT_FAILURE", "X"])
RECORDS = st.dictionaries(NAMES, JUNK, max_size=6).flatmap(
    lambda record: st.tuples(EVENTS, st.integers(0, 50)).map(lambda head: {"event": head[0], "step": head[1], **record})
)


def encoded(value: object) -> bytes:
    import json

    return json.dumps(value, default=lambda raw: raw.decode("latin-1")).encode()


LINES = st.one_of(st.binary(max_size=60), st.sampled_from(GOOD), RECORDS.map(encoded))


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=st.lists(LINES, max_size=12), name=st.sampled_from([*IMPORTERS, "auto"]), size=st.integers(1, 5))
def test_no_bytes_crash_a_replay_and_the_chunks_do_not_matter(
    tmp_path: Path, lines: list[bytes], name: str, size: int
) -> None:
    path = write(tmp_path / "log", b"\n".join(lines))
    results = []
    for chunk_records in (size, 10_000):
        try:
            replay = replay_log(
                path, log_format=name, on_damage=lambda line, message: None, chunk_records=chunk_records
            )
        except UserError:
            results.append(b"refused")
        else:
            results.append(orjson.dumps(replay.to_dict()))
    assert results[0] == results[1]


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=400))
def test_no_bytes_give_a_traceback_from_the_script(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "log.jsonl", content)
    assert main([str(path), "--out", str(tmp_path / "out"), "--no-plot"]) in (0, 2)


# --- bounded memory -------------------------------------------------------------------------------------------------


def peak_bytes(events: Iterator[NumberedEvent]) -> int:
    tracemalloc.start()
    for _ in Replayer(chunk_records=8192).run(events, lambda line, message: None):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.fixture
def no_numba_from_now_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a process imports once it has judged many values, those of other tests among them."""
    monkeypatch.setattr(rmetric.compiled, "_judged_without", -(2**40))


def endless(event: Event) -> Iterator[NumberedEvent]:
    return ((number, {**event, "step": number}) for number in itertools.count())


@pytest.mark.long
def test_memory_does_not_grow_with_the_length_of_a_log() -> None:
    metrics = {"event": "METRICS", "training_loss": 2.0, "validation_loss": 2.0, "sigma_sq": 1.0}
    peak_bytes(itertools.islice(endless(metrics), 2 * PAYS_FROM))  # imports, also those of long logs
    short = peak_bytes(itertools.islice(endless(metrics), 10_000))
    assert peak_bytes(itertools.islice(endless(metrics), 60_000)) < 2 * short


@pytest.mark.usefixtures("no_numba_from_now_on")
@pytest.mark.parametrize("kind", ["HARDWARE_EVENT", "EXPERIMENT_START", "SOMETHING_ELSE", "FAULT_INJECTED"])
def test_memory_does_not_grow_with_the_number_of_other_events(kind: str) -> None:
    peak_bytes(itertools.islice(endless({"event": kind, "time_s": 1.0}), 20))  # imports
    assert peak_bytes(itertools.islice(endless({"event": kind, "time_s": 1.0}), 20_000)) < 4 << 20


@pytest.mark.usefixtures("no_numba_from_now_on")
@pytest.mark.parametrize("name", ["note", "training_loss", "alerts", "r_metric"])
def test_long_fields_are_not_held(name: str) -> None:
    def events() -> Iterator[NumberedEvent]:
        for number in range(1_000):
            yield number, {"event": "METRICS", "step": number, name: f"{number}" + "x" * 100_000}

    peak_bytes(events())  # imports
    assert peak_bytes(events()) < 8 << 20


def test_a_line_without_end_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    log = write(tmp_path / "run.jsonl", *GOOD[:10], b'{"x":"' + b"y" * (8 * MAX_LINE_BYTES) + b"\n", *GOOD[11:])
    tracemalloc.start()
    replay, damage = read_with_damage(log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert replay.records == 19
    assert [line for line, _ in damage] == [11]
    assert peak < 6 * MAX_LINE_BYTES


def test_a_step_time_beyond_all_numbers_dates_no_event(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    record = '{"event": "METRICS", "step": %d, "training_loss": 2.5, "step_time_s": %s}\n'
    log.write_text(record % (1, "1" + "0" * 400) + '{"event": "HARDWARE_EVENT", "step": 1}\n' + record % (2, "1.0"))
    damage: list[str] = []
    assert replay_log(log, on_damage=lambda line, message: damage.append(message)).records == 2
    assert damage == ["HARDWARE_EVENT has no usable time_s, nor a step with a known step time; skipped"]
