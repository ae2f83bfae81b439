"""False alarms of step times while other programs come and go; prints JSON.

    python benchmarks/shared_machine.py

A small network is trained while two, four or six busy processes begin and end at random. The log's step times leave
out what its thread waits for a processor; beside them stands what a plain clock says of the same steps, judged by the
same detector.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.cli import Parser, real_training_only, script, whole_number
from rmetric.detectors import ROBUST, make_detector
from rmetric.episodes import episodes
from rmetric.log_reader import read_log
from rmetric.records import Observations

with real_training_only():
    import torch
    from torch import nn

    from rmetric.monitor import TrainingMonitor

BUSY = "while True: sum(range(100_000))"
QUIET_S, CROWDED_S = (3.0, 8.0), (1.0, 6.0)


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Count false alarms of step times on a shared machine, with and without waits for a processor.")
    p.add_argument("--runs", type=whole_number(1), default=6, help="runs, each with neighbours of its own")
    p.add_argument("--steps", type=whole_number(100), default=1500, help="steps of each, some 20 ms long")
    p.add_argument("--threads", type=whole_number(1), default=1, help="threads that compute")
    return p


@contextmanager
def neighbours(seed: int) -> Iterator[None]:
    """Busy processes that come and go."""
    draw, over = random.Random(seed), threading.Event()

    def come_and_go() -> None:
        while not over.wait(draw.uniform(*QUIET_S)):
            with ExitStack() as stack:
                for _ in range(draw.choice([2, 4, 6])):
                    process = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
                    stack.callback(process.kill)
                over.wait(draw.uniform(*CROWDED_S))

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def trained(seed: int, steps: int, log: Path) -> tuple[Observations, NDArray[np.float64]]:
    """Records of a training, and its step times by a plain clock, shape (steps,), seconds."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer, teacher = torch.optim.AdamW(model.parameters()), torch.randn(64, 10)
    ends_s = []
    with neighbours(seed), TrainingMonitor(model, optimizer, log=log, announce=False, hardware=False) as monitor:
        for _ in range(steps):
            inputs = torch.randn(128, 64)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(1))
            loss.backward()
            monitor.step(loss)
            ends_s.append(time.perf_counter())
            optimizer.step()
    return read_log(log).observations, np.diff(ends_s, prepend=np.nan)


def alarms(observations: Observations) -> int:
    """Alert episodes of the robust R-Metric."""
    detector = make_detector(ROBUST)
    return len(episodes(observations.step, detector.score_run(observations) > detector.threshold))


def _told(times: Sequence[NDArray[np.float64]], alarms: Sequence[int]) -> dict[str, Any]:
    ends = [np.nanpercentile(run, [50, 99, 100]) * 1e3 for run in times]
    median, high, longest = (round(statistics.median(values), 1) for values in zip(*ends, strict=True))
    return {"alarms": sum(alarms), "ms": {"median": median, "99 %": high, "longest": longest}}


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        runs = [trained(seed, args.steps, Path(folder) / f"{seed}.jsonl") for seed in range(args.runs)]
    plain = [Observations(run.step, {**run.columns, "step_time_s": times}) for run, times in runs]
    own = [run for run, _ in runs]
    told = {
        "records": sum(len(run) for run in own),
        "without waits": _told([run["step_time_s"] for run in own], [alarms(run) for run in own]),
        "plain clock": _told([run["step_time_s"] for run in plain], [alarms(run) for run in plain]),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    sys.exit(main())
