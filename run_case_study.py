"""Train a model, inject a fault into each copy of the run, and score which detector warned in time.

    python run_case_study.py                                            # 600 steps, six faults: under three minutes
    python run_case_study.py --steps 80 --faults LR_SPIKE NONE          # a tiny one: seconds
    python run_case_study.py --model tiny-moe --faults EXPERT_FAILURE ROUTER_IMBALANCE@high NONE
    python run_case_study.py --suite mechanism --smoke                  # attention, routers and updates under faults
    python run_case_study.py --suite sdc --injections 12 --window 10    # bit flips, and their repair

Writes logs, tables and a dashboard to results/case_study/. Needs torch and transformers, no network:
pip install -e '.[live]'. ``--suite NAME --help`` shows the options of a suite, whose documents are
docs/case_study.md, docs/mechanism.md and docs/sdc.md.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from rmetric.cli import Parser, script

SUITES = {"faults": "case_study", "mechanism": "mechanism", "sdc": "sdc"}
"""Suite → package below ``studies`` whose module ``cli`` has its options and runs it."""


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Choose the suite and run it."""
    choice = Parser("", add_help=False)
    choice.add_argument("--suite", choices=SUITES, default="faults", help="which study; each has options of its own")
    chosen, rest = choice.parse_known_args(argv)
    importlib.import_module(f"studies.{SUITES[chosen.suite]}.cli").main(rest)


if __name__ == "__main__":
    sys.exit(main())
