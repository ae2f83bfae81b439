"""Record the zoo of trainings live, as a user's monitor sees them; make zoo does it.

python -m studies.zoo.record --out logs_ZOO                           # every kind, three seeds, benign disturbances
python -m studies.zoo.record --out logs_ZOO_2 --zoo zoo_2             # the kinds of another published set
python -m studies.zoo.record --out logs_BUGS --bugs                   # bugs that people make, each against its twin
python -m studies.zoo.record --out logs_BUGS_2 --bugs bugs_2          # bugs that somebody else thought of
python -m studies.zoo.record --out logs_ZOO_TRY --kinds cnn_sgd --seeds 0 --steps 100
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rmetric.cli import Parser, output_folder, real_training, script, whole_number
from rmetric.faults.bugs import SETS_OF_BUGS
from studies.runner import run_study


def parser() -> Parser:
    """Command line of this module."""
    p = Parser("Record kinds of training through the monitor: healthy, disturbed, or with bugs.")
    p.add_argument("--out", type=Path, default=Path("logs_ZOO"), metavar="FOLDER", help="folder for the logs")
    what = p.add_mutually_exclusive_group()
    what.add_argument(
        "--bugs", nargs="?", const="bugs", choices=[*SETS_OF_BUGS],
        help="a set of bugs in place of benign disturbances (without a name: bugs)",
    )  # fmt: skip
    what.add_argument("--zoo", metavar="NAME", help="published set whose kinds are recorded (default: zoo)")
    p.add_argument("--kinds", nargs="+", metavar="NAME", help="kinds of training (default: of --zoo; bugs: a dozen)")
    p.add_argument("--seeds", nargs="+", type=whole_number(0), metavar="N", help="seeds (default: 0 1 2; bugs: 0)")
    p.add_argument(
        "--disturbed", type=whole_number(0, 3), metavar="N", help="disturbed forks of each twin (default: 2)"
    )
    p.add_argument(
        "--steps", type=whole_number(28), metavar="N", help="training steps of each run (default: 1400; bugs: 1000)"
    )
    p.add_jobs()
    existing = p.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="go on in --out, also with more kinds or seeds")
    existing.add_argument("--overwrite", action="store_true", help="replace the recording in --out")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, record, say what was recorded."""
    args = parser().parse_args(argv)
    with real_training():
        from studies.zoo.plan import ZooPlan  # torch, seconds to import
        from studies.zoo.run import ZOO

    settings = {name: getattr(args, name) for name in ("kinds", "zoo", "seeds", "disturbed", "steps")}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    settings = {name: value for name, value in given.items() if value is not None}
    plan = ZooPlan.with_bugs(args.bugs, **settings) if args.bugs else ZooPlan(**settings)
    result = run_study(
        plan, output_folder(args.out), backend=ZOO, jobs=args.jobs, resume=args.resume, overwrite=args.overwrite
    )
    print(result.summary)
    print(f"  {sum(item.records for item in result.finished):,} records, {result.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
