"""Do everything that needs a GPU, in at most ten minutes; one JSON and one table with the device's name.

    python -m studies.gpu.run                          # results/gpu/gpu.json and gpu.md; make gpu
    python -m studies.gpu.run --device cpu --tiny      # does every part work? about two minutes on two cores

A part that the machine cannot do is skipped, and the table says why: no GPU, no NVML, too little memory, no time left.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmetric.cli import Parser, output_folder, positive_number, real_training, script
from rmetric.errors import UserError
from rmetric.files import write_atomically, write_json
from rmetric.progress import progress_bar
from rmetric.reporting.table import Column, Table, to_markdown, to_screen
from studies.gpu.parts import Part, parts

ROOT = Path(__file__).resolve().parents[2]
BUDGET_S = 600.0
LEAST_S = 5.0
"""With less left, a part is not begun."""
TOO_LARGE = ("out of memory", "OutOfMemory", "does not fit", "needs a CUDA device", "has no BF16")
"""Words of a failure that is the machine's, not the program's."""
COLUMNS = (
    Column("part", "Part"),
    Column("status", "Status"),
    Column("seconds", "Seconds", 0),
    Column("found", "Found"),
)


def parser() -> Parser:
    p = Parser("Do everything that needs a GPU, in at most ten minutes.")
    p.add_argument("--device", default="cuda", help="torch's name of the device (default: cuda)")
    p.add_argument("--tiny", action="store_true", help="the smallest shapes: does every part work?")
    p.add_argument("--only", nargs="+", default=[], metavar="PART", help="parts whose name begins so (default: all)")
    p.add_argument("--seconds", type=positive_number, default=BUDGET_S, help="time for all parts (default: 600)")
    p.add_argument("--out", type=Path, default=Path("results/gpu"), help="folder for gpu.json and gpu.md")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    chosen = [part for part in parts(args.device, tiny=args.tiny) if part.name.startswith(tuple(args.only or [""]))]
    if not chosen:
        raise UserError(f"no part begins with {' or '.join(args.only)}; leave --only out to see their names")
    with real_training():
        lacking = why_not(args.device)
    folder = output_folder(args.out)
    ends = time.monotonic() + args.seconds
    done = {}
    for part in (bar := progress_bar(chosen, unit="part")):
        bar.set_description(part.name)
        done[part.name] = skipped(lacking) if lacking else outcome(part, folder, ends - time.monotonic())
    report = {"machine": machine(args.device), "tiny": args.tiny, "parts": done}
    write_json(folder / "gpu.json", report)
    write_atomically(folder / "gpu.md", to_markdown(table(report)).encode())
    print(to_screen(table(report)))
    failed = [name for name, part in done.items() if part["status"] == "failed"]
    if failed:
        raise UserError(f"failed: {', '.join(failed)}; what they said is in {folder / 'gpu.json'}")


def why_not(device: str) -> str:
    """Reason why nothing can run on a device; empty if something can."""
    import torch  # seconds to import

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        return f"no {device} here with torch {torch.__version__}: {str(error).splitlines()[0]}"
    return ""


def machine(device: str) -> dict[str, Any]:
    """Name of the device, and what its figures depend on."""
    import torch  # see above

    described: dict[str, Any] = {"device": device, "torch": torch.__version__, "python": platform.python_version()}
    if device.startswith("cuda") and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(device)
        memory_gib = round(properties.total_memory / 2**30, 1)
        return {**described, "device": properties.name, "memory_gib": memory_gib, "cuda": torch.version.cuda}
    return {**described, "processor": f"{platform.system()} {platform.machine()}"}


def skipped(reason: str) -> dict[str, Any]:
    """Outcome of a part that was not done."""
    return {"status": "skipped", "reason": reason}


def outcome(part: Part, folder: Path, left_s: float) -> dict[str, Any]:
    """Run a part in a process of its own, within its limit and the time left."""
    if left_s < LEAST_S:
        return skipped("no time left")
    out = folder / part.name.replace(" ", "_").replace("/", "_").replace(":", "_").replace(",", "")
    out.mkdir(parents=True, exist_ok=True)
    (out / part.result).unlink(missing_ok=True)
    for log in out.glob("run_*.jsonl"):
        log.unlink()
    began = time.monotonic()
    limit_s = min(part.limit_s, left_s)
    try:
        ended = subprocess.run(
            part.arguments(str(out)), cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return skipped(f"not done within {limit_s:.0f} s")
    seconds = round(time.monotonic() - began, 1)
    if ended.returncode:
        said = ended.stderr.strip() or ended.stdout.strip()
        last = said.splitlines()[-1] if said else f"status {ended.returncode}"
        return skipped(last) if any(words in said for words in TOO_LARGE) else {"status": "failed", "reason": said}
    found = part.figures(json.loads((out / part.result).read_bytes()))
    return skipped(found["skipped"]) if "skipped" in found else {"status": "done", "seconds": seconds, "found": found}


def table(report: dict[str, Any]) -> Table:
    rows = [
        {
            "part": name,
            "status": part["status"],
            "seconds": part.get("seconds"),
            "found": "; ".join(f"{name} {value}" for name, value in part["found"].items())
            if "found" in part
            else part["reason"].splitlines()[-1],
        }
        for name, part in report["parts"].items()
    ]
    of = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    return Table("gpu", "Everything that needs a GPU", f"On {of}.", COLUMNS, rows)


if __name__ == "__main__":
    sys.exit(main())
