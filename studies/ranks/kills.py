"""Kill random ranks of a training at random moments, and resume it: is the log whole, and the run the same?

python -m studies.ranks.kills                 # 200 kills, some ten minutes
python -m studies.ranks.kills --kills 10
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch

from rmetric.cli import Parser, script, whole_number
from rmetric.progress import progress_bar
from rmetric.records import Event
from studies.ranks.processes import errors_in, run_processes, running
from studies.ranks.resumable import CHECKPOINT, LOG, WEIGHTS, train

WORKERS = 2
STEP_S = 0.003
PATIENCE_S = 60.0
"""Time within which a rank must end by itself once its peer is dead."""
TIMES = ("WORKER_TIMES",)
"""Events that are not compared: a process that begins has not measured its first input."""
ROUNDED, ROUNDING = ("sigma_sq", "sigma_sq_norm", "noise_scale", "r_metric"), 1e-3
"""Fields that may differ by so much: after its first step a process's DDP orders the gradients anew, a sum of squares
in another order has another last digit, and σ² is a difference of such. All other fields are the same to the last."""


@dataclass
class Outcome:
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What should not have been, a line each."""


def parser() -> Parser:
    p = Parser("Kill random ranks of a training at random moments, resume it, and compare it with one never killed.")
    p.add_argument("--kills", type=whole_number(1), default=200, help="number of kills")
    p.add_argument("--steps", type=whole_number(20), default=60, help="steps a run")
    p.add_argument("--seed", type=whole_number(0), default=0, help="seed of the moments and the ranks")
    return p


def campaign(folder: Path, kills: int, steps: int, seed: int) -> Outcome:
    """Kill and resume; a run that reaches its end is compared and followed by the next."""
    rng = np.random.default_rng(seed)
    reference = folder / "reference"
    again = folder / "again"
    for each in (reference, again):  # the second one alone tells how long a run takes: all is imported
        begun = time.monotonic()
        if any(run_processes(train, WORKERS, each, (each, steps, STEP_S))):
            raise RuntimeError(f"the run that nobody kills does not reach its end\n{errors_in(each)}")
    longest_s = time.monotonic() - begun
    outcome, run = Outcome(wrong=differences(reference, again)), 0
    with progress_bar(total=kills) as progress:
        while outcome.counts["kills"] < kills:
            run += 1
            own = folder / f"run_{run}"
            ended = False
            while not ended:
                kill_after_s = float(rng.uniform(0.0, longest_s)) if outcome.counts["kills"] < kills else None
                ended = attempt(own, steps, kill_after_s, int(rng.integers(WORKERS)), outcome)
                progress.update(outcome.counts["kills"] - progress.n)
            outcome.counts["runs compared"] += 1
            outcome.wrong += [f"{own.name}: {text}" for text in differences(reference, own)]
    return outcome


def attempt(folder: Path, steps: int, kill_after_s: float | None, rank: int, outcome: Outcome) -> bool:
    """Start or resume a run and kill a rank after some time, or never; returns whether it reached its end.

    Raises
    ------
    RuntimeError
        If it did not, and the rank was not killed: resumed, it would fail again, for ever.
    """
    if not (folder / CHECKPOINT).exists():
        (folder / LOG).unlink(missing_ok=True)  # nothing to resume: whoever begins anew begins a new log
    with running(train, WORKERS, folder, (folder, steps, STEP_S)) as processes:
        processes[rank].join(kill_after_s)
        if processes[rank].is_alive():
            os.kill(processes[rank].pid or 0, signal.SIGKILL)
        for process in processes:
            process.join(PATIENCE_S)
            if process.is_alive():
                outcome.wrong.append(f"{folder.name}: a rank did not end within {PATIENCE_S:.0f} s of its peer's death")
    codes = [process.exitcode for process in processes]
    if not any(codes):
        return True
    if codes[rank] != -signal.SIGKILL:
        failed = f"{folder.name}: exit codes {codes}, though rank {rank} was not killed: the training fails"
        raise RuntimeError("\n".join([failed, errors_in(folder)]))
    outcome.counts["kills"] += 1
    outcome.counts["of the rank that writes the log"] += rank == 0
    outcome.counts["before the first checkpoint"] += not (folder / CHECKPOINT).exists()
    outcome.counts["left a last line without its end"] += cut_short(folder)
    outcome.wrong += [f"{folder.name}: {text}" for text in inconsistencies(folder)]
    return False


def cut_short(folder: Path) -> bool:
    """Return whether the log's last line was cut: a kill between two pages of memory that one write fills."""
    path = folder / LOG
    return path.exists() and not (path.read_bytes() or b"\n").endswith(b"\n")


def inconsistencies(folder: Path) -> list[str]:
    """What is wrong with the log and the checkpoint of a run that was killed; nothing: all is well.

    A last line without its end is counted apart: the run that is resumed drops it.
    """
    path = folder / LOG
    text = path.read_bytes() if path.exists() else b""
    found, events = [], []
    for number, line in enumerate(text[: text.rfind(b"\n") + 1].splitlines(), 1):
        try:
            events.append(json.loads(line))
        except ValueError:
            found.append(f"line {number} is broken")
    steps = [event["step"] for event in events if event["event"] == "METRICS"]
    if steps != list(range(1, len(steps) + 1)):
        found.append(f"the records are those of steps {steps}")
    if (folder / CHECKPOINT).exists():
        saved = torch.load(folder / CHECKPOINT, weights_only=True)["step"]
        if saved > len(steps):
            found.append(f"the checkpoint is of step {saved}, the log ends at {len(steps)}")
    return found


def differences(reference: Path, resumed: Path) -> list[str]:
    """Where a run that was killed and resumed differs from one that never was."""
    nothing: Event = {}
    pairs = zip_longest(_compared(reference / LOG), _compared(resumed / LOG), fillvalue=nothing)
    found = next(([f"the records differ: {one}, {other}"] for one, other in pairs if not _same(one, other)), [])
    one, other = (torch.load(folder / WEIGHTS, weights_only=True) for folder in (reference, resumed))
    same = all(torch.equal(one[name], other[name]) for name in one)
    return found if same else [*found, "the weights differ"]


def _same(one: Event, other: Event) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(value, other[name], rel_tol=ROUNDING) if name in ROUNDED else value == other[name]
        for name, value in one.items()
    )


def _compared(log: Path) -> list[Event]:
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [event for event in events if event["event"] not in TIMES]


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; see the top of this file. The status is 1 if anything was wrong."""
    args = parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        outcome = campaign(Path(folder), args.kills, args.steps, args.seed)
    for name, count in outcome.counts.items():
        print(f"{count:5d}  {name}")
    print(f"{len(outcome.wrong):5d}  broken lines, gaps, records or weights that differ, ranks that did not end")
    for text in outcome.wrong[:20]:
        print(f"       {text}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
