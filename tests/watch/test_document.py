"""docs/watch.md: every command in it does what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmetric.commands import main
from tests.helpers import ROOT
from tests.watch.conftest import Server, Watch, append, eventually, losses

DOCUMENT = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line)[1:] for block in re.findall(r"```\n(.*?)```", DOCUMENT, re.S) for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.jsonl").write_text(losses(0, 100))
    (tmp_path / "output_dir" / "checkpoint-60").mkdir(parents=True)
    history = [{"step": step, "loss": 3.0 - 0.01 * step} for step in range(60)]
    (tmp_path / "output_dir/checkpoint-60/trainer_state.json").write_text(json.dumps({"log_history": history}))
    return tmp_path


def test_all_commands_are_known_kinds() -> None:
    assert [words[0] for words in COMMANDS] == ["watch"] * 5 + ["report"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "report"], ids=" ".join)
def test_the_page_is_written(words: list[str], folder: Path) -> None:
    assert main(words) == 0
    assert list(folder.glob("*.html"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "watch"], ids=" ".join)
def test_the_watch_runs_and_tells(
    words: list[str], folder: Path, watch: Callable[..., Watch], serve: Callable[..., Server]
) -> None:
    chat = serve(200)
    watched = watch(*words[1:], SLACK_WEBHOOK=chat.address)
    if words[1] == "run.jsonl" and "--webhook" not in words:  # that one would leave this machine
        append(folder / "run.jsonl", losses(100, 105, "NaN"))
        watched.wait_for("run: error")
        if "--exec" in words:
            alerts = folder / "alerts.jsonl"
            eventually(lambda: alerts.exists() and alerts.read_text(), "the command")
            assert json.loads(alerts.read_text())["severity"] == "error"
        if "--slack" in words:
            eventually(lambda: chat.bodies, "the chat")
    status = watched.end()
    assert status == ("run: error" in watched.output)
    assert "Traceback" not in watched.output


def test_the_document_names_all_that_a_message_holds_and_all_options(folder: Path) -> None:
    helped = subprocess.run([sys.executable, "-m", "rmetric", "watch", "--help"], capture_output=True, text=True).stdout
    for option in re.findall(r"^  (--[\w-]+)", helped, re.M):
        assert f"`{option}" in DOCUMENT, option
    for variable in re.findall(r"RMETRIC_\w+", helped):
        assert variable in DOCUMENT
