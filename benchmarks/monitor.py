"""What watching costs: a live run with and without the monitor, in alternating blocks of one process. Prints JSON.

python benchmarks/monitor.py
python benchmarks/monitor.py --blocks 2 --steps 5 --sizes 0.13M
python benchmarks/monitor.py --blocks 40 --steps 50 --sizes 0.02M --workers 1      # the fixed cost of a step
python benchmarks/monitor.py --record-every 50 --warm-up 64                        # a record of every 50th step
python benchmarks/monitor.py --record-every auto --steps 100                       # as rare as its cost demands

Processor time is what a step costs on one thread; other programs of the machine change it less than the clock's time.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rmetric.cli import Parser, real_training_only, script, whole_number
from rmetric.log_lines import read_events

with real_training_only():
    import torch
    from training_report import add_machine, on_this_machine, publish, quartiles, wait_for

    from rmetric.live.corpus import standard_library
    from rmetric.live.models import tiny_model
    from rmetric.live.run import LanguageModelRun, LiveRunConfig, NoObserver, Observer
    from rmetric.monitor import TrainingMonitor
    from rmetric.monitor.hardware import HardwareWatch
    from rmetric.monitor.record_interval import AUTO, CHECKED, TRIED

GOAL_PCT, PAPER_PCT = 0.5, 1.8


@dataclass(frozen=True)
class Size:
    """A model and its batch."""

    hidden: int
    layers: int
    heads: int
    rows: int
    length: int

    def run(self, device: str, workers: int, precision: str = "fp32") -> LanguageModelRun:
        """A fresh run of this size."""
        shape = {"hidden": self.hidden, "layers": self.layers, "heads": self.heads, "feed_forward": 3 * self.hidden}
        model = tiny_model("tiny-llama", seed=0, key_value_heads=self.heads // 2, **shape).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        autocast = PRECISIONS[precision]
        config = LiveRunConfig(rows=self.rows, length=self.length, workers=workers, autocast=autocast)
        return LanguageModelRun(model, optimizer, standard_library(), config)


SIZES = {
    "0.02M": Size(16, 1, 2, 2, 8),
    "0.13M": Size(64, 2, 4, 16, 64),
    "0.8M": Size(128, 4, 4, 16, 64),
    "7M": Size(384, 4, 6, 16, 32),
    "200M": Size(1024, 14, 16, 16, 512),
    "1.2B": Size(2048, 24, 16, 8, 1024),
    "3B": Size(2560, 38, 20, 4, 512),
}
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Of the forward pass; in FP16 the loss is scaled."""


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Measure the share of a step's time that the monitor takes.")
    p.add_argument("--sizes", nargs="+", choices=SIZES, default=["0.13M", "0.8M", "7M"], help="sizes of the model")
    p.add_argument("--workers", nargs="+", type=whole_number(1), default=[1, 4], help="micro-batches a step")
    p.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="number format of the forward pass (default: fp32)"
    )
    p.add_argument("--sigma-sq-every", nargs="+", type=whole_number(1), default=[1, 10], metavar="STEPS",
                   help="steps between measurements of σ² from micro-batches")  # fmt: skip
    p.add_argument("--record-every", nargs="+", type=_record_every, default=[1], metavar="STEPS",
                   help="steps between records; auto: as the monitor chooses")  # fmt: skip
    p.add_argument("--warm-up", type=whole_number(2), default=2, metavar="STEPS",
                   help="watched steps before those measured (64: the checks are over; auto: 97 at least)")  # fmt: skip
    p.add_argument("--steps", type=whole_number(3), default=20, help="measured steps a block, up to the next record")
    p.add_argument("--blocks", type=whole_number(1), default=6, help="pairs of blocks, one of each kind")
    add_machine(p)
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    report = {
        **on_this_machine(args.device, args.threads),
        "goal_pct": GOAL_PCT,
        "paper_pct": PAPER_PCT,
        "precision": args.precision,
        "sizes": [
            {
                "size": size,
                **asdict(SIZES[size]),
                "micro_batches": workers,
                **intervals,
                **_measure(SIZES[size], workers, intervals, args),
            }
            for size in args.sizes
            for workers in args.workers
            for intervals in _intervals(workers, args)
        ],
    }
    publish(report, args.out)


def _record_every(text: str) -> int | str:
    """Argument type: a number of steps, or ``auto``."""
    return text if text == AUTO else whole_number(1)(text)


def _intervals(workers: int, args: Any) -> Iterator[dict[str, Any]]:
    """Options of the monitor that are tried: σ² more rarely where it costs, and records more rarely."""
    for every in args.record_every:
        for sigma_sq_every in args.sigma_sq_every if workers > 1 and every == 1 else [1]:
            yield {"record_every": every, "sigma_sq_every": sigma_sq_every}


