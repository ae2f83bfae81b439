"""Recompute signals, R and alerts from existing logs; write a plot, a CSV and a summary for each.

    python replay_and_analyze_logs.py my_run.jsonl
    python replay_and_analyze_logs.py logs_FULL_METRIC/sample --no-plot          # a tiny one: seconds
    python replay_and_analyze_logs.py trainer_state.json --preset paper-case-study
    python replay_and_analyze_logs.py metrics.csv --map training_loss=loss,step=iteration

Writes to results/replay/. Formats, column names and damaged logs: docs/replay.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rmetric.cli import Parser, script
from rmetric.commands.replay import DESCRIPTION, add_arguments, run


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Parse, replay each log, write, print the table over all."""
    parser = Parser(DESCRIPTION)
    add_arguments(parser)
    return run(parser.parse_intermixed_args(argv))


if __name__ == "__main__":
    sys.exit(main())
