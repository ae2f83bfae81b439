"""Draw the picture of docs/concepts.md: a failing run, its twin, its R, and what an alert counts for when.

python -m studies.concepts                         # writes docs/twin.png from data/real_runs.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmetric.cli import Parser, script
from rmetric.dataset.read import read_stored
from rmetric.dataset.stored import StoredRun
from rmetric.detectors import ROBUST, make_detector
from rmetric.files import write_atomically
from rmetric.reporting import style

FAULT, SEVERITY = "DATA_CORRUPTION", "high"
COUNTS_FOR = {"paper": ("a success", "a success"), "strict": ("a false alarm", "a success")}
"""Protocol → what an alert of a failing run counts for before the fault, and from there to the failure."""
COLORS = {"a success": style.GREEN, "a false alarm": style.VERMILION}


def failing_run(runs: Sequence[StoredRun]) -> StoredRun:
    """The first run of the fault that failed, of those that nothing was fitted to (even repetitions)."""
    wanted = {"fault": FAULT, "severity": SEVERITY, "outcome": "failed"}
    found = (run for run in runs if wanted.items() <= run.labels.items() and run.labels["repetition"] % 2 == 0)
    return next(found)


@style.styled
def draw(stored: StoredRun) -> Figure:
    """Three panels over the same steps: held-out losses, R, what an alert counts for."""
    figure = style.new_figure(4.2)
    losses, r, counts = axes = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2.4, 1.2))
    _draw_losses(losses, stored)
    _draw_r(r, stored)
    _draw_counts(counts, stored)
    for index, ax in enumerate(axes):
        ax.axvline(stored.labels["onset"], color=style.BLACK, linestyle=":", linewidth=0.9)
        ax.axvline(stored.labels["failure_step"], color=style.BLACK, linestyle="--", linewidth=0.9)
        style.letter(ax, index)
    style.steps_axis(counts)
    return figure


def _draw_losses(ax: Axes, stored: StoredRun) -> None:
    held_out = stored.run().first("HELD_OUT") or {}
    ax.plot(held_out["steps"], held_out["held_out"], color=style.BLUE, label="the run")
    ax.plot(held_out["steps"], held_out["twin"], color=style.ORANGE, label="its twin, without the fault")
    ax.set_ylim(1.9, 3.6)  # the first steps, where both are the same, are cut off
    ax.set_ylabel("held-out loss (nats)")
    ax.legend(loc="lower left")
    for name, words in (
        ("onset", "the fault begins "),
        ("failure_step", " the run fails: 5 % above\n its twin for good"),
    ):
        side = "right" if name == "onset" else "left"
        ax.text(stored.labels[name], 0.97, words, ha=side, va="top", transform=ax.get_xaxis_transform())


def _draw_r(ax: Axes, stored: StoredRun) -> None:
    detector, observations = make_detector(ROBUST), stored.run().observations
    scores = detector.score_run(observations)
    ax.plot(observations.step, scores, color=style.BLUE, linewidth=0.7)
    ax.axhline(detector.threshold, color=style.GREY, linestyle="-.", linewidth=0.9, label="threshold")
    alerts = scores > detector.threshold
    ax.plot(observations.step[alerts], scores[alerts], ".", color=style.VERMILION, label="alerts")
    ax.set_ylabel("robust R")
    ax.legend(loc="center right")


def _draw_counts(ax: Axes, stored: StoredRun) -> None:
    onset, failure = stored.labels["onset"], stored.labels["failure_step"]
    for row, parts in enumerate(COUNTS_FOR.values()):
        for (begin, end), meaning in zip(((0, onset), (onset, failure)), parts, strict=True):
            ax.barh(row, end - begin, left=begin, height=0.8, color=COLORS[meaning], alpha=0.45)
            ax.text((begin + end) / 2, row, meaning, ha="center", va="center")
    ax.set_yticks(range(len(COUNTS_FOR)), [f"an alert,\n{name}" for name in COUNTS_FOR])
    ax.invert_yaxis()


def parser() -> Parser:
    p = Parser("Draw the picture of docs/concepts.md.")
    p.add_argument("--data", type=Path, default=Path("data/real_runs.parquet"), metavar="FILE", help="data set")
    p.add_argument("--out", type=Path, default=Path("docs/twin.png"), metavar="FILE", help="picture to write")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    stored = failing_run(read_stored(args.data))
    write_atomically(args.out, style.rendered(draw(stored))["png"])
    print(f"{stored.name}: {args.out}")


if __name__ == "__main__":
    sys.exit(main())