def _measure(size: Size, workers: int, intervals: dict[str, Any], args: Any) -> dict[str, Any]:
    """Step with and without the monitor; their ratio pair by pair, so that drifts of speed cancel."""
    run = size.run(args.device, workers, args.precision)
    run.observer = StepTimer(NoObserver())
    _block(run, 3, args.device)
    plain, watched, chosen = [], [], []
    chosen_here = intervals["record_every"] == AUTO
    cycle = 1 if chosen_here else intervals["record_every"]
    steps, warm_up = math.ceil(args.steps / cycle) * cycle, args.warm_up
    if chosen_here:
        warm_up = max(warm_up, CHECKED + TRIED + 1)
    with tempfile.TemporaryDirectory() as folder, HardwareWatch.automatic() as watch:
        watch.notes()  # what this machine has not; no news here
        for block in range(args.blocks):
            run.observer = StepTimer(NoObserver())
            plain.append(_block(run, steps, args.device))
            log = Path(folder) / f"{block}.jsonl"
            with TrainingMonitor(
                run.model, run.optimizer, log=log, hardware=watch, announce=False, **intervals
            ) as monitor:
                run.observer = StepTimer(monitor)
                watched.append(_block(run, steps, args.device, warm_up))
            chosen += [_chosen(log)] if chosen_here else []
    pairs = list(zip(plain, watched, strict=True))
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        **({"chosen_record_every": chosen} if chosen else {}),
        "step_ms": _ms(block.wall_s for block in plain),
        "watched_step_ms": _ms(block.wall_s for block in watched),
        "overhead_ms": _ms(after.wall_s - before.wall_s for before, after in pairs),
        **_share("overhead_pct", [after.wall_s / before.wall_s for before, after in pairs]),
        "processor_step_ms": _ms(block.processor_s for block in plain),
        "processor_overhead_ms": _ms(after.processor_s - before.processor_s for before, after in pairs),
        **_share("processor_overhead_pct", [after.processor_s / before.processor_s for before, after in pairs]),
        "inside_ms": _ms(after.inside_s - before.inside_s for before, after in pairs),
        **_share(
            "inside_pct", [1.0 + (after.inside_s - before.inside_s) / before.processor_s for before, after in pairs]
        ),
    }


def _chosen(log: Path) -> int:
    """Steps between records that the monitor chose."""
    told = [event for _, event in read_events(log, print) if event["event"] == "RECORD_INTERVAL"]
    return int(told[0]["steps"]) if told else 1


def _share(name: str, ratios: list[float]) -> dict[str, Any]:
    """Median and quartiles of what watched steps take over plain ones, percent."""
    costs = [100.0 * (ratio - 1.0) for ratio in ratios]
    low, middle, high = quartiles(costs)
    return {name: round(middle, 2), f"{name}_quartiles": [round(low, 2), round(high, 2)]}


def _ms(seconds: Iterable[float]) -> float:
    return round(1e3 * statistics.median(seconds), 3)


@dataclass(frozen=True)
class Block:
    """Seconds a step: on the clock, and of processor time, which other programs of the machine change less."""

    wall_s: float
    processor_s: float
    inside_s: float
    """Of processor time, what the call of the observer takes."""


class StepTimer:
    """Adds up the processor time inside an observer's ``step``: what hooks do in the passes is not in it.

    The same few microseconds in each step stand out of a difference of two noisy blocks only after hours.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.used_s = 0.0

    def step(self, loss: torch.Tensor, *, recompute: Callable[[], torch.Tensor] | None = None) -> bool:
        began = time.process_time()
        try:
            return self._observer.step(loss, recompute=recompute)
        finally:
            self.used_s += time.process_time() - began

    def note(self, event: str, **fields: Any) -> None:
        self._observer.note(event, **fields)

    def hardware_event(self, component: str, *, kind: str, worker: int = 0, details: str = "") -> None:
        self._observer.hardware_event(component, kind=kind, worker=worker, details=details)


def _block(run: LanguageModelRun, steps: int, device: str, warm_up: int = 2) -> Block:
    """Mean over the steps, so that what is done in some of them counts; single steps of a GPU are not waited for."""
    for _ in range(warm_up):  # the monitor finds out about micro-batches
        run.train_step()
    wait_for(device)
    timer = run.observer
    assert isinstance(timer, StepTimer)
    inside = timer.used_s
    began, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        run.train_step()
    wait_for(device)
    passed = time.perf_counter() - began, time.process_time() - used, timer.used_s - inside
    return Block(*(seconds / steps for seconds in passed))


if __name__ == "__main__":
    sys.exit(main())
