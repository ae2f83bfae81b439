"""Tests of the log on disk: whole lines whatever happens, and a cut that drops what a resumed run does anew."""

from __future__ import annotations

import errno
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rmetric.errors import UserError
from rmetric.files import write_atomically
from rmetric.log_reader import read_log
from rmetric.log_writer import encode_event
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.sinks import Announcer, JsonlSink, Sinks
from rmetric.monitor.sinks.jsonl import cut_back
from tests.helpers import lines_of
from tests.monitor.common import small_training
from tests.test_scripts import mounted

CONFIG = {"seed": 1, "experiment_id": "x"}
START = {"event": "EXPERIMENT_START", "config": CONFIG}
END = {"event": "EXPERIMENT_SUCCESS", "step": 99}


def metrics(step: int, **fields: Any) -> dict[str, Any]:
    return {"event": "METRICS", "step": step, "training_loss": 2.0, **fields}


def write(path: Path, steps: range, *, resume_step: int | None = None, end: bool = False) -> JsonlSink:
    sink = JsonlSink(path)
    sink.start(CONFIG, resume_step=resume_step)
    for step in steps:
        sink.event(metrics(step))
    if end:
        sink.event(END)
    sink.close()
    return sink


def steps_of(path: Path) -> list[int]:
    return [event["step"] for event in lines_of(path.read_bytes()) if event["event"] == "METRICS"]


