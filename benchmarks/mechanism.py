"""Measure the cost of looking inside the model: a watched live run with and without mechanism monitors. Prints JSON.

python benchmarks/mechanism.py
python benchmarks/mechanism.py --blocks 2 --steps 2 --models tiny-llama

A measurement is made in every step of a block (stride 1), so that its cost stands out of the machine's noise, and is
shared out over the default stride; the last row is taken at the default stride itself. Blocks with and without monitors
alternate inside one run, and each is compared with the mean of the two plain ones around it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmetric.cli import Parser, real_training_only, script, whole_number

with real_training_only():
    import torch
    from training_report import add_machine, on_this_machine, publish, wait_for

    from rmetric.live.corpus import standard_library
    from rmetric.live.models import TINY_MODELS, tiny_model
    from rmetric.live.run import LanguageModelRun, LiveRunConfig
    from rmetric.monitor import TrainingMonitor
    from rmetric.monitor.mechanism import MONITORS, STRIDE, MechanismWatch
    from rmetric.monitor.mechanism.execution import BackgroundExecutor, InlineExecutor

GOAL_PCT = 2.0
RESAMPLES = 2_000


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Measure the share of a step's time that the mechanism monitors take.")
    p.add_argument("--models", nargs="+", choices=TINY_MODELS, default=["tiny-llama", "tiny-moe"], help="models")
    p.add_argument("--rows", type=whole_number(1), default=16, help="sequences a step")
    p.add_argument("--length", type=whole_number(2), default=32, help="tokens a sequence")
    p.add_argument("--workers", type=whole_number(1), default=4, help="micro-batches a step")
    p.add_argument("--steps", type=whole_number(1), default=5, help="measured steps a block at stride 1")
    p.add_argument("--blocks", type=whole_number(2), default=24, help="blocks of each kind")
    add_machine(p)
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    report = {
        **on_this_machine(args.device, args.threads),
        "goal_pct": GOAL_PCT,
        "default_stride": STRIDE,
        "batch": f"{args.rows} x {args.length}, {args.workers} micro-batch(es)",
        "models": [{"model": model, **_measure(model, args)} for model in args.models],
    }
    publish(report, args.out)


def _measure(name: str, args: Any) -> dict[str, Any]:
    """Each monitor alone, and all together, beside the training and at once."""
    model = tiny_model(name, seed=0).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    config = LiveRunConfig(rows=args.rows, length=args.length, workers=args.workers)
    run = LanguageModelRun(model, optimizer, standard_library(), config)
    everything = MechanismWatch(model, optimizer).names
    kinds: dict[str, tuple[dict[str, Any], int]] = {
        **{kind: ({"monitors": (kind,), "stride": 1}, args.steps) for kind in MONITORS if kind in everything},
        "all": ({"monitors": everything, "stride": 1}, args.steps),
        "all, at once": ({"monitors": everything, "stride": 1, "executor": InlineExecutor}, args.steps),
        "all, on a thread beside": ({"monitors": everything, "stride": 1, "executor": BackgroundExecutor}, args.steps),
        "all, at the default stride": ({"monitors": everything, "stride": STRIDE}, STRIDE),
    }
    _block(run, None, STRIDE)
    times: dict[str, list[tuple[float, float, float, float]]] = {kind: [] for kind in kinds}
    for _ in range(args.blocks):
        for kind, (options, steps) in kinds.items():
            before = _block(run, None, steps)
            watched = _block(run, options, steps)
            after = _block(run, None, steps)
            plain = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
            times[kind].append((*watched, *plain))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, "monitors": [_row(kind, kinds[kind][0], times[kind]) for kind in kinds]}


def _row(kind: str, options: dict[str, Any], times: list[tuple[float, float, float, float]]) -> dict[str, Any]:
    """Medians over the blocks, and the 95 % bootstrap interval of that of the share."""
    wall, cpu, plain_wall, plain_cpu = np.array(times).T
    shared = STRIDE / options["stride"]
    return {
        "monitors": kind,
        "step_ms": round(1e3 * float(np.median(plain_wall)), 3),
        "measurement_ms": round(1e3 * float(np.median(wall - plain_wall)) * options["stride"], 3),
        **_share("share_pct", 100.0 * (wall / plain_wall - 1.0) / shared),
        **_share("cpu_share_pct", 100.0 * (cpu / plain_cpu - 1.0) / shared),
    }


def _share(name: str, ratios: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return {name: round(float(np.median(ratios)), 3), f"{name}_95": [round(float(low), 3), round(float(high), 3)]}


def _block(run: LanguageModelRun, options: dict[str, Any] | None, steps: int) -> tuple[float, float]:
    """Mean seconds and CPU seconds (of all threads) a step, under a monitor with these mechanism monitors or none."""
    watch = MechanismWatch(run.model, run.optimizer, **options) if options is not None else None
    with TrainingMonitor(run.model, run.optimizer, announce=False, hardware=False, mechanism=watch) as monitor:
        run.observer = monitor
        for _ in range(2):  # the monitor finds out about micro-batches, the watch about the weights before
            run.train_step()
        wait_for(run.device)
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            run.train_step()
        wait_for(run.device)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    return seconds / steps, cpu_seconds / steps


if __name__ == "__main__":
    sys.exit(main())
