"""Fit the risk model to the fit half of a study: hazards, healing, families.

python -m studies.risk.fit --from logs_REAL --out rmetric/risk/model.json
python -m studies.risk.fit --from data/real_runs.parquet --out mine.json
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rmetric
from rmetric.cli import Parser, script, whole_number
from rmetric.detectors import Detector
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import UNDECIDED_STEPS
from rmetric.evaluation.split import digest, half_of
from rmetric.evaluation.studies import Study, load_study
from rmetric.risk.model import FAMILIES, RiskModel, steps_a_record
from rmetric.risk.parameters import Calibrated, Choice, RiskParameters, sigmoid, softmax
from studies.risk.recipes import (
    LinearRecipe,
    Recipe,
    TreesRecipe,
    best,
    binary_loss,
    choice_loss,
    out_of_fold,
    platt,
    temperature,
)
from studies.risk.records import (
    AFTER,
    HEALING_RATE,
    Records,
    alert_records,
    alert_steps,
    all_records,
    default_detector,
    feature_tables,
)

Floats = NDArray[np.float64]
HORIZONS = (10, 50, 100, 200)
"""Steps."""
THIN = 8
"""Thinning: of the records that lead to no failure within the longest horizon, and that hardly differ from their
neighbours, each eighth is taken, and counts eight times."""
NAMED_PRECISION = 0.9
"""A family is named from the probability on at which nine in ten of those named are right."""
BARS = tuple(step / 20 for step in range(20))

# Few, of different kinds; cross-validation over seeds takes its pick. Trees see what only matters together.
HAZARD_RECIPES: tuple[Recipe, ...] = (LinearRecipe(0.01), TreesRecipe(30, 8))
ALERT_RECIPES: tuple[Recipe, ...] = (LinearRecipe(0.003), LinearRecipe(0.03), LinearRecipe(0.3), TreesRecipe(30, 6))
FAMILY_RECIPES: tuple[Recipe, ...] = (LinearRecipe(0.003), LinearRecipe(0.03), LinearRecipe(0.3), LinearRecipe(3.0))


def fit(study: Study, detector: Detector, jobs: int | None = 1) -> RiskModel:
    """A model of the fit half of a study (odd repetitions); the other half is not looked at.

    Parameters
    ----------
    detector
        Whose alerts healing and families are learned from, at its threshold.

    Raises
    ------
    UserError
        If the fit half has too little to learn from.
    """
    import sklearn.ensemble  # noqa: F401 - only libraries that are loaded by then are limited below
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    half = fit_half(study)
    tables = feature_tables(half, np.ones(len(half.runs), bool), jobs)
    records = all_records(half, tables)
    alerts = alert_records(half, tables, alert_steps(half, detector, jobs))
    _require(records, alerts)
    with threadpool_limits(limits=1):  # so that the number of cores does not change a bit
        hazards, hazard_notes = fit_hazards(records)
        heals, heal_notes = fit_healing(alerts)
        families, family_notes = fit_families(alerts)
    return RiskModel(
        RiskParameters(
            horizons=HORIZONS,
            hazards=hazards,
            heals=heals,
            families=families,
            base_rates=base_rates(records, alerts),
            provenance={
                **provenance(half, detector),
                "cross_validation": {"hazards": hazard_notes, "heals": heal_notes, "families": family_notes},
            },
        )
    )


def fit_half(study: Study) -> Study:
    """The runs of the fit half, as a study."""
    return Study(study.folder, half_of(study.runs, "fit"), study.note)


def fit_hazards(records: Records) -> tuple[tuple[Calibrated, ...], dict[str, Any]]:
    """P(failure in each interval, given none before): one recipe for all, chosen by its log loss on other seeds."""
    label = [records.fails_within(steps).astype(np.int64) for steps in HORIZONS]
    quiet = ~records.fails_within(HORIZONS[-1])
    kept = ~quiet | (np.arange(len(records)) % THIN == 0)
    weight = np.where(quiet, float(THIN), 1.0)
    at_risk = [
        kept & records.known_within(steps) & (np.ones(len(records), bool) if not index else label[index - 1] == 0)
        for index, steps in enumerate(HORIZONS)
    ]
    for steps, rows in zip(HORIZONS, at_risk, strict=True):
        if len(np.unique(records.group[rows])) < 2:
            raise UserError(
                f"fewer than two seeds of the fit half have records whose next {steps} steps are known, the undecided "
                f"{UNDECIDED_STEPS} at the end of a run left out; give --from a study with longer runs"
            )
    losses: list[tuple[float, Recipe]] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for recipe in HAZARD_RECIPES:
        loss, lines[recipe.name] = 0.0, []
        for y, rows in zip(label, at_risk, strict=True):
            margin = out_of_fold(recipe, records.features[rows], y[rows], weight[rows], records.group[rows], 2)[:, 0]
            slope, offset = platt(margin, y[rows], weight[rows])
            lines[recipe.name].append((slope, offset))
            loss += binary_loss(sigmoid(slope * margin + offset), y[rows], weight[rows])
        losses.append((loss, recipe))
    chosen = best(losses)
    hazards = tuple(
        Calibrated(chosen.fit(records.features[rows], y[rows], weight[rows], 2), *line)
        for y, rows, line in zip(label, at_risk, lines[chosen.name], strict=True)
    )
    return hazards, _notes(chosen, losses)


def fit_healing(alerts: Records) -> tuple[Calibrated, dict[str, Any]]:
    """P(the run does not fail after all), at and after an alert."""
    label, weight = alerts.heals.astype(np.int64), np.ones(len(alerts))
    losses: list[tuple[float, Recipe]] = []
    lines: dict[str, tuple[float, float]] = {}
    for recipe in ALERT_RECIPES:
        margin = out_of_fold(recipe, alerts.features, label, weight, alerts.group, 2)[:, 0]
        slope, offset = lines[recipe.name] = platt(margin, label, weight)
        losses.append((binary_loss(sigmoid(slope * margin + offset), label, weight), recipe))
    chosen = best(losses)
    scorer = chosen.fit(alerts.features, label, weight, 2)
    return Calibrated(scorer, *lines[chosen.name]), _notes(chosen, losses)


def fit_families(alerts: Records) -> tuple[Choice, dict[str, Any]]:
    """The family at and after an alert, of those that the fit half has; and the bar below which none is named."""
    names = tuple(name for name in FAMILIES if (alerts.family == name).any())
    alerts = alerts.where(np.isin(alerts.family, names))
    label = np.array([names.index(name) for name in alerts.family.tolist()], dtype=np.int64)
    weight, classes = np.ones(len(alerts)), max(len(names), 3)  # as margins of three, of which one is absent
    names += tuple(f"(unused {index})" for index in range(len(names), classes))
    losses: list[tuple[float, Recipe]] = []
    margins: dict[str, Floats] = {}
    for recipe in FAMILY_RECIPES:
        margins[recipe.name] = out_of_fold(recipe, alerts.features, label, weight, alerts.group, classes)
        losses.append((choice_loss(margins[recipe.name], label, weight), recipe))
    chosen = best(losses)
    heat = temperature(margins[chosen.name], label, weight)
    bar = naming_bar(softmax(margins[chosen.name] / heat), label)
    scorer = chosen.fit(alerts.features, label, weight, classes)
    return Choice(names, scorer, heat, bar), _notes(chosen, losses)


def naming_bar(probability_NM: Floats, label_N: NDArray[np.int64]) -> float:
    """The lowest bar with which the wanted share of the named are right; the highest one if none is good enough."""
    top, right = probability_NM.max(axis=1), probability_NM.argmax(axis=1) == label_N
    for bar in BARS:
        named = top >= bar
        if named.any() and right[named].mean() >= NAMED_PRECISION:
            return bar
    return BARS[-1]


def base_rates(records: Records, alerts: Records) -> dict[str, float]:
    """Rates without looking at any signal; of healing at each time after the alert, as fewer are asked each time."""
    rates = {}
    for steps in HORIZONS:
        known, fails = records.known_within(steps), records.fails_within(steps)
        rates[f"{steps}"] = _share(fails[known])
        rates[f"{steps} after onset"] = _share(fails[known & records.fault_on])
    for after in AFTER:
        asked = alerts.after == after
        rates[HEALING_RATE.format(after=after, asked="all runs")] = _share(alerts.heals[asked])
        rates[HEALING_RATE.format(after=after, asked="faulty runs")] = _share(alerts.heals[asked & alerts.fault_on])
    return rates


def _share(hits: NDArray[np.bool_]) -> float:
    """Share with one more of each kind (Laplace), so that it is never 0 or 1."""
    return (float(hits.sum()) + 1.0) / (len(hits) + 2.0)


def _notes(chosen: Recipe, losses: Sequence[tuple[float, Recipe]]) -> dict[str, Any]:
    return {"chosen": chosen.name, "log_loss_of_other_seeds": {recipe.name: loss for loss, recipe in losses}}


def _require(records: Records, alerts: Records) -> None:
    failed = len(np.unique(records.run[np.isfinite(records.failure_step)]))
    if failed < 2 or len(np.unique(records.group)) < 2:
        raise UserError(
            f"the fit half (odd repetitions) has {failed} failed runs; give --from a study with at least two failed "
            "runs of different seeds in it"
        )
    if len(np.unique(alerts.group)) < 2:
        raise UserError("the detector alerts in fewer than two seeds of the fit half; give --from a larger study")


def provenance(half: Study, detector: Detector) -> dict[str, Any]:
    """Origin of the model; nothing in it depends on clock, path or host."""
    import sklearn

    return {
        "package_version": rmetric.__version__,
        "libraries": {"numpy": np.__version__, "scikit-learn": sklearn.__version__},
        "half": "fit (odd repetitions or seeds)",
        "runs": len(half.runs),
        "outcomes": dict(sorted(Counter(truth.kind for truth in half.truths).items())),
        "backends": sorted({str(run.config.get("backend")) for run in half.runs}),
        "models": sorted({run.model_type for run in half.runs}),
        "faults": sorted({run.fault for run in half.runs}),
        "steps_a_record": sorted({steps_a_record(run.observations.step) for run in half.runs}),
        "data_sha256": digest(half.runs),
        "alerts_of": {"detector": detector.name, "threshold": detector.threshold},
    }


def parser() -> Parser:
    p = Parser("Fit the risk model to the fit half (odd repetitions) of a study.")
    p.add_argument("--from", dest="logs", type=Path, required=True, metavar="LOGS", help="folder of logs, or data set")
    p.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file to write")
    p.add_argument("--jobs", type=whole_number(1), default=1, help="processes; the file does not depend on it")
    return p


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Parse, read, fit, write."""
    args = parser().parse_args(argv)
    study = load_study(args.logs, args.jobs)
    study.warn()
    model = fit(study, default_detector(), args.jobs)
    model.save(args.out)
    made = model.parameters.provenance
    chosen = {part: notes["chosen"] for part, notes in made["cross_validation"].items()}
    print(
        f"{args.out}: fitted to {made['runs']} runs of the fit half; "
        + "; ".join(f"{k}: {v}" for k, v in chosen.items())
    )
    print(f"a family is named from probability {model.parameters.families.bar:g} on")


if __name__ == "__main__":
    sys.exit(main())