def test_a_new_log(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    sink = JsonlSink(path)
    assert not path.exists()
    sink.start(CONFIG, resume_step=None)
    assert lines_of(path.read_bytes()) == [START]
    sink.event(metrics(1, grad_norm=math.inf, sigma_sq=1 / 3))
    assert lines_of(path.read_bytes())[1] == metrics(1, sigma_sq=0.3333333, non_finite=["grad_norm"])
    sink.event(END)
    sink.close()
    sink.close()
    run = read_log(path)
    assert run.config == CONFIG
    assert run.terminal == END
    assert run.observations["grad_norm"].tolist() == [math.inf]


def test_an_existing_log_is_never_touched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.jsonl"
    write(path, range(1, 4))
    before = path.read_bytes()
    names = [write(path, range(1, 3)).path.name for _ in range(2)]
    assert names == ["run-2.jsonl", "run-3.jsonl"]
    assert path.read_bytes() == before
    assert steps_of(tmp_path / "run-3.jsonl") == [1, 2]
    assert caplog.messages == [
        f"{path} is there already and is left as it is; this run writes {path.with_name(name)}" for name in names
    ]


def test_an_empty_file_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run.jsonl"
    path.touch()
    assert write(path, range(1, 3)).path == path
    assert steps_of(path) == [1, 2]
    assert caplog.messages == []


def test_a_path_that_cannot_be_a_log_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a folder; name a file for the log"):
        JsonlSink(tmp_path)
    with pytest.raises(UserError, match=r"is not a folder; the log .* cannot be made in it"):
        JsonlSink(tmp_path / "file" / "deeper" / "run.jsonl")
    with pytest.raises(UserError, match=r"is written as plain text; name it run\.jsonl, compress it later"):
        JsonlSink(tmp_path / "run.jsonl.gz")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for link in (tmp_path / "dangling", tmp_path / "loop", tmp_path / "loop" / "run.jsonl"):
        with pytest.raises(UserError, match="is a link to nothing"):
            JsonlSink(link)
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(UserError, match=r"\Athe log '.*' cannot be written: .*\Z"):
            JsonlSink(tmp_path / name)


def test_a_log_that_cannot_be_written_is_refused_as_the_monitor_is_made(tmp_path: Path) -> None:
    refused = pytest.raises(UserError, match="cannot be written: Read-only file system")
    with mounted(tmp_path / "fixed", "ro") as fixed, refused:
        TrainingMonitor(*small_training(), log=fixed / "new" / "run.jsonl", hardware=False)
    TrainingMonitor(*small_training(), log=tmp_path / "new" / "run.jsonl", hardware=False)
    assert [path.name for path in tmp_path.iterdir()] == ["fixed"]  # nothing is left behind


def test_a_relative_path_is_that_of_the_folder_in_which_the_log_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    write(Path("logs/run.jsonl"), range(1, 3))
    sink = JsonlSink("logs/run.jsonl")
    monkeypatch.chdir("elsewhere")
    sink.start(CONFIG, resume_step=None)
    sink.close()
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["run-2.jsonl", "run.jsonl"]
    assert str(sink) == "logs/run-2.jsonl" and "logs/run.jsonl is there already" in caplog.messages[0]
    resumed = JsonlSink(tmp_path / "logs" / "run.jsonl")
    resumed.load_state_dict(sink.state_dict())
    assert resumed.path == sink.path


def test_a_closed_log_takes_no_event(tmp_path: Path) -> None:
    sink = write(tmp_path / "run.jsonl", range(1, 2))
    with pytest.raises(ValueError, match="not open"):
        sink.event(metrics(2))


# -- resume -----------------------------------------------------------------------------------------------------------


def test_a_resumed_log_is_that_of_a_run_never_interrupted(tmp_path: Path) -> None:
    path, reference = tmp_path / "run.jsonl", tmp_path / "reference.jsonl"
    write(reference, range(1, 31), end=True)
    write(path, range(1, 13))
    with open(path, "ab") as file:
        file.write(b'{"event":"METRICS","step":13,"trai')
    write(path, range(11, 23), resume_step=10, end=True)
    write(path, range(6, 31), resume_step=5, end=True)
    assert path.read_bytes() == reference.read_bytes()
    assert [item.name for item in sorted(tmp_path.iterdir())] == ["reference.jsonl", "run.jsonl"]


def test_an_event_of_a_later_step_goes_and_a_late_record_stays(tmp_path: Path) -> None:
    """Values arrive one step late: a note of step 11 may stand before the record of step 10."""
    path = tmp_path / "run.jsonl"
    events = [START, metrics(9), {"event": "FAULT_INJECTED", "step": 11}, metrics(10), metrics(11)]
    path.write_bytes(b"".join(map(encode_event, events)))
    cut_back(path, 10)
    assert lines_of(path.read_bytes()) == [START, metrics(9), metrics(10)]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "run.jsonl"
    write(real, range(1, 5))
    link.symlink_to(real)
    write(link, range(3, 4), resume_step=2)
    assert link.is_symlink()
    assert steps_of(real) == [1, 2, 3]


@pytest.mark.parametrize("content", [None, b"", b"step,loss\n1,2.0\n", b'{"event":"EXPERIMENT_START","conf'])
def test_without_a_log_to_resume_a_new_one_begins(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_bytes(content)
    sink = write(path, range(6, 8), resume_step=5)
    assert sink.path.name == ("run-2.jsonl" if content else "run.jsonl")
    assert lines_of(sink.path.read_bytes()) == [START, metrics(6), metrics(7)]
    assert path.read_bytes() == (content or sink.path.read_bytes())
    assert caplog.messages[0] == f"{path} is not a log that can be continued at step 5; a new one begins"
    assert len(caplog.messages) == (2 if content else 1)


def test_a_resumed_run_finds_its_own_file_and_not_its_neighbour(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, range(1, 9))
    state = write(path, range(1, 7)).state_dict()
    sink = JsonlSink(path)
    sink.load_state_dict(state)
    sink.start(CONFIG, resume_step=4)
    sink.close()
    assert steps_of(path) == list(range(1, 9))
    assert steps_of(tmp_path / "run-2.jsonl") == [1, 2, 3, 4]

    again = JsonlSink(path)
    again.load_state_dict(state)
    assert again.state_dict() == state  # a checkpoint right after a resume

    elsewhere = JsonlSink(tmp_path / "other.jsonl")
    elsewhere.load_state_dict(state)
    assert elsewhere.path.name == "other.jsonl"


def test_a_resumed_run_that_had_no_log_takes_up_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, range(1, 9))
    before = path.read_bytes()
    for state in (JsonlSink(path).state_dict(), {}):  # of a checkpoint before the first step; of a run without a log
        sink = JsonlSink(path)
        sink.load_state_dict(state)
        sink.start(CONFIG, resume_step=4)
        sink.close()
        assert path.read_bytes() == before and sink.path != path


def test_a_log_that_has_stopped_is_found_again_by_the_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    write(path, range(1, 9))
    sinks = Sinks([JsonlSink(path)])
    sinks.start(CONFIG, resume_step=None)
    sinks.event(metrics(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        sinks.event(metrics(2))
    assert sinks.active == ()
    resumed = Sinks([JsonlSink(path)])
    resumed.load_state_dict(sinks.state_dict())
    resumed.start(CONFIG, resume_step=2)
    resumed.event(metrics(3))
    resumed.close()
    assert (steps_of(path), steps_of(tmp_path / "run-2.jsonl")) == ([*range(1, 9)], [1, 3])


any_event = st.one_of(
    st.builds(metrics, st.integers(1, 20)),
    st.builds(lambda step: {"event": "ALERT", "step": step, "detector": "r_metric"}, st.integers(1, 20)),
    st.builds(lambda step: {"event": "EXPERIMENT_FAILURE", "step": step}, st.integers(1, 20)),
    st.just({"event": "COMMENT", "text": "no step"}),
)


@given(events=st.lists(any_event, max_size=12), step=st.integers(0, 21), cut=st.integers(0, 60))
def test_the_cut_keeps_exactly_what_came_before(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], step: int, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    lines = [encode_event(event) for event in (START, *events)]
    last = encode_event(metrics(1))[: min(cut, 30)]
    path.write_bytes(b"".join(lines) + last)
    cut_back(path, step)
    kept = [
        event
        for event in (START, *events)
        if event.get("step", 0) <= step and event["event"] != "EXPERIMENT_FAILURE"
    ]  # fmt: skip
    once = path.read_bytes()
    assert once == b"".join(map(encode_event, kept))
    cut_back(path, step)
    assert path.read_bytes() == once


def test_a_cut_that_cannot_be_written_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.jsonl"
    write(path, range(1, 5))
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rmetric.files.os.replace", full)
    sinks = Sinks([JsonlSink(path)])
    sinks.start(CONFIG, resume_step=2)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["run.jsonl"]
    assert caplog.messages == [f"{path}: the disk is full; the log stops at step 2, training goes on"]


# -- what the outside does --------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_whole_lines_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mounted(tmp_path / "small", "size=16k") as small:
        path = small / "run.jsonl"
        sinks = Sinks([JsonlSink(path)])
        sinks.start(CONFIG, resume_step=None)
        for step in range(1, 1000):
            sinks.event(metrics(step, details="x" * 50))
        sinks.close()
        run = read_log(path)  # strict: raises for a cut line
        assert run.terminal is None
        last = run.last_step
        assert run.observations.step.tolist() == list(range(1, last + 1))
        assert 50 < last < 999
    assert caplog.messages == [f"{path}: the disk is full; the log stops at step {last}, training goes on"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_line_that_went_in_only_partly_is_taken_away(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl")
    sink.start(CONFIG, resume_step=None)
    real_write, calls = os.write, []

    def short(descriptor: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 2:
            raise error
        return real_write(descriptor, data[:5])

    with monkeypatch.context() as patch:
        patch.setattr("rmetric.monitor.sinks.jsonl.os.write", short)
        with pytest.raises(type(error)):
            sink.event(metrics(1))
    assert len(calls) == 2
    assert lines_of(sink.path.read_bytes()) == [START]
    sink.event(metrics(2))
    assert lines_of(sink.path.read_bytes()) == [START, metrics(2)]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Path.unlink, "was deleted"),
        (lambda path: write_atomically(path, b""), "was replaced"),
        (lambda path: os.truncate(path, 20), "was cut short"),
    ],
)
@pytest.mark.parametrize("later", [0, 2])
def test_a_log_that_somebody_else_deletes_or_cuts_is_said_once_and_at_the_end(
    harm: Callable[[Path], Any], said: str, later: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.jsonl"
    log = JsonlSink(path)
    sinks = Sinks([Announcer(log), log])
    sinks.start(CONFIG, resume_step=None)
    sinks.event(metrics(1))
    harm(path)
    for step in range(2, 2 + later):
        sinks.event(metrics(step))
    sinks.event(END)
    sinks.close()
    once, closing = caplog.messages
    assert once == f"{path} {said} by somebody else and lacks lines of this run"
    assert closing.endswith(f"; the log is {path}, which {said}")


@pytest.mark.parametrize("later", [0, 1])
def test_a_log_whose_descriptor_is_gone_stops_before_the_end(
    later: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.jsonl"
    log = JsonlSink(path)
    sinks = Sinks([Announcer(log), log])
    sinks.start(CONFIG, resume_step=None)
    (own,) = [entry for entry in Path("/proc/self/fd").iterdir() if entry.exists() and entry.samefile(path)]
    os.close(int(own.name))
    for step in range(1, 1 + later):
        sinks.event(metrics(step))
    sinks.close()
    assert len(caplog.messages) == 2
    assert any(said.endswith(f"; the log is {path}, which stops before the end") for said in caplog.messages)


def test_ctrl_c_after_a_whole_line_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonlSink(tmp_path / "run.jsonl")
    sink.start(CONFIG, resume_step=None)
    real_write = os.write

    def interrupted(descriptor: int, data: bytes) -> int:
        real_write(descriptor, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rmetric.monitor.sinks.jsonl.os.write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sink.event(metrics(1))
    assert lines_of(sink.path.read_bytes()) == [START, metrics(1)]


def test_a_device_that_is_always_full(caplog: pytest.LogCaptureFixture) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        sinks = Sinks([JsonlSink("/dev/full")])
        sinks.start(CONFIG, resume_step=None)
        sinks.event(metrics(1))
    assert caplog.messages == ["/dev/full: the disk is full; the log never starts, training goes on"]


def test_a_killed_process_loses_no_event_and_cuts_the_last_line_at_most(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    program = f"""
from rmetric.monitor.sinks import JsonlSink
sink = JsonlSink({str(path)!r})
sink.start({{}}, resume_step=None)
step = 0
while True:
    step += 1
    sink.event({{"event": "METRICS", "step": step, "training_loss": 1.5, "details": "x" * 300}})
    print(step, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(200):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().splitlines() if line.strip()]
    whole, _, cut = path.read_bytes().rpartition(b"\n")  # a kernel may stop a write at the end of a page
    events = lines_of(whole)
    following = b'{"event":"METRICS","step":%d,"training_loss":1.5,"details":"%s"}' % (len(events), b"x" * 300)
    assert following.startswith(cut)
    assert events[0]["event"] == "EXPERIMENT_START"
    assert [event["step"] for event in events[1:]] == list(range(1, len(events)))
    assert len(events) - 1 >= max([200, *said[:-1]])
