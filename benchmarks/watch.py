"""What a watch costs while nothing happens: processor time an hour, for a folder of finished logs.

python benchmarks/watch.py                       # a minute
python benchmarks/watch.py --logs 3 --seconds 5  # a tiny one
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, positive_number, psutil_only, script, whole_number

with psutil_only():
    import psutil

SETTLED_S = 15.0
"""Until then the logs have been read and the interval has grown."""


def processor_s(process: psutil.Process) -> float:
    """Processor time of a process so far, seconds.

    Linux counts the nanoseconds of each thread, and rounds those of a process to ticks of 10 ms: an idle watch takes
    less than one a minute.
    """
    if threads := [*Path(f"/proc/{process.pid}/task").glob("*/schedstat")]:
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    used = process.cpu_times()
    return used.user + used.system


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Start the command, let it settle, measure, print JSON."""
    p = Parser(__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("--logs", type=whole_number(1), default=20, metavar="N", help="logs in the folder")
    p.add_argument("--seconds", type=positive_number, default=60.0, metavar="S", help="time that is measured")
    args = p.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.logs):
            lines = [f'{{"step": {step}, "loss": {2.0 + 0.9**step}}}' for step in range(200)]
            (Path(folder) / f"run{number}.jsonl").write_text("\n".join(lines) + "\n")
        watch = subprocess.Popen([sys.executable, "-m", "rmetric", "watch", folder], stdout=subprocess.DEVNULL)
        try:
            time.sleep(SETTLED_S)
            process = psutil.Process(watch.pid)
            before, begun = processor_s(process), time.monotonic()
            time.sleep(args.seconds)
            used, hours = processor_s(process) - before, (time.monotonic() - begun) / 3600
            memory_mib = process.memory_info().rss / 2**20
        finally:
            watch.terminate()
            watch.wait()
    print(
        json.dumps({"logs": args.logs, "cpu_s_per_idle_hour": round(used / hours, 2), "memory_mib": round(memory_mib)})
    )


if __name__ == "__main__":
    sys.exit(main())
