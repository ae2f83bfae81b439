"""Damaged logs of every format: does any of them crash, hang or fill the memory?

    python benchmarks/mutate_logs.py --mutations 2000            # a minute
    python benchmarks/mutate_logs.py --mutations 100000          # about a quarter of an hour of one core
    python benchmarks/mutate_logs.py --logs FOLDER               # mutations of other logs

Each mutation is a small log of :mod:`benchmarks.sample_logs` with some bytes changed, cut, repeated, or exchanged for
those of a log of another format. It is read with its format found by content, with the notes and the damage; every
twentieth is replayed as well. Workers are processes with a limit on memory and on the time of a file. Prints one JSON
object: unexpected exceptions with the seed that makes them again, hangs, messages of more than one line, and the
largest resident set of a worker, MiB.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from rmetric.cli import script
from rmetric.errors import UserError
from rmetric.importers import runs_of
from rmetric.progress import progress_bar
from rmetric.replay import replay_log

BATCH = 500
"""Mutations of one worker."""
TIME_LIMIT_S = 20.0
"""Of the processor, which other programs do not change, for one file; all are below 100 kB."""
MEMORY_LIMIT_GIB = 4
REPLAYED = 20
MAX_MESSAGE = 2000
TOKENS = (
    b"nan", b"NaN", b"-inf", b"1e999", b"-1", b"0", b"99999999999999999999", b"1e-320", b"null", b"\0", b"\xff\xfe",
    b"{", b"}", b"[", b"]", b'"', b"'", b",", b"\n", b"\r", b"\r\n", b"\t", b"|", b"/", b"=", b":", b"step", b"loss",
    b"epoch 1", b"\x1b[31m", b"{'loss': ", b'{"step": ', b"val ", b"," * 40, b"[" * 200, b"9" * 400,
)  # fmt: skip


class HangError(Exception):
    """A file took longer than :data:`TIME_LIMIT_S`."""


def seeds(folder: Path) -> list[tuple[str, bytes]]:
    """Name and content of the files in a folder and below."""
    return [(path.name, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()]


def write_samples(folder: Path) -> None:
    """One log of each layout."""
    from sample_logs import SAMPLES  # the scripts of this folder import each other by name

    for sample in SAMPLES:
        path = folder / sample.name / sample.file
        path.parent.mkdir()
        sample.write(path)


def mutated(content: bytes, others: Sequence[tuple[str, bytes]], chance: random.Random) -> bytes:
    """Content with one to eight changes."""
    made = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        at = chance.randrange(len(made) + 1)
        length = min(chance.choice((1, 2, 8, 64, 1024)), len(made) - at)
        kind = chance.randrange(7)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del made[at : at + length]
        elif kind == 2:
            made[at:at] = chance.choice(TOKENS)
        elif kind == 3:
            made[at : at + length] = chance.choice(TOKENS)
        elif kind == 4:
            made[at:at] = made[at : at + length] * chance.choice((1, 2, 10))
        elif kind == 5:
            other = chance.choice(others)[1]
            start = chance.randrange(len(other) + 1)
            made[at:at] = other[start : start + length]
        else:
            del made[at if chance.random() < 0.5 else len(made) :]
    return bytes(made)


def try_one(path: Path, number: int) -> str:
    """What became of a log: ``read``, ``refused``, or an error that must not be."""
    signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT_S)
    try:
        found = list(runs_of(path))
        if number % REPLAYED == 0 and len(found) == 1:
            replay_log(path, on_damage=lambda line, message: None)
    except UserError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < MAX_MESSAGE else "a message of several lines"
    except HangError:
        return "hang"
    except MemoryError:
        return "out of memory"
    except Exception as error:  # noqa: BLE001 - these are what is looked for
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where is not None else "?"
        return f"traceback: {type(error).__name__} in {line}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read"


def _hang(number: int, frame: FrameType | None) -> None:
    raise HangError


def work(folder: Path, first: int, last: int) -> dict[str, Any]:
    """What became of the mutations ``first`` to ``last``; the number of one is its seed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_GIB << 30, MEMORY_LIMIT_GIB << 30))
    signal.signal(signal.SIGPROF, _hang)
    logs = seeds(folder)
    count: Counter[str] = Counter()
    examples: dict[str, int] = {}
    slowest_s = 0.0
    with tempfile.TemporaryDirectory(prefix="rmetric-") as place:
        for number in range(first, last):
            chance = random.Random(number)
            name, content = logs[number % len(logs)]
            path = Path(place) / name
            path.write_bytes(mutated(content, logs, chance))
            begun = time.perf_counter()
            result = try_one(path, number)
            slowest_s = max(slowest_s, time.perf_counter() - begun)
            count[result] += 1
            examples.setdefault(result, number)
    peak_mib = _peak_mib()
    return {"count": count, "examples": examples, "peak_mib": peak_mib, "slowest_s": slowest_s}


def _peak_mib() -> float:
    """Peak memory of this process alone: what ``getrusage`` gives includes that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def in_a_process(folder: Path, first: int, last: int) -> dict[str, Any]:
    """The same in a process of its own; one that died or hung is told as such."""
    command = [sys.executable, __file__, "--worker", str(folder), str(first), str(last)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S * (last - first))
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return {
            "count": {"a worker died or hung": 1},
            "examples": {"a worker died or hung": first},
            "peak_mib": 0,
            "slowest_s": 0,
        }


def campaign(folder: Path, mutations: int, first: int = 0) -> dict[str, Any]:
    """All mutations, a batch after the other."""
    total: Counter[str] = Counter()
    examples: dict[str, int] = {}
    peak_mib = slowest_s = 0.0
    begun = time.perf_counter()
    for start in progress_bar(range(first, first + mutations, BATCH), unit=f"{BATCH} logs"):
        found = in_a_process(folder, start, min(start + BATCH, first + mutations))
        total.update(found["count"])
        examples = found["examples"] | examples
        peak_mib, slowest_s = max(peak_mib, found["peak_mib"]), max(slowest_s, found["slowest_s"])
    expected = ("read", "refused")
    bad = {name: number for name, number in total.items() if name not in expected}
    return {
        "mutations": sum(total.values()),
        "files": len(seeds(folder)),
        **{name: total[name] for name in expected},
        "tracebacks": sum(number for name, number in bad.items() if name.startswith("traceback")),
        "hangs": bad.pop("hang", 0),
        "other": sum(number for name, number in bad.items() if not name.startswith("traceback")),
        "examples": {name: seed for name, seed in examples.items() if name not in expected},
        "peak_memory_mib": round(peak_mib),
        "slowest_s": round(slowest_s, 2),
        "seconds": round(time.perf_counter() - begun),
    }


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Parse, mutate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=2000, metavar="N", help="damaged logs (default: 2000)")
    first = "number of the first, which is its seed (default: 0)"
    parser.add_argument("--first", type=int, default=0, metavar="N", help=first)
    logs = "folder of logs to mutate (default: samples of every layout)"
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help=logs)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker:
        folder, first, last = args.worker
        print(json.dumps(work(Path(folder), int(first), int(last))))
        return 0
    with tempfile.TemporaryDirectory(prefix="rmetric-") as place:
        folder = args.logs or Path(place)
        if args.logs is None:
            write_samples(folder)
        result = campaign(folder, args.mutations, args.first)
    print(json.dumps(result, indent=1))
    return 1 if result["tracebacks"] or result["hangs"] or result["other"] else 0


if __name__ == "__main__":
    sys.exit(main())
