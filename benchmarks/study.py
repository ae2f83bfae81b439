"""Time, memory and disk that the study takes; prints JSON.

    python benchmarks/study.py                 # the 720 runs, a study ten times as large, and the writer alone
    python benchmarks/study.py --quick         # 36 and 360 runs
    python benchmarks/study.py --authors FILE  # the same, in turn with the author's simulator.py
    python benchmarks/study.py --scores        # the detectors on real runs: whole runs beside record by record

Targets on two cores: 720 runs in 10 s, 1 GiB and 160 MB at most; 40 times the authors' records a second; time linear up
to 7,200 runs at constant memory. The authors' rate stands beside ours, for records and for steps: they write one for
every 100 steps, this study for every 10, and each run here has a fault-free twin. Theirs is that of one process, there
is no other. Without ``--authors`` it is one that was measured elsewhere, and the ratio says how fast this machine is,
too. Seconds on the clock grow with whatever else the machine does; seconds of processor time hardly do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import process_tree

from rmetric.cli import Parser, script

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "run_modern_experiments.py"
AUTHORS_PER_S = {"records": 5_000, "steps": 500_000}
"""The authors' published simulator, mended, on one core of another machine: 5,000 steps with 50 records in 9.9 ms."""
STREAMED = ("r_metric_robust", "robust_z", "numerics", "half_space_trees")


def parser() -> Parser:
    """Command line of this script."""
    p = Parser("Measure the study: seconds, peak memory of all its processes, bytes of logs.")
    p.add_jobs()
    p.add_argument("--quick", action="store_true", help="36 and 360 runs instead of 720 and 7,200")
    p.add_argument("--authors", type=Path, metavar="FILE", help="the author's simulator.py, to be measured in turn")
    p.add_argument("--scores", action="store_true", help="measure scoring instead, on data/real_runs.parquet")
    return p


def authors_rate(simulator: Path | None) -> dict[str, int]:
    """Records and steps a second of the author's simulator, now; where there is none, as measured elsewhere."""
    if simulator is None:
        return AUTHORS_PER_S
    command = [sys.executable, str(Path(__file__).with_name("authors.py")), str(simulator)]
    ran = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return {name: ran[f"{name}_per_s"] for name in AUTHORS_PER_S}


def study(jobs: int, options: Sequence[str], repeats: int, authors: Path | None) -> dict[str, Any]:
    """Run one study several times in a temporary folder, each time beside the author's simulator; medians.

    ``seconds`` is from the study's begin to its end, its worker processes' start included; ``shell_seconds`` adds the
    start of the interpreter. Ratios are those of two that ran one after the other, with the smallest and the largest.
    """
    used, inside, theirs = [], [], []
    with tempfile.TemporaryDirectory() as root:  # removed at the end: ext4 without a journal is slow after removals
        for repeat in range(repeats):
            theirs.append(authors_rate(authors))
            folder = Path(root) / str(repeat)
            command = [sys.executable, str(SCRIPT), "--out", str(folder), "--jobs", str(jobs), *options]
            used.append(process_tree.run(command, stdout=subprocess.DEVNULL))
            manifest = json.loads((folder / "manifest.json").read_bytes())
            inside.append(manifest["provenance"]["seconds"])
    runs = list(manifest["runs"].values())
    made = {
        "records": sum(run["records"] for run in runs),
        "steps": len(runs) * manifest["study"]["plan"]["steps"],
    }
    return {
        "runs": len(runs),
        "records": made["records"],
        "repeats": repeats,
        "seconds": round(statistics.median(inside), 2),
        "shell_seconds": round(statistics.median(run.seconds for run in used), 2),
        "processor_seconds": round(statistics.median(run.processor_s for run in used), 2),
        **{f"{name}_per_s": round(number / statistics.median(inside)) for name, number in made.items()},
        **{f"authors_{name}_per_s": round(statistics.median([rate[name] for rate in theirs])) for name in made},
        **{
            f"{name}_ratio_to_authors": _spread(
                [number / seconds / rate[name] for seconds, rate in zip(inside, theirs, strict=True)]
            )
            for name, number in made.items()
        },
        "peak_memory_mib": round(max(run.peak_mib for run in used)),
        "logs_mb": round(sum(run["bytes"] for run in runs) / 1e6, 1),
    }


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    found = {"median": statistics.median(ratios), "smallest": min(ratios), "largest": max(ratios)}
    return {name: round(ratio, 1) for name, ratio in found.items()}


def scores(detectors: Sequence[str] = STREAMED, runs: int = 20) -> dict[str, dict[str, list[float]]]:
    """Processor time of detectors, µs a record: lower quartile, median and upper quartile over runs of the real study.

    Each run is scored as a whole and record by record right after, so that other work slows down both alike.
    """
    from rmetric.dataset.read import read_runs
    from rmetric.detectors.base import StreamingDetector, make_detector

    known = read_runs(ROOT / "data" / "real_runs.parquet")
    chosen = [run.observations for run in known[:: max(1, len(known) // runs)]]
    found = {}
    for name in detectors:
        detector = make_detector(name)
        assert isinstance(detector, StreamingDetector)
        detector.score_run(chosen[0])  # compiles
        times = []
        for observations in chosen:
            started = time.process_time()
            detector.score_run(observations)
            between = time.process_time()
            streamed = detector.fresh()
            for observation in observations:
                streamed.update(observation)
            times.append([1e6 * (between - started), 1e6 * (time.process_time() - between)])
            times[-1] = [microseconds / len(observations) for microseconds in times[-1]]
        columns = {
            "whole_run": [whole for whole, _ in times],
            "streamed": [single for _, single in times],
            "ratio": [single / whole for whole, single in times],
        }
        found[name] = {
            key: [round(value, 2) for value in statistics.quantiles(row, n=4)] for key, row in columns.items()
        }
    return found


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    if args.scores:
        print(json.dumps({"us_per_record_quartiles": scores()}, indent=1))
        return
    small_options = ["--smoke"] if args.quick else []
    large_options = ["--repetitions", "4"] if args.quick else ["--repetitions", "80"]
    small = study(args.jobs, small_options, 5, args.authors)
    large = study(args.jobs, large_options, 1, args.authors)
    growth = {
        "runs": round(large["runs"] / small["runs"], 2),
        "records": round(large["records"] / small["records"], 2),
        "seconds": round(large["seconds"] / small["seconds"], 2),
        "peak_memory": round(large["peak_memory_mib"] / small["peak_memory_mib"], 2),
    }
    print(json.dumps({"jobs": args.jobs, "study": small, "ten_times": large, "growth": growth}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
