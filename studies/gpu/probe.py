"""What a device does: readings of NVML, repair with CUDA streams and random states, torch.compile. Prints JSON.

python -m studies.gpu.probe repair --device cuda
python -m studies.gpu.probe compile --device cpu --tiny
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rmetric.cli import Parser, script
from rmetric.faults import make_fault
from rmetric.files import write_atomically
from rmetric.live.corpus import standard_library
from rmetric.live.models import tiny_model
from rmetric.live.run import LanguageModelRun, LiveRunConfig, NoObserver
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.hardware import HardwareUnavailable, HardwareWatch
from rmetric.monitor.hardware.nvml import NvmlSource
from rmetric.monitor.repair import RecomputeStep, RestoreState
from rmetric.monitor.tensors import own_stream

Found = dict[str, Any]
HEALTHY_STEPS, FAULTY_STEPS = 20, 2
DROPOUT = 0.1
LARGE = {"hidden": 1024, "layers": 8, "heads": 16, "key_value_heads": 8, "feed_forward": 3072}


def parser() -> Parser:
    p = Parser("Try one thing on a device.")
    p.add_argument("name", choices=PROBES, help="what to try")
    p.add_argument("--device", default="cuda", help="torch's name of the device")
    p.add_argument("--tiny", action="store_true", help="a model of 0.13 million parameters, few steps")
    p.add_argument("--out", type=Path, help="also write the JSON to this file")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    text = json.dumps(PROBES[args.name](torch.device(args.device), args.tiny), indent=1)
    print(text)
    if args.out is not None:
        write_atomically(args.out, text.encode() + b"\n")


def run_on(device: torch.device, *, tiny: bool, workers: int = 1) -> LanguageModelRun:
    """A fresh run whose attention draws random numbers on the device."""
    model = tiny_model("tiny-llama", seed=0, **({} if tiny else LARGE)).to(device)  # type: ignore[arg-type]
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = DROPOUT
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return LanguageModelRun(model, optimizer, standard_library(), LiveRunConfig(rows=8, length=32, workers=workers))


def nvml(device: torch.device, tiny: bool) -> Found:
    """Readings of the GPUs at a poll, and what a watch of this machine misses."""
    try:
        source = NvmlSource()
    except HardwareUnavailable as error:
        return {"skipped": str(error)}
    reports = [f"{report.component} ({report.kind})" for report in source.poll()]
    readings = source.readings()
    source.close()
    with HardwareWatch.automatic() as watch:
        return {"readings": readings, "reports": reports, "missing": watch.notes()}


def repair(device: torch.device, tiny: bool) -> Found:
    """Whether a corrupted gradient is recomputed, and a corrupted weight restored, to the bits of a healthy twin.

    On a GPU everything is done on a stream that is not the default one.
    """
    with _same_twice(), torch.cuda.stream(own_stream(device)):
        twin = run_on(device, tiny=tiny, workers=2)
        for _ in range(HEALTHY_STEPS + FAULTY_STEPS):
            twin.train_step()
        expected = twin.state_dict()
        found: Found = {"stream": "side" if device.type == "cuda" else "none"}
        for policy, target in ((RecomputeStep(), "gradient"), (RestoreState(), "weight")):
            run = run_on(device, tiny=tiny, workers=2)
            found[target] = _repaired(run, policy, target)
            found[f"{target}_as_twin"] = _same(expected, run)
        return found


@contextmanager
def _same_twice() -> Iterator[None]:
    """Kernels that compute the same twice, as long as this lasts; the one without such a kernel is warned of."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _repaired(run: LanguageModelRun, policy: RecomputeStep | RestoreState, target: str) -> list[str]:
    """Verdicts of the repairs in a run with a number corrupted in its last steps; an agreement is no repair."""
    with TrainingMonitor(run.model, run.optimizer, policy=policy, hardware=False, announce=False) as monitor:
        run.observer = monitor
        for _ in range(HEALTHY_STEPS):
            run.train_step()
        with make_fault("SILENT_DATA_CORRUPTION", "high", target=target).inject(run):
            for _ in range(FAULTY_STEPS):
                run.train_step()
        run.observer = NoObserver()
        return [record.verdict for record in monitor.repairs if record.verdict != "agrees"]


def _same(expected: dict[str, Any], run: LanguageModelRun) -> bool:
    """Whether weights, optimizer and random states have the expected bits."""
    state = run.state_dict()
    tensors = [(expected["model"][name], state["model"][name]) for name in expected["model"]]
    for index, moments in expected["optimizer"]["state"].items():
        tensors += [(moments[name], state["optimizer"]["state"][index][name]) for name in moments]
    tensors += [(expected[name], state[name]) for name in ("random", "random_of_device") if expected[name] is not None]
    return all(torch.equal(before.nan_to_num(), after.nan_to_num()) for before, after in tensors)


def compiled(device: torch.device, tiny: bool) -> Found:
    """Milliseconds of a step as written and compiled, each alone and watched, and how far the losses come apart."""
    steps = 3 if tiny else 20
    found: Found = {}
    losses = {}
    for kind in ("eager", "compiled"):
        run = run_on(device, tiny=tiny)
        if kind == "compiled":
            run.model.compile(backend="eager" if tiny else "inductor")
        losses[kind] = [run.train_step().item() for _ in range(3)]
        found[f"{kind}_step_ms"] = _step_ms(run, steps)
        with TrainingMonitor(run.model, run.optimizer, hardware=False, announce=False) as monitor:
            run.observer = monitor
            found[f"{kind}_watched_step_ms"] = _step_ms(run, steps)
            run.observer = NoObserver()
    pairs = zip(losses["eager"], losses["compiled"], strict=True)
    return {**found, "largest_loss_difference_nats": max(abs(before - after) for before, after in pairs)}


def _step_ms(run: LanguageModelRun, steps: int) -> float:
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        run.train_step()  # ends with the loss on the host, so that the device has done its part
        times.append(time.perf_counter() - began)
    return round(1e3 * statistics.median(times), 3)


PROBES = {"nvml": nvml, "repair": repair, "compile": compiled}


if __name__ == "__main__":
    sys.exit(main())
