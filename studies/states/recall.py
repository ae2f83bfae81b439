"""Train short runs that end in a known state, or in none, and print how many are recognised.

python -m studies.states.recall                  # 20 seeds of each: two minutes on one core
python -m studies.states.recall --seeds 2
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from rmetric.cli import Parser, real_training, script, whole_number
from rmetric.progress import progress_bar
from rmetric.states import states_of

COLUMNS = ["training", "its state", "runs", "recognised", "other states"]


def recall(seeds: int) -> pd.DataFrame:
    """One row a kind of training: how many end in its state, and in which others."""
    with real_training():
        from studies.states.trainings import TRAININGS, train  # torch, seconds to import

    rows = []
    with progress_bar(total=seeds * len(TRAININGS), unit="run") as bar:
        for title, (hook, expected) in TRAININGS.items():
            found: Counter[str] = Counter()
            for seed in range(seeds):
                found.update(state.name for state in states_of(train(hook, seed)))
                bar.update()
            others = ", ".join(f"{name} {count}" for name, count in sorted(found.items()) if name != expected)
            rows.append((title, expected or "none", seeds, found[expected] if expected else "", others or "none"))
    return pd.DataFrame(rows, columns=COLUMNS)


def parser() -> Parser:
    p = Parser("Train short runs that end in a known state, and print how many are recognised.")
    p.add_argument("--seeds", type=whole_number(1), default=20, metavar="N", help="runs of each kind")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    print(recall(parser().parse_args(argv).seeds).to_markdown(index=False))


if __name__ == "__main__":
    sys.exit(main())
