"""Quality of the risk model's answers on runs it was not fitted to: tidy frames for tables and figures.

All intervals are 95 % bootstraps over runs (exact ones of the number of runs, for a share of 0 or 1): the records of a
run resemble each other and are no independent evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmetric.detectors import Detector
from rmetric.evaluation.scores import DRAWS, Score, binomial_interval, percentile_interval, resample
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import Study
from rmetric.risk.model import Assessments, RiskModel
from rmetric.risk.parameters import UNKNOWN
from studies.risk.records import AFTER, HEALING_RATE, Records, alert_records, alert_steps, all_records, feature_tables

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
RISK_EDGES = (0.0, 0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Bins of a predicted risk; most records are healthy and lie in the first."""
HEALING_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Bins of a predicted healing; alerts are few."""
AUC_BINS = 400
"""Steps in which the bootstrapped area under the ROC curve is counted; its value itself is exact."""
HEALS = "heals by itself"
SUBSETS = ("all records", "after the onset")


@dataclass(frozen=True)
class Judged:
    """A model's answers on the score half of a study."""

    study: Study
    model: RiskModel
    detector: Detector
    runs: Bools
    """True for runs of the score half, shape (runs,)."""
    records: Records
    risk: Floats
    """Risk of each record, shape (records, horizons)."""
    alerts: Records
    """The records at :data:`AFTER` steps after the alerts."""
    answers: Assessments
    """Answers about these."""
    draws: int = DRAWS
    seed: int = 0

    @classmethod
    def of(
        cls,
        study: Study,
        model: RiskModel,
        detector: Detector,
        *,
        alerts: Mapping[int, Sequence[int]] | None = None,
        jobs: int | None = None,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> Self:
        """Judge a model on the score half (even repetitions or seeds).

        Parameters
        ----------
        detector
            Whose alerts healing and diagnosis are asked about.
        alerts
            Run index → steps at which its alert episodes begin; from the detector's own threshold if left out.
        """
        runs_R = halves(study.runs).score
        tables = feature_tables(study, runs_R, jobs)
        records = all_records(study, tables)
        begins = alert_steps(study, detector, jobs) if alerts is None else alerts
        after = alert_records(study, tables, begins, AFTER)
        risk = model.risk_of_features(records.features)
        answers = model.assess_features(after.features)
        return cls(study, model, detector, runs_R, records, risk, after, answers, draws, seed)

    @cached_property
    def horizons(self) -> tuple[int, ...]:
        """Steps."""
        return self.model.horizons

    def question(self, steps: int) -> str:
        """Name of the question in frames."""
        return f"fails within {steps} steps"


# --- Frames ----------------------------------------------------------------------------------------------------------


def brier_frame(judged: Judged) -> pd.DataFrame:
    """Quality of the risk: ``subset, horizon, runs, records, base_rate, brier, skill, auc``, one row each.

    The last three are :class:`Score`. ``skill`` = 1 − Brier score / Brier score of the fit half's base rate: 1 is
    perfect, 0 no better than knowing how often runs fail. Records whose next ``horizon`` steps are not known are left
    out, whatever their run did.
    """
    rows: list[dict[str, object]] = []
    records = judged.records
    for subset in SUBSETS:
        inside = records.fault_on if subset == SUBSETS[1] else np.ones(len(records), bool)
        for index, steps in enumerate(judged.horizons):
            rate = judged.model.parameters.base_rates[f"{steps}" if subset == SUBSETS[0] else f"{steps} after onset"]
            chosen = inside & records.known_within(steps)
            hit, said = records.fails_within(steps)[chosen], judged.risk[chosen, index]
            known = {"subset": subset, "horizon": steps}
            rows.append(known | _quality(judged, records.run[chosen], said, hit, rate))
    return pd.DataFrame(rows)


def healing_frame(judged: Judged) -> pd.DataFrame:
    """Quality of "heals by itself": ``runs_asked, after, runs, records, base_rate, brier, skill, auc``.

    Of alerts in faulty runs alone, failed against recovered, and with those in control runs (which heal, or have
    nothing to heal from). ``skill`` is against the fit half's rate at the same time: runs that failed meanwhile are no
    longer asked, so more of the others heal, and to know that is no skill.
    """
    rows: list[dict[str, object]] = []
    rates, alerts = judged.model.parameters.base_rates, judged.alerts
    for asked, inside in (("faulty runs", alerts.fault_on), ("all runs", np.ones(len(alerts), bool))):
        for after in AFTER:
            chosen = inside & (alerts.after == after)
            rate = rates[HEALING_RATE.format(after=after, asked=asked)]
            quality = _quality(judged, alerts.run[chosen], judged.answers.heals[chosen], alerts.heals[chosen], rate)
            rows.append({"runs_asked": asked, "after": after} | quality)
    return pd.DataFrame(rows)


def reliability_frame(judged: Judged) -> pd.DataFrame:
    """Predicted probabilities beside what came of them.

    Columns ``question, low_edge, high_edge, runs, records, predicted, observed, low, high``. One row a question
    (a horizon over all records, or healing at the alerts of :data:`AFTER`) and bin of the predicted probability; empty
    bins are left out. ``low`` and ``high``: 95 % interval of ``observed``, NaN if too often undefined.
    """
    rows: list[dict[str, object]] = []
    records, alerts = judged.records, judged.alerts
    for index, steps in enumerate(judged.horizons):
        chosen = records.known_within(steps)
        said, hit = judged.risk[chosen, index], records.fails_within(steps)[chosen]
        rows += _bins(judged, judged.question(steps), RISK_EDGES, records.run[chosen], said, hit)
    rows += _bins(judged, HEALS, HEALING_EDGES, alerts.run, judged.answers.heals, alerts.heals)
    columns = ["question", "low_edge", "high_edge", "runs", "records", "predicted", "observed", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def confusion_frame(judged: Judged) -> pd.DataFrame:
    """Diagnoses: ``after, true, predicted, alerts``, every pair of families, zeros included.

    A run that has failed by then, or whose log has ended, is not asked about any more.
    """
    alerts, families = judged.alerts, judged.model.parameters.families
    names = [name for name in families.names if not name.startswith("(")]
    true = [*names, *sorted({*alerts.family.tolist()} - {*names})]
    rows = [
        {"after": after, "true": family, "predicted": answer, "alerts": int(count)}
        for after in AFTER
        for family in true
        for answer in [*names, UNKNOWN]
        for count in [((alerts.after == after) & (alerts.family == family) & (judged.answers.family == answer)).sum()]
    ]
    return pd.DataFrame(rows, columns=["after", "true", "predicted", "alerts"])


def diagnosis_frame(judged: Judged) -> pd.DataFrame:
    """Diagnoses in short: ``after, alerts, named, right_of_named, right, likeliest_right``, shares as :class:`Score`.

    ``named``: share of the alerts with an answer other than ``unknown``; ``right_of_named``: share of these that name
    the true family; ``right``: share of all; ``likeliest_right``: share of all whose likeliest family is the true one,
    named or not.
    """
    alerts, answers = judged.alerts, judged.answers
    named = answers.family != UNKNOWN
    right = answers.family == alerts.family
    likeliest = np.array([*answers.names, ""])[answers.families.argmax(axis=1)] == alerts.family
    rows = []
    for after in AFTER:
        at = alerts.after == after
        run, every = alerts.run[at], np.ones(int(at.sum()))
        rows.append(
            {
                "after": after,
                "alerts": int(at.sum()),
                "named": _share(judged, run, named[at], every),
                "right_of_named": _share(judged, run, (right & named)[at], named[at]),
                "right": _share(judged, run, right[at], every),
                "likeliest_right": _share(judged, run, likeliest[at], every),
            }
        )
    return pd.DataFrame(rows)


# --- Scores ----------------------------------------------------------------------------------------------------------


def _quality(judged: Judged, run_N: NDArray[np.int64], said_N: Floats, hit_N: Bools, rate: float) -> dict[str, object]:
    """Brier score, its skill against a constant rate, and the area under the ROC curve."""
    runs, code_N = np.unique(run_N, return_inverse=True)
    counts: dict[str, object] = {"runs": len(runs), "records": len(run_N)}
    if not len(run_N):
        nothing = Score.undefined("there is no such record in the score half")
        return counts | {"base_rate": math.nan, "brier": nothing, "skill": nothing, "auc": nothing}
    weights_BR = _weights(judged, len(runs))
    errors = np.stack([(said_N - hit_N) ** 2, (rate - hit_N) ** 2, np.ones(len(hit_N))])
    sums_3R = np.stack([np.bincount(code_N, row, len(runs)) for row in errors])
    total_3, drawn_3B = sums_3R.sum(axis=1), sums_3R @ weights_BR.T
    return counts | {
        "base_rate": float(hit_N.mean()),
        "brier": Score(float(total_3[0] / total_3[2]), *percentile_interval(drawn_3B[0] / drawn_3B[2])),
        "skill": Score(float(1.0 - total_3[0] / total_3[1]), *percentile_interval(1.0 - drawn_3B[0] / drawn_3B[1])),
        "auc": _auc(code_N, said_N, hit_N, weights_BR),
    }


def _auc(code_N: NDArray[np.int64], said_N: Floats, hit_N: Bools, weights_BR: Floats) -> Score:
    """Area under the ROC curve: P(a record that leads to it was given the higher probability); ties count half."""
    if hit_N.all() or not hit_N.any():
        return Score.undefined("all of these records had the same outcome")
    # Ranks by size; quantiles of both outcomes, so that the rare one is not all in one step.
    both = np.concatenate([np.quantile(said_N[side], np.linspace(0, 1, AUC_BINS // 2)) for side in (hit_N, ~hit_N)])
    exact = _area(_histogram(np.unique(said_N, return_inverse=True)[1], hit_N)[:, None, :])[0]
    steps_N = np.searchsorted(np.unique(both), said_N, side="right")
    runs, bins = weights_BR.shape[1], int(steps_N.max()) + 1
    table_2RK = np.stack(
        [np.bincount(code_N[side] * bins + steps_N[side], minlength=runs * bins).reshape(runs, bins)
         for side in (hit_N, ~hit_N)]
    ).astype(np.float64)  # fmt: skip
    return Score(float(exact), *percentile_interval(_area(weights_BR @ table_2RK)))


def _histogram(step_N: NDArray[np.int64], hit_N: Bools) -> Floats:
    size = int(step_N.max()) + 1
    return np.stack([np.bincount(step_N[side], minlength=size) for side in (hit_N, ~hit_N)]).astype(np.float64)


def _area(counts_2BK: Floats) -> Floats:
    """Shape (draws,); NaN where a draw has one outcome only."""
    hits_BK, misses_BK = counts_2BK
    below_BK = np.cumsum(misses_BK, axis=1) - 0.5 * misses_BK
    pairs_B = hits_BK.sum(axis=1) * misses_BK.sum(axis=1)
    return np.divide(
        (hits_BK * below_BK).sum(axis=1), pairs_B, out=np.full(len(pairs_B), np.nan), where=pairs_B > 0
    )  # fmt: skip


def _share(judged: Judged, run_N: NDArray[np.int64], hit_N: NDArray[np.generic], of_N: NDArray[np.generic]) -> Score:
    runs, code_N = np.unique(run_N, return_inverse=True)
    hits_R, of_R = (np.bincount(code_N, np.asarray(values, np.float64), len(runs)) for values in (hit_N, of_N))
    if not of_R.sum():
        return Score.undefined("there is no such alert in the score half")
    value = float(hits_R.sum() / of_R.sum())
    if value in (0.0, 1.0):  # all resamples agree, and a bootstrap would claim to be certain
        asked = float((of_R > 0).sum())
        return Score(value, *binomial_interval(value * asked, asked))
    weights_BR = _weights(judged, len(runs))
    drawn_B = weights_BR @ of_R
    ratio_B = np.divide(weights_BR @ hits_R, drawn_B, out=np.full(len(drawn_B), np.nan), where=drawn_B > 0)
    return Score(value, *percentile_interval(ratio_B))


def _bins(
    judged: Judged, question: str, edges: Sequence[float], run_N: NDArray[np.int64], said_N: Floats, hit_N: Bools
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    place_N = np.clip(np.searchsorted(edges, said_N, side="right") - 1, 0, len(edges) - 2)
    for place in np.unique(place_N).tolist():
        inside = place_N == place
        observed = _share(judged, run_N[inside], hit_N[inside], np.ones(int(inside.sum())))
        rows.append(
            {
                "question": question,
                "low_edge": edges[place],
                "high_edge": edges[place + 1],
                "runs": len(np.unique(run_N[inside])),
                "records": int(inside.sum()),
                "predicted": float(said_N[inside].mean()),
                "observed": observed.value,
                "low": observed.low,
                "high": observed.high,
            }
        )
    return rows


def _weights(judged: Judged, runs: int) -> Floats:
    return resample(runs, judged.draws, np.random.default_rng((judged.seed, runs))).astype(np.float64)
