"""Table 16: the robust R-Metric, fitted without a kind of fault, without an architecture, or to another study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmetric.evaluation.evaluator import CALIBRATED, Evaluator
from rmetric.evaluation.protocols import WARNING
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import REAL, SIMULATED
from rmetric.reporting.table import Cell, Column
from studies import captions
from studies.catalogue import Inputs, Part, each_study, simulated_and_real, table
from studies.robust.fit import NOTHING_TO_FIT, Fit
from studies.robust.transfer import (
    Transfer,
    fault_kinds,
    study_statistics,
    to_study,
    together,
    without_architectures,
    without_fault_kinds,
)

SCORES = {"recall": "Recall", "f1": "F1"}
EACH = "all, each by its own"
METHOD = (
    "RMetric.robust() under the strict protocol at one false alarm per 10,000 healthy steps: tails, weights and "
    "threshold are fitted on the fit half (odd repetition or seed) without what is held out, and scored on the score "
    'half. "Known": fitted to the whole fit half, nothing held out, and scored on the same runs; difference: held out '
    "less known, paired bootstrap. Fits are taken as given, the intervals are of the score half alone. Statistics and "
    "their constants were chosen with everything in view. Can be warned: failed runs with a record between onset and "
    "failure."
)
COLUMNS = (
    Column("failed", "Failed"),
    Column("warnable", "Can be warned"),
    Column("weights", "λ / σ² / ΔL", protocol="strict"),
    Column("threshold", "Threshold", 3, "strict"),
    *(
        column
        for key, title in SCORES.items()
        for column in (
            Column(key, f"{title}, held out", 3, "strict"),
            Column(f"{key}_home", f"{title}, known", 3, "strict"),
            Column(f"{key}_less", f"{title}, difference", 3, "strict"),
        )
    ),
    Column("false_alarms", "FP (episodes), held out", protocol="strict"),
    Column("false_alarms_home", "FP (episodes), known", protocol="strict"),
)


def _calibrated(inputs: Inputs) -> Mapping[str, Evaluator]:
    """Studies for which the robust R-Metric was asked for."""
    return {study: ev for study, ev in each_study(inputs).items() if CALIBRATED in ev.detectors}


def _calibrated_pair(inputs: Inputs) -> Mapping[str, tuple[Evaluator, Evaluator]]:
    pairs = simulated_and_real(inputs)
    return pairs if len(_calibrated(inputs)) == len(inputs.studies) else {}


@table(
    "table_16_robust_transfer_faults",
    "Transfer of the robust R-Metric to kinds of fault that it was not fitted to",
    f"{METHOD} F1 is that of the kind's runs and the control runs, whose healthy steps have the false alarms. "
    "{score_half} {interval}",
    [Column("held_out", "Fault held out"), *COLUMNS],
    needs=_calibrated,
    about=("held_out",),
)
def faults(ev: Evaluator) -> Part:
    """One row a kind of fault that was held out, and one for all of them."""
    found = without_fault_kinds(ev)
    rows = [{"held_out": item.held_out, **_cells(ev, item)} for item in found]
    of_one = [ev.runs_where(fault=kind) for kind in fault_kinds(ev)]
    rows += _together(ev, together(EACH, found, of_one))
    # The control runs, where false alarms are counted, belong to no kind.
    own = Score.undefined("the fit without each kind has false alarms of its own")
    if len(rows) > len(found):
        rows[-1] |= dict.fromkeys(("f1", "f1_home", "f1_less", "false_alarms", "false_alarms_home"), own)
    return Part(rows, captions.facts(ev), _known(ev))


@table(
    "table_16b_robust_transfer_architectures",
    "Transfer of the robust R-Metric to architectures that it was not fitted to",
    f"{METHOD} {{score_half}} {{interval}}",
    [Column("held_out", "Architecture held out"), *COLUMNS],
    needs=_calibrated,
)
def architectures(ev: Evaluator) -> Part:
    """One row an architecture that was held out, and one for all of them."""
    found = without_architectures(ev)
    rows = [{"held_out": item.held_out, **_cells(ev, item)} for item in found]
    rows += _together(ev, together(EACH, found, [ev.runs_where(model_type=item.held_out) for item in found]))
    return Part(rows, captions.facts(ev), _known(ev))


@table(
    "table_16c_robust_transfer_studies",
    "Transfer of the robust R-Metric between simulated and real runs",
    f'{METHOD} Here "known" is fitted to the fit half of the study that is scored. Tails and weights: the threshold '
    "alone is set anew, on that fit half. {interval}",
    [Column("held_out", "Fitted on → scored on"), Column("moved", "What is moved"), *COLUMNS],
    needs=_calibrated_pair,
)
def between(pair: tuple[Evaluator, Evaluator]) -> Part:
    """Transfer from the simulated study to the real one and back: all of the fit, then with a threshold set anew."""
    simulated, real = pair
    rows: list[dict[str, Cell]] = []
    notes: list[str] = []
    for source_name, source, target_name, target in (
        (SIMULATED, simulated, REAL, real),
        (REAL, real, SIMULATED, simulated),
    ):
        as_it_is, anew = to_study(source, target, f"{source_name} → {target_name}")
        for transfer, what in ((as_it_is, "all of it"), (anew, "tails and weights")):
            rows.append({"held_out": transfer.held_out, "moved": what, **_cells(target, transfer)})
        notes += _causes(target, as_it_is)
    return Part(rows, {"interval": captions.interval(real)}, notes)


def _cells(ev: Evaluator, item: Transfer) -> dict[str, Cell]:
    chosen = item.scored & ev.timeline.counted("strict")
    warnable = {*ev.timeline.run[ev.timeline.zone == WARNING].tolist()}
    row: dict[str, Cell] = {
        "failed": int((chosen & ev.timeline.failed).sum()),
        "warnable": sum(index in warnable for index in chosen.nonzero()[0].tolist()),
        **_settings(item.fitted),
    }
    missing = Score.undefined(NOTHING_TO_FIT)
    for ending, counts in (("", item.counts), ("_home", item.home)):
        summary = {} if counts is None else ev.summary_of(counts, item.scored)
        row |= {f"{key}{ending}": summary.get(key, missing) for key in SCORES}
        row[f"false_alarms{ending}"] = missing if counts is None else int(counts.fp[chosen].sum())
    for key in SCORES:
        both = item.counts is not None and item.home is not None
        row[f"{key}_less"] = ev.compare(key, item.counts, item.home, item.scored) if both else missing  # type: ignore[arg-type]
    return row


def _settings(fitted: Fit | None) -> dict[str, Cell]:
    if fitted is None:
        return dict.fromkeys(("weights", "threshold"), Score.undefined(NOTHING_TO_FIT))
    return {"weights": _weights(fitted), "threshold": Score(fitted.threshold)}


def _weights(fitted: Fit) -> str:
    return " / ".join(f"{weight:.2f}" for weight in fitted.weights)


def _together(ev: Evaluator, item: Transfer | None) -> Sequence[dict[str, Cell]]:
    """A last row of all; its settings differ from run to run."""
    if item is None:
        return []
    return [{**_cells(ev, item), "held_out": item.held_out, "weights": "–", "threshold": None}]


def _causes(ev: Evaluator, item: Transfer) -> list[str]:
    """The statistics that raised the false alarms of a fit that was moved as it is."""
    if item.fitted is None:
        return []
    causes = study_statistics(ev).causes(item.fitted, item.scored).most_common()
    named = ", ".join(f"{name} {count}" for name, count in causes) or "none began"
    return [f"{item.held_out}, all of it: strongest statistic where false alarms begin: {named}."]


def _known(ev: Evaluator) -> list[str]:
    home = study_statistics(ev).home
    if home is None:
        return []
    return [f"Nothing held out: weights (λ / σ² / ΔL) {_weights(home)}, threshold {home.threshold:.3f}."]
