"""Runs a scenario in several real processes with Gloo on the CPU, and never longer than a time-out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 180.0
"""Of a whole scenario; reached only if something hangs."""
COLLECTIVE_TIMEOUT_S = 60.0


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
    """Call a function of a module in several processes, each with (folder, rank); what it returns must fit JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # whatever the machine is called and however it is connected
    with ExitStack() as stack:
        texts = [stack.enter_context((folder / f"errors_{rank}.txt").open("w+")) for rank in range(processes)]
        started = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", module, scenario, str(folder), str(rank), str(processes)],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=text,
            )
            for rank, text in enumerate(texts)
        ]
        try:
            for process in started:
                process.wait(timeout=TIMEOUT_S)
        finally:
            for process in started:
                process.kill()
                process.wait()
    return [
        Ended(process.returncode, _read(folder / f"found_{rank}.json"), (folder / f"errors_{rank}.txt").read_text())
        for rank, process in enumerate(started)
    ]


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


@contextmanager
def process_group(folder: Path, rank: int, processes: int) -> Iterator[None]:
    """Gloo through a file: no port that could be taken."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=(folder / "rendezvous").resolve().as_uri(),
        rank=rank,
        world_size=processes,
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
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
        # All is done. A process that takes Gloo's threads down itself is aborted now and then, on a busy machine
        # ("terminate called without an active exception").
        os._exit(0)
