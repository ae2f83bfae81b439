"""Measure the cost of repairs, and whether anything healthy is ever repaired. Prints JSON.

python benchmarks/repair.py
python benchmarks/repair.py --sizes 0.13M --timed-steps 10 --steps 200 --seeds 1
python benchmarks/repair.py --sizes --steps 100000 --models tiny-llama tiny-moe --seeds 5     # the full claim
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rmetric.cli import Parser, real_training_only, script, whole_number
from rmetric.faults import make_fault
from rmetric.progress import progress_bar

with real_training_only():
    import torch
    from monitor import SIZES
    from torch import Tensor
    from training_report import add_machine, on_this_machine, publish, quartiles, wait_for

    from rmetric.live.corpus import standard_library
    from rmetric.live.models import TINY_MODELS, tiny_model
    from rmetric.live.run import LanguageModelRun, LiveRunConfig, NoObserver
    from rmetric.monitor import TrainingMonitor
    from rmetric.monitor.repair import Policy, RecomputeStep, RestoreState
    from rmetric.monitor.repair.recompute_step import REHEARSAL_STEP
    from rmetric.monitor.tensors import differing

WATCHERS: dict[str, Callable[[LanguageModelRun], Any]] = {
    "plain": lambda run: NoObserver(),
    "monitor": lambda run: _monitor(run, None),
    "recompute": lambda run: _monitor(run, [RecomputeStep()]),
    "restore_and_recompute": lambda run: _monitor(run, [RestoreState(), RecomputeStep()]),
}
"""Observer of each kind of measured run."""
TARGETS = ("gradient", "matmul", "weight", "optimizer")
"""Places where a bit is flipped to show that a repaired run ends as its twin; a ``matmul`` in the backward pass."""
FLIP_STEP, END_STEP = 25, 40
SMALL = {"hidden": 32, "layers": 1, "heads": 2, "key_value_heads": 1, "feed_forward": 64}
"""The model of the healthy steps: as small as one that learns can be."""


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Measure what a repair policy takes of a step's time, and count repairs in healthy training.")
    p.add_argument("--sizes", nargs="*", choices=SIZES, default=["0.13M", "0.8M"], help="sizes to take the time of")
    p.add_argument("--timed-steps", type=whole_number(3), default=60, help="steps of each kind that are timed")
    p.add_argument("--workers", type=whole_number(1), default=4, help="micro-batches a step of the timed runs")
    p.add_argument("--models", nargs="+", choices=TINY_MODELS, default=["tiny-llama", "tiny-moe"], help="healthy runs")
    p.add_argument("--seeds", type=whole_number(1), default=1, help="healthy runs of each model")
    p.add_argument("--steps", type=whole_number(0), default=2000, help="healthy steps in all, shared by the runs")
    p.add_argument("--rows", type=whole_number(1), default=8, help="sequences a healthy step")
    p.add_argument("--length", type=whole_number(2), default=16, help="tokens a sequence of a healthy step")
    add_machine(p)
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    report: dict[str, Any] = {
        **on_this_machine(args.device, args.threads),
        "time": [{"size": size, "micro_batches": args.workers, **_times(size, args)} for size in args.sizes],
    }
    if args.steps:
        report["healthy"] = _healthy(args)
    report["repaired"] = [_repaired(model, target, args) for model in args.models for target in TARGETS]
    publish(report, args.out)


def _monitor(run: LanguageModelRun, policy: Sequence[Policy] | None) -> TrainingMonitor:
    return TrainingMonitor(run.model, run.optimizer, announce=False, hardware=False, scaler=run.scaler, policy=policy)


# -- time -------------------------------------------------------------------------------------------------------------


def _times(size: str, args: Any) -> dict[str, Any]:
    """Median step of each kind. The same training runs once a kind, step by step in turn: drifts of speed cancel."""
    runs = {name: SIZES[size].run(args.device, args.workers) for name in WATCHERS}
    observers = {name: watch(runs[name]) for name, watch in WATCHERS.items()}
    for name, run in runs.items():
        run.observer = observers[name]
        for _ in range(REHEARSAL_STEP):  # the monitor finds out about micro-batches, and one step is computed twice
            run.train_step()
    seconds = [{name: _step(run, args.device) for name, run in runs.items()} for _ in range(args.timed_steps)]
    for observer in observers.values():
        if isinstance(observer, TrainingMonitor):
            observer.close()
    step_ms = {name: round(1e3 * statistics.median(each[name] for each in seconds), 3) for name in WATCHERS}
    pairs = [(name, "plain") for name in WATCHERS if name != "plain"]
    pairs += [(name, "monitor") for name in ("recompute", "restore_and_recompute")]
    overhead = {
        f"{name} over {base}": [100.0 * (each[name] / each[base] - 1.0) for each in seconds] for name, base in pairs
    }
    return {
        "parameters": sum(parameter.numel() for parameter in runs["plain"].model.parameters()),
        "step_ms": step_ms,
        "overhead_pct": {name: round(statistics.median(values), 2) for name, values in overhead.items()},
        "overhead_pct_quartiles": {name: _quartiles(values) for name, values in overhead.items()},
    }


def _quartiles(values: list[float]) -> list[float]:
    low, _, high = quartiles(values)
    return [round(low, 2), round(high, 2)]


def _step(run: LanguageModelRun, device: str) -> float:
    """Seconds of a step: of the processor, which others on the machine change least; on a GPU of the clock."""
    clock = time.perf_counter if device.startswith("cuda") else time.process_time
    wait_for(device)
    began = clock()
    run.train_step()
    wait_for(device)
    return clock() - began


# -- healthy steps ----------------------------------------------------------------------------------------------------


def _healthy(args: Any) -> dict[str, Any]:
    """Train without any fault and count what the policies did."""
    jobs = [(model, seed) for seed in range(args.seeds) for model in args.models]
    each = -(-args.steps // len(jobs))
    with progress_bar(total=each * len(jobs), unit="step") as bar:
        runs = [_healthy_run(model, seed, each, args, bar) for model, seed in jobs]
    steps, again = sum(run["steps"] for run in runs), sum(run["recomputed_steps"] for run in runs)
    return {
        "steps": steps,
        "recomputed_steps": again,
        "recomputed_pct": round(100.0 * again / steps, 4),
        "false_repairs": sum(run["false_repairs"] for run in runs),
        "batch": [args.rows, args.length],
        "shape": SMALL,
        "runs": runs,
    }


def _run(model: str, seed: int, args: Any) -> LanguageModelRun:
    module = tiny_model(model, seed=seed, **SMALL).to(args.device)
    config = LiveRunConfig(seed=seed, rows=args.rows, length=args.length, workers=1)
    return LanguageModelRun(module, torch.optim.AdamW(module.parameters(), lr=1e-3), standard_library(), config)


def _healthy_run(model: str, seed: int, steps: int, args: Any, bar: Any) -> dict[str, Any]:
    run, recompute = _run(model, seed, args), RecomputeStep()
    with _monitor(run, [RestoreState(), recompute]) as monitor:
        run.observer = monitor
        losses = []
        for _ in range(steps):
            losses.append(run.train_step().item())
            bar.update()
        verdicts = Counter(repair.verdict for repair in monitor.repairs)
        working = monitor.enabled and recompute.working
    return {
        "model": model,
        "seed": seed,
        "steps": steps,
        "loss": [round(statistics.fmean(losses[:20]), 3), round(statistics.fmean(losses[-100:]), 3)],
        "recomputed_steps": recompute.computations,
        "verdicts": dict(verdicts),
        "false_repairs": sum(count for verdict, count in verdicts.items() if verdict != "agrees"),
        "still_working": working,
    }


# -- repaired runs ----------------------------------------------------------------------------------------------------


def _repaired(model: str, target: str, args: Any) -> dict[str, Any]:
    """A run with a flipped bit, repaired, beside its healthy twin: is every bit of the end the same?"""
    twin, broken, run = (_run(model, 0, args) for _ in range(3))
    _train(twin, END_STEP)
    _train_with_flip(broken, target)
    with _monitor(run, [RestoreState(), RecomputeStep()]) as monitor:
        run.observer = monitor
        _train_with_flip(run, target)
        verdicts = [[repair.step, repair.policy, repair.verdict] for repair in monitor.repairs]
    end = _end(twin)
    return {
        "model": model,
        "flipped": target,
        "repairs": verdicts,
        "same_as_twin": {"repaired": not differing(_end(run), end), "not_repaired": not differing(_end(broken), end)},
    }


def _train(run: LanguageModelRun, until: int) -> None:
    while run.step < until:
        run.train_step()


def _train_with_flip(run: LanguageModelRun, target: str) -> None:
    stage = {"stage": "backward"} if target == "matmul" else {}
    _train(run, FLIP_STEP - 1)
    with make_fault("SILENT_DATA_CORRUPTION", "high", target=target, **stage).inject(run):
        _train(run, END_STEP)


def _end(run: LanguageModelRun) -> list[Tensor]:
    """Weights and optimizer state."""
    state = [value for item in run.optimizer.state.values() for value in item.values() if isinstance(value, Tensor)]
    return [*run.model.state_dict().values(), *state]


if __name__ == "__main__":
    sys.exit(main())
