"""Machine and JSON output of the benchmarks of live training."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rmetric.cli import Parser, whole_number
from rmetric.files import write_atomically


def add_machine(parser: Parser) -> None:
    """``--device``, ``--threads`` and ``--out``."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default, help="where to train")
    parser.add_argument("--threads", type=whole_number(1), default=1, help="threads of torch on a CPU")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON to this file")


def on_this_machine(device: str, threads: int) -> dict[str, Any]:
    """Sets torch's threads; returns the first entries of a report."""
    torch.set_num_threads(threads)
    name = torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {threads} thread(s)"
    return {"machine": f"{platform.system()} {platform.machine()}, {name}", "torch": torch.__version__}


def wait_for(device: str | torch.device) -> None:
    """Until a GPU has done all that it was given."""
    if str(device).startswith("cuda"):
        torch.cuda.synchronize()


def quartiles(values: Sequence[float]) -> list[float]:
    """Lower quartile, median and upper quartile of values; a single one is all three."""
    return statistics.quantiles(values, n=4) if len(values) > 1 else [*values] * 3


def publish(report: Mapping[str, Any], out: Path | None) -> None:
    """Write to standard output, and to a file if one is given."""
    text = json.dumps(report, indent=1)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode() + b"\n")
