"""Registry of the figures: number, data that it needs, function that draws it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.progress import progress_bar
from rmetric.reporting.style import Drawing
from studies.calibration import figure as simulated_vs_real
from studies.calibration.comparison import compared
from studies.catalogue import Inputs, real_studies, simulated_and_real
from studies.cluster import figure as overhead_ratio
from studies.paper.figures import ablation, concept, curves, failing_run, lead_times, result
from studies.risk.figures import draw_confusion, draw_reliability
from studies.risk.tables import judge

ANY, REAL, BOTH = "a study", "one real study", "one simulated and one real study, no other"


@dataclass(frozen=True)
class Request:
    """A request for figures: the studies, and the run of Figure 2."""

    inputs: Inputs
    run: str = ""
    """Name of a log; empty: the typical failing run."""

    @property
    def footnote(self) -> str:
        """Line below a figure of the committed sample; empty for whole studies."""
        return " ".join(filter(None, (sample_footnote(ev) for ev in self.inputs.studies.values())))

    @property
    def real(self) -> Evaluator:
        """The real study, on whose kind of runs the risk model is fitted."""
        (found,) = real_studies(self.inputs).values()
        return found

    @property
    def pair(self) -> tuple[Evaluator, Evaluator]:
        """The simulated and the real study."""
        (found,) = simulated_and_real(self.inputs).values()
        return found

    def has(self, needs: str) -> bool:
        """Return whether the studies that a figure needs are there; else :attr:`real` or :attr:`pair` raises."""
        known = {ANY: 1, REAL: len(real_studies(self.inputs)), BOTH: len(simulated_and_real(self.inputs))}
        return known[needs] == 1


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn."""

    number: str
    draw: Callable[[Request], Drawing | list[Drawing]]
    needs: str = ANY


FIGURES = (
    Figure("0", lambda request: result.draw(request.inputs.studies, request.footnote)),
    Figure("1", lambda request: concept.draw()),
    Figure("2", lambda request: failing_run.draw(request.inputs.studies, request.run, request.footnote)),
    Figure("3", lambda request: curves.draw(request.inputs.studies, request.footnote)),
    Figure("4", lambda request: lead_times.draw(request.inputs.studies, request.footnote)),
    Figure("5", lambda request: ablation.draw(request.inputs.studies, request.footnote)),
    Figure("6", lambda request: draw_reliability(judge(request.real), sample_footnote(request.real)), REAL),
    Figure("7", lambda request: draw_confusion(judge(request.real), sample_footnote(request.real)), REAL),
    Figure("8", lambda request: simulated_vs_real.draw(compared(*request.pair)), BOTH),
    Figure("9", lambda request: overhead_ratio.draw(request.real, request.inputs.live), REAL),
)
"""In the order of their numbers. One study, or several side by side: every figure takes either."""


def draw_figures(inputs: Inputs, numbers: Sequence[str] = (), run: str = "") -> list[Drawing]:
    """Draw figures by number, in order.

    Without numbers all that these studies have; ``run`` names the run of Figure 2, else it is the typical failing one.

    Parameters
    ----------
    inputs
        The evaluated studies (one alone has no name), and what live runs gave.

    Raises
    ------
    UserError
        If no run has that name, or a figure needs a study that is not there.
    """
    request = Request(inputs, run)
    chosen = [figure for figure in FIGURES if figure.number in numbers or (not numbers and request.has(figure.needs))]
    for figure in chosen:
        if not request.has(figure.needs):
            raise UserError(f"Figure {figure.number} needs {figure.needs}; {_to_change(inputs)}")
    studies = [*inputs.studies.values()]
    if run and "2" in [figure.number for figure in chosen] and not any(failing_run.has(ev, run) for ev in studies):
        failing_run.choose(studies[0], run)  # a wrong name is told before any work is done
    drawings: list[Drawing] = []
    with progress_bar(chosen, desc="drawing", unit="figure", delay=1.0) as bar:
        for figure in bar:
            drawn = figure.draw(request)
            drawings += drawn if isinstance(drawn, list) else [drawn]
    return drawings


def _to_change(inputs: Inputs) -> str:
    """How to get the studies that a figure of real runs needs."""
    studies, real = len(inputs.studies), len(real_studies(inputs))
    return f"--logs gives {studies}, {real} of them real" if real else "add data/real_runs.parquet to --logs"


def sample_footnote(ev: Evaluator) -> str:
    """Footnote of a figure of the committed sample; empty for a study."""
    if not ev.study.note:
        return ""
    return f"Drawn from the {len(ev.study.runs)} committed sample logs, not from the full study."
