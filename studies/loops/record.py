"""Record training loops that others wrote, as their monitors see them.

python -m studies.loops.record --out logs_LOOPS                        # every program, two seeds
python -m studies.loops.record --out logs_LOOPS --resume --seeds 0 1 2
python -m studies.loops.record --out logs_LOOPS_TRY --only kfold_logreg --seeds 0 --steps 50
python -m studies.loops.record --out logs_AGENTS --agents --seeds 0 1 2  # agents that report their rewards
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rmetric.cli import Parser, output_folder, real_training, script, whole_number
from rmetric.errors import UserError
from rmetric.progress import progress_bar
from rmetric.records import TERMINAL_EVENTS

PROGRAMS = Path(__file__).parent / "programs"
AGENTS = Path(__file__).parent / "agents"
ASKED = "asked_steps"
"""Setting in a log: what its program was asked for. It is no horizon: each of five folds makes a fifth of the steps."""


def names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("[!_]*.py"))


def parser() -> Parser:
    p = Parser("Record training loops that others wrote, each with the monitor's two lines in it.")
    p.add_argument("--out", type=Path, default=Path("logs_LOOPS"), metavar="FOLDER", help="folder for the logs")
    p.add_argument(
        "--agents", dest="programs", action="store_const", const=AGENTS, default=PROGRAMS,
        help="agents that report their rewards, in place of the loops that announce nothing",
    )  # fmt: skip
    p.add_argument("--only", nargs="+", metavar="NAME", help="programs by name (default: all that there are)")
    p.add_argument(
        "--seeds", nargs="+", type=whole_number(0), default=[0, 1], metavar="N", help="seeds of each program"
    )
    p.add_argument("--steps", type=whole_number(8), default=1500, metavar="N", help="updates of a run")
    p.add_jobs()
    p.add_argument("--resume", action="store_true", help="go on in --out: finished logs are kept, others made again")
    return p


def is_finished(log: Path) -> bool:
    """Whether a log is there and its last line says how the training ended, well or not."""
    last = log.read_bytes().rstrip().rpartition(b"\n")[2] if log.exists() else b""
    return last.startswith(tuple(b'{"event":"%b"' % event.encode() for event in TERMINAL_EVENTS))


def refuse_other_steps(log: Path, steps: int) -> None:
    """:class:`UserError` for a finished log of another ``--steps``: a folder would hold two recordings as one."""
    with open(log, "rb") as file:
        asked = json.loads(file.readline())["config"].get(ASKED)
    if asked != steps:
        raise UserError(f"{log} is of --steps {asked or 'unknown'}, not {steps}; choose another --out, or move it away")


def record(programs: Path, name: str, seed: int, steps: int, folder: Path) -> None:
    """Run a program in this process. Its logs appear in the folder when it has ended, the first monitor's last."""
    from studies.processes import training_device  # torch, see below

    training_device("cpu")
    log = f"{name}_seed{seed}.jsonl"
    unfinished = folder / f".{name}_seed{seed}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    program = import_module(f"studies.loops.{programs.name}.{name}")
    program.train(steps, seed, log=unfinished / log, config={"model_type": name, ASKED: steps}, announce=False)
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == log):
        path.replace(folder / path.name)
    unfinished.rmdir()


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, record what is not there yet, say what was recorded."""
    args = parser().parse_args(argv)
    names = names_in(args.programs)
    unknown = [name for name in args.only or () if name not in names]
    if unknown:
        raise UserError(f"there is no program {unknown[0]!r}; choose among {', '.join(names)}")
    with real_training():
        from studies.processes import in_fresh_processes  # torch, seconds to import
    folder = output_folder(args.out)
    if not args.resume and any(folder.glob("*.jsonl")):
        raise UserError(f"{folder} already holds logs; --resume goes on with them, or choose another --out")
    runs = [(name, seed) for seed in dict.fromkeys(args.seeds) for name in dict.fromkeys(args.only or names)]
    logs = {(name, seed): folder / f"{name}_seed{seed}.jsonl" for name, seed in runs}
    finished = {run for run, log in logs.items() if is_finished(log)}
    for run in finished:
        refuse_other_steps(logs[run], args.steps)
    todo = [(args.programs, *run, args.steps, folder) for run in runs if run not in finished]
    found = len(finished)
    with progress_bar(total=len(runs), initial=found, unit="run", desc="training") as bar:
        for _ in in_fresh_processes(record, todo, args.jobs) if todo else ():
            bar.update()
    print(f"{len(runs)} runs ({len(todo)} made now, {found} found finished) in {folder}")


if __name__ == "__main__":
    sys.exit(main())
