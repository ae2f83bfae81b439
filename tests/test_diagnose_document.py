"""docs/diagnose.md: each of its commands is run as it stands, and what it shows is what they print."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

import rmetric
from rmetric.commands import main
from tests.helpers import ROOT

TEXT = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(re.findall(r"^rmetric .+$|(?<=`)rmetric [^`]+(?=`)", TEXT, re.M)))
SHOWN = re.findall(r"```\n(rmetric [^\n]+)\n```\n\n```text\n(.*?)\n```", TEXT, re.S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the document names."""
    real = ROOT / "tests" / "data" / "real_runs"
    broken, twin = next(real.glob("real_seed0_12*.jsonl")), next(real.glob("real_seed0_00*.jsonl"))
    (tmp_path / "logs").mkdir()
    for name, log in (("run.jsonl", broken), ("before.jsonl", twin), ("logs/a.jsonl", broken), ("logs/b.jsonl", twin)):
        (tmp_path / name).write_bytes(log.read_bytes())
    rows = "".join(f"{step},{3.0 - 0.01 * step:.4f}\n" for step in range(150))
    (tmp_path / "metrics.csv").write_text(f"iteration,loss\n{rows}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(command: str) -> tuple[int, str]:
    """Exit status and standard output of a command."""
    program, *words = shlex.split(command)
    assert program == "rmetric"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main(words)
    return status, out.getvalue()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(command: str) -> None:
    status, _ = printed(command)
    assert status == (1 if command.split()[1] in ("diagnose", "compare") else 0)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_what_is_shown_is_what_is_printed(command: str, shown: str) -> None:
    assert printed(command)[1].rstrip() == shown


@pytest.mark.usefixtures("folder")
def test_the_example_in_python_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    given = {"rmetric": rmetric}
    exec(example, given)
    assert "found" in given


def test_the_document_names_all_commands_about_logs() -> None:
    assert {command.split()[1] for command in COMMANDS} == {"diagnose", "compare", "convert", "report", "replay"}
    assert len(SHOWN) == 2
