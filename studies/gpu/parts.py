"""The parts of ``make gpu``: what each runs, for how long at most, and which figures of its result are reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmetric.live.models.shapes import SHAPES

Figures = dict[str, Any]
OVERHEADS = (("200M", "bf16", 20, 4), ("200M", "fp16", 20, 4), ("1.2B", "bf16", 10, 2), ("3B", "bf16", 10, 2))
"""Size and precision of benchmarks/monitor.py, steps of a block, pairs of blocks."""
TINY_OVERHEADS = tuple(("0.02M", precision, 3, 1) for precision in ("fp32", "bf16", "fp16"))
STUDIED = ("llama-3.2-1b", "qwen2.5-3b")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part: a command of its own, so that what goes wrong in it, a full memory say, stays there."""

    name: str
    command: tuple[str, ...]
    """Arguments of Python; ``{out}`` stands for a folder of the part's own."""
    result: str
    """JSON file that the command writes into that folder."""
    figures: Callable[[Mapping[str, Any]], Figures]
    """Figures to report, from that file."""
    limit_s: float
    """Seconds after which it is stopped."""

    def arguments(self, out: str) -> list[str]:
        """The command, with its folder."""
        return [sys.executable, *(word.replace("{out}", out) for word in self.command)]


def parts(device: str, *, tiny: bool) -> Iterator[Part]:
    """All parts in order, what is asked for most first.

    ``tiny``: the smallest shapes and the fewest steps, a check that every part works, of use on a CPU.
    """
    yield _probe("nvml", device, tiny, 60)
    yield _probe("repair", device, tiny, 90)
    for size, precision, steps, blocks in TINY_OVERHEADS if tiny else OVERHEADS:
        yield _overhead(size, precision, steps, blocks, device)
    for shape in ["tiny-qwen"] if tiny else STUDIED:
        yield _case_study(shape if tiny else f"random:{SHAPES[shape].hub_name}", device, tiny)
    yield _real_study(device, tiny)
    yield _probe("compile", device, tiny, 120)


def _probe(name: str, device: str, tiny: bool, limit_s: float) -> Part:
    words = ("-m", "studies.gpu.probe", name, "--device", device, "--out", "{out}/probe.json")
    return Part(
        name=name, command=(*words, *(["--tiny"] if tiny else [])), result="probe.json", figures=dict, limit_s=limit_s
    )


def _overhead(size: str, precision: str, steps: int, blocks: int, device: str) -> Part:
    return Part(
        name=f"overhead {size} {precision}",
        command=(
            "benchmarks/monitor.py", "--device", device, "--precision", precision, "--sizes", size, "--workers", "1",
            "--record-every", "1", "auto", "--warm-up", "64", "--steps", str(steps), "--blocks", str(blocks),
            "--out", "{out}/monitor.json",
        ),
        result="monitor.json",
        figures=_of_overhead,
        limit_s=180,
    )  # fmt: skip


def _of_overhead(report: Mapping[str, Any]) -> Figures:
    each, chosen = report["sizes"]
    names = ("overhead_ms", "overhead_pct", "overhead_pct_quartiles")
    return {
        **{name: each[name] for name in ("parameters", "step_ms", *names)},
        **{f"auto_{name}": chosen[name] for name in ("chosen_record_every", *names)},
    }


def _case_study(model: str, device: str, tiny: bool) -> Part:
    steps, onset, length = ("8", "4", "16") if tiny else ("30", "10", "256")
    return Part(
        name=f"case study {model}",
        command=(
            "run_case_study.py", "--model", model, "--device", device, "--faults", "LR_SPIKE", "NONE", "--steps", steps,
            "--fault-step", onset, "--length", length, "--batch", "4", "--jobs", "1", "--out", "{out}",
        ),
        result="summary.json",
        figures=_of_case_study,
        limit_s=180,
    )  # fmt: skip


def _of_case_study(summary: Mapping[str, Any]) -> Figures:
    described = summary["description"]
    names = ("parameters", "trainable_parameters", "dtype", "steps_per_s")
    return {**{name: described[name] for name in names}, "control_equals_twin": summary["control_equals_twin"]}


def _real_study(device: str, tiny: bool) -> Part:
    architectures = ("--architectures", "llama-3-8b") if tiny else ()
    return Part(
        name="real study, a slice",
        command=(
            "run_modern_experiments.py", "--backend", "torch", "--smoke", *architectures, "--faults", "LR_SPIKE",
            "--steps", "60" if tiny else "240", "--device", device, "--jobs", "1", "--out", "{out}",
        ),
        result="manifest.json",
        figures=_of_real_study,
        limit_s=120,
    )  # fmt: skip


def _of_real_study(manifest: Mapping[str, Any]) -> Figures:
    runs, seconds = manifest["runs"].values(), manifest["provenance"]["seconds"]
    steps = sum(run["records"] for run in runs)
    return {"runs": len(runs), "steps": steps, "steps_per_s": round(steps / seconds, 1)}
