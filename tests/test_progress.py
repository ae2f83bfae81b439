"""Progress where standard error is no terminal: whole lines, and none of work that is soon done."""

import io
import sys

import pytest

from rmetric import progress
from rmetric.progress import progress_bar


def worked(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, items: int = 3) -> list[str]:
    """What a loop over so many items leaves on a stream."""
    monkeypatch.setattr(sys, "stderr", stream)
    for _ in progress_bar(range(items), unit="run", desc="training"):
        pass
    return stream.getvalue().split("\n")


def test_work_that_is_soon_done_writes_nothing_to_a_file(monkeypatch):
    assert worked(monkeypatch, io.StringIO()) == [""]


def test_in_a_file_each_state_is_a_line_of_its_own(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    *lines, rest = worked(monkeypatch, io.StringIO())
    assert rest == ""
    assert lines[0].startswith("training:   0%|")
    assert lines[-1].startswith("training: 100%|##########| 3/3 [")
    assert not [line for line in lines if "\r" in line or not line.isascii()]


def test_a_terminal_has_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert worked(monkeypatch, Terminal())[0].count("\rtraining: ") >= 2
