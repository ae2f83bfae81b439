"""Frames: scores as scikit-learn has them, nothing lost between bins, a perfect model is perfect."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from rmetric.evaluation.split import halves
from rmetric.risk.model import RiskModel
from rmetric.risk.parameters import UNKNOWN
from studies.risk.quality import (
    HEALS,
    SUBSETS,
    Judged,
    brier_frame,
    confusion_frame,
    diagnosis_frame,
    healing_frame,
    reliability_frame,
)
from studies.risk.records import AFTER


def perfect(judged: Judged) -> Judged:
    """A model that knows the outcome."""
    risk = np.stack([judged.records.fails_within(steps) for steps in judged.horizons], axis=1).astype(float)
    answers = replace(judged.answers, heals=judged.alerts.heals.astype(float), family=judged.alerts.family)
    return replace(judged, risk=risk, answers=answers)


def test_scores_are_those_of_scikit_learn(judged: Judged) -> None:
    frame = brier_frame(judged)
    records = judged.records
    for index, steps in enumerate(judged.horizons):
        known = records.known_within(steps)
        hit, said = records.fails_within(steps)[known], judged.risk[known, index]
        row = frame[(frame["subset"] == SUBSETS[0]) & (frame["horizon"] == steps)].iloc[0]
        assert row["brier"].value == pytest.approx(brier_score_loss(hit, said))
        assert row["auc"].value == pytest.approx(roc_auc_score(hit, said))
        assert row["auc"].low <= row["auc"].value <= row["auc"].high
        assert row["records"] == known.sum()
        assert row["base_rate"] == pytest.approx(hit.mean())


def test_only_the_score_half_is_judged(judged: Judged) -> None:
    score = halves(judged.study.runs).score
    assert score[np.unique(judged.records.run)].all()
    assert score[np.unique(judged.alerts.run)].all()


def test_a_model_that_knows_the_outcome_is_perfect(judged: Judged) -> None:
    known = perfect(judged)
    for frame in (brier_frame(known), healing_frame(known)):
        for _, row in frame.iterrows():
            if row["auc"].defined:
                assert (row["skill"].value, row["auc"].value) == (1.0, 1.0)
    bins = reliability_frame(known)
    assert (bins["predicted"] == bins["observed"]).all()
    diagnosed = diagnosis_frame(known)
    assert all(share.value == 1.0 for share in diagnosed["right"])


def test_the_base_rate_has_no_skill(judged: Judged) -> None:
    rates = judged.model.parameters.base_rates
    said = np.array([[rates[f"{steps}"] for steps in judged.horizons]]).repeat(len(judged.records), axis=0)
    frame = brier_frame(replace(judged, risk=said))
    assert [row.value for row in frame.loc[frame["subset"] == SUBSETS[0], "skill"]] == [0.0] * len(judged.horizons)
    assert [row.value for row in frame.loc[frame["subset"] == SUBSETS[0], "auc"]] == [0.5] * len(judged.horizons)


def test_to_know_that_runs_which_have_not_failed_yet_heal_more_often_is_no_skill(judged: Judged) -> None:
    rates = dict(zip(AFTER, (0.5, 0.6, 0.7), strict=True))
    named = {f"heals, {after} steps after the alert, faulty runs": rate for after, rate in rates.items()}
    parameters = judged.model.parameters
    model = RiskModel(replace(parameters, base_rates={**parameters.base_rates, **named}))
    said = np.array([rates[after] for after in judged.alerts.after.tolist()])
    frame = healing_frame(replace(judged, model=model, answers=replace(judged.answers, heals=said)))
    assert [row.value for row in frame.loc[frame["runs_asked"] == "faulty runs", "skill"]] == [0.0] * len(AFTER)


def test_no_record_is_lost_between_bins(judged: Judged) -> None:
    frame = reliability_frame(judged)
    for steps in judged.horizons:
        chosen = frame[frame["question"] == judged.question(steps)]
        assert chosen["records"].sum() == judged.records.known_within(steps).sum()
    assert frame.loc[frame["question"] == HEALS, "records"].sum() == len(judged.alerts)
    assert ((frame["low_edge"] <= frame["predicted"]) & (frame["predicted"] <= frame["high_edge"])).all()
    inside = frame.dropna()
    assert ((inside["low"] <= inside["observed"]) & (inside["observed"] <= inside["high"])).all()


def test_a_share_of_none_is_not_certain(judged: Judged) -> None:
    frame = reliability_frame(judged)
    none = frame[frame["observed"] == 0.0]
    assert len(none)
    assert (none["high"] > 0).all()


def test_every_alert_stands_in_the_matrix_once(judged: Judged) -> None:
    frame = confusion_frame(judged)
    for after in AFTER:
        assert frame.loc[frame["after"] == after, "alerts"].sum() == (judged.alerts.after == after).sum()
    assert UNKNOWN in {*frame["predicted"]}


def test_shares_of_the_diagnosis_agree_with_the_matrix(judged: Judged) -> None:
    matrix, short = confusion_frame(judged), diagnosis_frame(judged)
    for _, row in short.iterrows():
        at = matrix[matrix["after"] == row["after"]]
        named = at[at["predicted"] != UNKNOWN]
        right = at.loc[at["predicted"] == at["true"], "alerts"].sum()
        assert row["named"].value == pytest.approx(named["alerts"].sum() / row["alerts"])
        assert row["right"].value == pytest.approx(right / row["alerts"])
        assert row["likeliest_right"].value >= row["right"].value


def test_without_alerts_shares_are_undefined_with_a_reason(judged: Judged) -> None:
    nobody = np.zeros(len(judged.alerts), bool)
    answers = judged.model.assess_features(judged.alerts.features[nobody])
    silent = replace(judged, alerts=judged.alerts.where(nobody), answers=answers)
    for score in (*diagnosis_frame(silent)["right"], *healing_frame(silent)["brier"]):
        assert not score.defined
        assert "score half" in score.reason
    assert confusion_frame(silent)["alerts"].sum() == 0
