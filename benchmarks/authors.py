"""Rate of the authors' published simulator, a file that is not part of this repository; prints JSON.

    python benchmarks/authors.py simulator.py

The file is run as it is, in one process, but for what keeps every one of its runs from writing a record: a set is
written as a list. Its runs differ in their names alone.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rmetric.cli import Parser, script, whole_number
from rmetric.errors import UserError


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Measure the authors' simulator: records and steps a second, in one process.")
    p.add_argument("simulator", type=Path, metavar="FILE", help="simulator.py as its author published it")
    p.add_argument("--runs", type=whole_number(1), default=80, help="runs of it")
    return p


def loaded(path: Path) -> Any:
    """The module of a file, mended; :class:`UserError` if it is another one."""
    spec = importlib.util.spec_from_file_location("authors_simulator", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"{path} is no Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not (hasattr(module, "TrainingSimulator") and hasattr(module, "CONFIG")):
        raise UserError(f"{path} has no TrainingSimulator and CONFIG, which the author's simulator.py has")
    module.json = SimpleNamespace(dumps=partial(json.dumps, default=list))
    return module


def rate(path: Path, runs: int) -> dict[str, float | int]:
    """Records and steps that it makes in a second; seconds are those of all runs, without the start of Python."""
    simulator = loaded(path)
    steps = runs * int(simulator.CONFIG["total_training_steps"])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        began = time.perf_counter()
        for number in range(runs):
            config = copy.deepcopy(simulator.CONFIG) | {"experiment_id": f"run_{number}"}
            simulator.TrainingSimulator(config).run()
        seconds = time.perf_counter() - began
        records = sum(log.read_text().count('"METRICS"') for log in Path(folder).rglob("*.jsonl"))
    made = {"records": records, "steps": steps}
    return {**made, "seconds": round(seconds, 3), **{f"{name}_per_s": round(n / seconds) for name, n in made.items()}}


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    print(json.dumps(rate(args.simulator.resolve(), args.runs)))


if __name__ == "__main__":
    sys.exit(main())
