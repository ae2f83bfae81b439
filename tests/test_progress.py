"""Progress where standard error is no terminal: whole lines, and none of work that is soon done."""

import io
import sys

import pytest

from rmetric import progress
from rmetric.progress import progress_bar


def left_on(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    """What a loop over three items leaves on a stream that is standard error."""
    monkeypatch.setattr(sys, "stderr", stream)
    for item in (bar := progress_bar(range(3), unit="run", delay=0.0, mininterval=0.0)):
        bar.set_description(f"run {item}")
    return stream.getvalue()


def test_work_that_is_soon_done_writes_nothing_to_a_file(monkeypatch):
    assert left_on(monkeypatch, io.StringIO()) == ""


def test_in_a_file_each_state_is_a_line_of_its_own(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    written = left_on(monkeypatch, io.StringIO())
    assert written.isascii()
    assert "\r" not in written
    assert written.splitlines()[0].startswith("0%|")
    assert written.splitlines()[-1].startswith("run 2: 100%|##########| 3/3 [")


def test_a_terminal_has_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert left_on(monkeypatch, Terminal()).count("\rrun ") >= 3


class Broken(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


class Tee:
    """What people put in place of standard error."""

    def write(self, text: str) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("stream", [Broken(), None, Tee()])
def test_work_goes_on_where_nothing_can_be_written(monkeypatch, stream):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress_bar(range(3), delay=0.0, mininterval=0.0)) == [0, 1, 2]
