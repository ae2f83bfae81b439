"""Real training, broken on purpose: a healthy run, forked for each fault, a control and the twin. Who warned, and when?

    python run_case_study.py                                            # offline, under three minutes on two cores
    python run_case_study.py --steps 80 --faults LR_SPIKE NONE          # a tiny one: seconds
    python run_case_study.py --model tiny-moe --faults EXPERT_FAILURE ROUTER_IMBALANCE@high NONE
    python run_case_study.py --suite mechanism --smoke                  # what attention, routers, updates show
    python run_case_study.py --suite sdc --injections 12 --window 10    # flipped bits, and their repair

Needs torch and transformers: pip install -e '.[live]'. What it does and what comes out: docs/case_study.md,
docs/mechanism.md, docs/sdc.md. ``--suite NAME --help`` shows the options of a suite.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from rmetric.cli import Parser, script

SUITES = {"faults": "case_study", "mechanism": "mechanism", "sdc": "sdc"}
"""Suite → package below ``rmetric.reporting`` whose module ``suite`` has its options and does it."""


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Choose the suite, and leave all else to it."""
    choice = Parser("", add_help=False)
    choice.add_argument("--suite", choices=SUITES, default="faults")
    chosen, rest = choice.parse_known_args(argv)
    importlib.import_module(f"rmetric.reporting.{SUITES[chosen.suite]}.suite").main(rest)


if __name__ == "__main__":
    sys.exit(main())
