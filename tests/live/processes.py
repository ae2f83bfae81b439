"""Runs a scenario in several real processes with Gloo on the CPU, and never longer than a time-out."""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import rmetric.live.models.tiny  # noqa: F401 - the process that others are forked from has imported transformers
from rmetric.engines.processes import ready_for
from studies.processes import end_in_group, join_gloo_group

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180.0
"""Of a whole scenario; reached only if something hangs."""
COLLECTIVE_TIMEOUT = timedelta(minutes=1)
needs_gloo = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs Gloo")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    """Exit status; negative: the signal that killed it."""
    found: Any
    """What its scenario returned; ``None`` if it did not get that far."""
    errors: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


def run_processes(module: str, scenario: str, folder: Path, processes: int = 2) -> list[Ended]:
    """Run a module of scenarios in several processes, each with (folder, rank); what one returns must fit JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    context = ready_for(_run)
    started = [
        context.Process(target=_run, args=(module, [scenario, str(folder), str(rank), str(processes)]))
        for rank in range(processes)
    ]
    for process in started:
        process.start()
    try:
        for process in started:
            process.join(timeout=TIMEOUT_S)
        late = [rank for rank, process in enumerate(started) if process.is_alive()]
        assert not late, f"processes {late} still run after {TIMEOUT_S} s"
    finally:
        for process in started:
            process.kill()
            process.join()
    return [
        Ended(process.exitcode or 0, _read(folder / f"found_{rank}.json"), (folder / f"errors_{rank}.txt").read_text())
        for rank, process in enumerate(started)
    ]


def _run(module: str, arguments: list[str]) -> None:
    """Run a module as ``python -m`` would, from the first line to what is done at an interpreter's end."""
    with open(os.devnull, "w") as nowhere, open(Path(arguments[1]) / f"errors_{arguments[2]}.txt", "w") as errors:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(errors.fileno(), sys.stderr.fileno())
    os.chdir(ROOT)
    warnings.simplefilter("ignore")
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception:  # noqa: BLE001 - as an interpreter ends
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        raise SystemExit(1) from None
    finally:
        atexit._run_exitfuncs()  # type: ignore[attr-defined]


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


@contextmanager
def process_group(folder: Path, rank: int, processes: int) -> Iterator[None]:
    """A group that is left at the end, even where the process goes on."""
    join_gloo_group(folder, rank, processes, COLLECTIVE_TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def main(scenarios: dict[str, Any]) -> None:
    """What a module of scenarios does when it is run: one scenario in one process."""
    name, folder, rank, processes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with process_group(folder, rank, processes):
        found = scenarios[name](folder, rank)
        (folder / f"found_{rank}.json").write_text(json.dumps(found))
        end_in_group()
