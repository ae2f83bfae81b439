"""Programs that need torch, each in an interpreter of its own, forked from one that has imported it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import printed_by

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
FORKING = """
import gc, json, os, torch, rmetric
torch.optim.SGD([torch.zeros(1)], 1.0), rmetric.TrainingMonitor  # imported on first use
gc.freeze()  # else each interpreter looks at its end through all that was imported
codes = []
for folder in {folders}:
    if not (child := os.fork()):
        os.chdir(folder)
        for stream, name in (1, "printed.txt"), (2, "errors.txt"):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
        break
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    print(json.dumps(codes), flush=True)
    os._exit(0)
exec(open("program.py").read())
"""
"""Each goes on to the end of its interpreter; importing torch in each would take most of the time."""


@dataclass(frozen=True)
class Ended:
    """How a program ended, and the folder in which it ran."""

    folder: Path
    code: int
    """Exit status; negative: the signal that killed it."""

    @property
    def printed(self) -> str:
        return (self.folder / "printed.txt").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "errors.txt").read_text()


def run_forked(programs: Mapping[Path, str]) -> dict[Path, Ended]:
    """Run programs one after the other, each in a folder that is there."""
    for folder, program in programs.items():
        (folder / "program.py").write_text(program)
    forking = FORKING.format(folders=[str(folder) for folder in programs])
    return {folder: Ended(folder, code) for folder, code in zip(programs, json.loads(printed_by(forking)), strict=True)}
