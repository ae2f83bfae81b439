"""Slow one of four workers, in each phase and in two ways, and count how well it is named. Prints a table.

python -m studies.ranks.run                               # some six minutes
python -m studies.ranks.run --steps 150 --seeds 1         # the quick one
"""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import product
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd

from rmetric.cli import Parser, script, whole_number
from rmetric.components import SLOW_WORKER
from rmetric.log_reader import read_log
from rmetric.progress import progress_bar
from rmetric.records import Run
from studies.ranks.processes import errors_in, running
from studies.ranks.training import Slowing, train

WORKERS, LOG = 4, "run.jsonl"
PHASES = ("input", "forward", "backward")
KINDS = ("20 %", "200 ms")
TOGETHER = 4
"""Runs at a time: they sleep most of the time."""


def parser() -> Parser:
    p = Parser("Slow one of four workers and count how well it is named.")
    p.add_argument("--steps", type=whole_number(120), default=200, help="steps a run")
    p.add_argument("--seeds", type=whole_number(1), default=2, help="runs of each kind; twice as many healthy ones")
    return p


def judged(run: Run, slowing: Slowing) -> dict[str, object]:
    """How a run names its slow worker."""
    named = [event for event in run.events if event.get("component") == SLOW_WORKER]
    after = [event for event in named if event["step"] >= slowing.onset]
    right = [event for event in after if event["worker"] == slowing.worker and event["phase"] == slowing.phase]
    first = right[0]["step"] - slowing.onset if right and slowing.phase else None
    return {
        "slowed": f"{slowing.kind} in {slowing.phase}" if slowing.phase else "nothing",
        "named": bool(right),
        "after": first,
        "wrong_worker": len([event for event in named if not slowing.phase or event["worker"] != slowing.worker]),
        "wrong_phase": len([event for event in after if event["worker"] == slowing.worker]) - len(right)
        if slowing.phase
        else 0,
        "alerts": len([event for event in run.events if event["event"] == "ALERT"]),
        "steps": len(run.observations),
    }


def watched(top: Path, steps: int, runs: Sequence[tuple[Slowing, int]]) -> Generator[dict[str, object]]:
    """How each run names its slow worker; :data:`TOGETHER` of them at a time, each in a folder of its own."""
    with ExitStack() as begun:
        waiting: deque[Callable[[], dict[str, object]]] = deque()
        for number, (slowing, seed) in enumerate(runs):
            if len(waiting) == TOGETHER:
                yield waiting.popleft()()
            folder = top / str(number)
            arguments = (folder / LOG, steps, slowing, seed)
            processes = begun.enter_context(running(train, WORKERS, folder, arguments))
            waiting.append(partial(_result, processes, folder, slowing))
        while waiting:
            yield waiting.popleft()()


def _result(processes: Sequence[BaseProcess], folder: Path, slowing: Slowing) -> dict[str, object]:
    for process in processes:
        process.join()
    if any(codes := [process.exitcode for process in processes]):
        raise RuntimeError(f"a process of {slowing} ended with {codes}\n{errors_in(folder)}")
    return judged(read_log(folder / LOG), slowing)


def plan(steps: int, seeds: int) -> list[tuple[Slowing, int]]:
    """Every run: what slows it, and its seed. The slow worker is another one from run to run."""
    slowed = [
        (Slowing(phase, kind, (seed + place) % WORKERS, steps // 3), seed)
        for seed in range(seeds)
        for place, (kind, phase) in enumerate(product(KINDS, PHASES))
    ]
    return slowed + [(Slowing("", "", 0, steps // 3), seeds + seed) for seed in range(2 * seeds)]


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Run the study; see the top of this file."""
    args = parser().parse_args(argv)
    runs = plan(args.steps, args.seeds)
    with tempfile.TemporaryDirectory() as top, closing(watched(Path(top), args.steps, runs)) as found:
        rows = pd.DataFrame([*progress_bar(found, total=len(runs))])
    print(table(rows).to_markdown(index=False))
    return 0


def table(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.groupby("slowed", sort=False).agg(
        runs=("named", "size"),
        named=("named", "sum"),
        median_steps=("after", "median"),
        most_steps=("after", "max"),
        wrong_worker=("wrong_worker", "sum"),
        wrong_phase=("wrong_phase", "sum"),
        alerts=("alerts", "sum"),
        steps=("steps", "sum"),
    )
    return found.reset_index().rename(columns=lambda name: name.replace("_", " "))


if __name__ == "__main__":
    sys.exit(main())
