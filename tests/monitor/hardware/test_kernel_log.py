from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.monitor.hardware import HardwareUnavailable, KernelLogSource
from rmetric.monitor.hardware.kernel_log import message_of

DBE = "Nov 21 10:00:00 node kernel: NVRM: Xid (PCI:0000:65:00): 48, DBE\n"
DISK = "Nov 21 10:00:01 node kernel: I/O error, dev sda, sector 1\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text(DBE)
    return path


@pytest.fixture
def source(log: Path) -> Iterator[KernelLogSource]:
    """It reads what comes from now on."""
    reading = KernelLogSource(str(log))
    yield reading
    reading.close()


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def components(source: KernelLogSource) -> list[str]:
    return [report.component for report in source.poll()]


def test_history_is_skipped_and_what_comes_is_reported_once(log: Path) -> None:
    source = KernelLogSource(str(log), worker=4)
    assert source.poll() == []
    append(log, DISK + "Nov 21 node kernel: all is well\n" + DBE)
    assert [(report.component, report.worker) for report in source.poll()] == [("SSD", 4), ("GPU HBM3 memory", 4)]
    assert source.poll() == []
    source.close()


def test_a_line_that_is_half_written_waits_for_its_end(log: Path, source: KernelLogSource) -> None:
    append(log, DISK[:40])
    assert source.poll() == []
    append(log, DISK[40:])
    assert components(source) == ["SSD"]


def test_a_storm_is_one_report(log: Path, source: KernelLogSource) -> None:
    append(log, DISK * 1_000)
    (report,) = source.poll()
    assert report.details.endswith("(and 999 more)")


def test_one_poll_reads_a_bounded_share_and_the_next_goes_on(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmetric.monitor.hardware.kernel_log.READS_PER_POLL", 2)
    source = KernelLogSource(str(log))
    append(log, "x" * 99 + "\n")
    append(log, ("x" * 99 + "\n") * 400 + DISK)
    polls = [components(source) for _ in range(6)]
    assert [found for found in polls if found] == [["SSD"]]
    assert polls[0] == polls[1] == []
    source.close()


def test_bytes_that_are_no_text_do_no_harm(log: Path, source: KernelLogSource) -> None:
    append(log, b"\xff\xfe\x00garbage\n" + b"\x80" * 200_000 + b"\n" + DISK.encode())
    assert components(source) == ["SSD"]


def test_a_rotated_log_is_followed(log: Path, source: KernelLogSource) -> None:
    append(log, DISK)
    log.rename(log.with_suffix(".1"))
    assert components(source) == ["SSD"]
    log.write_text(DBE)
    assert components(source) == ["GPU HBM3 memory"]


def test_an_emptied_log_is_followed(log: Path) -> None:
    append(log, "x" * 1_000 + "\n")
    source = KernelLogSource(str(log))
    log.write_text(DISK)
    assert components(source) == ["SSD"]
    source.close()


def test_records_of_the_device_are_read(log: Path, source: KernelLogSource) -> None:
    append(log, "3,812,17093912,-;EDAC MC0: 1 CE memory read error\n SUBSYSTEM=edac\n")
    append(log, "12,813,17093913,-;systemd says: EDAC MC0: 1 UE memory read error\n")
    append(
        log, "3,814,17093914,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: fallen off the bus and is not responding\n"
    )
    assert components(source) == ["System memory", "Faulty GPU"]


def test_a_program_may_not_speak_for_the_kernel() -> None:
    assert message_of("30,1,1,-;NVRM: Xid (PCI:0000:65:00): 79, gone") == ""
    assert message_of("3,1,1,-;text; more") == "text; more"


def test_the_device_itself_is_followed_where_it_can_be_read() -> None:
    try:
        source = KernelLogSource()
    except HardwareUnavailable as reason:
        pytest.skip(str(reason))
    assert isinstance(source.poll(), list)
    source.close()


def test_messages_that_were_overwritten_are_passed_over(
    source: KernelLogSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bytes | Exception] = [BrokenPipeError(), DISK.encode(), BlockingIOError()]

    def read(_: int, __: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        assert components(source) == ["SSD"]


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_what_cannot_be_read_is_unavailable(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(HardwareUnavailable, match="the kernel log cannot be read") as caught:
        KernelLogSource(str(path))
    assert str(tmp_path) not in str(caught.value)


def test_a_log_without_permission_is_unavailable(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(HardwareUnavailable, match=r"^the kernel log cannot be read \(Operation not permitted\)$"):
            KernelLogSource(str(log))


def test_a_log_that_was_closed_is_unavailable(log: Path) -> None:
    source = KernelLogSource(str(log))
    source.close()
    source.close()
    with pytest.raises(HardwareUnavailable, match="the kernel log is closed"):
        source.poll()


def test_a_log_that_breaks_later_is_unavailable(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    source = KernelLogSource(str(log))
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", fail)
        with pytest.raises(HardwareUnavailable, match=r"cannot be read any longer \(Input/output error\)"):
            source.poll()
    source.close()
