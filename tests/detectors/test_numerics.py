"""The signs of broken numbers: each alone is enough, and a healthy run shows none."""

import math

import numpy as np
import pytest

from rmetric.detectors import Numerics
from rmetric.measurements import Observation
from rmetric.records import Observations

HEALTHY = {"training_loss": 2.0, "grad_norm": 1.0, "non_finite_count": 0.0, "uniform_gap": 2.0 - math.log(256)}


def score_after_learning(**changes: float) -> float:
    detector = Numerics()
    assert detector.update(Observation(1, **HEALTHY)) == 0.0
    return detector.update(Observation(2, **{**HEALTHY, **changes}))


@pytest.mark.parametrize(
    ("changes", "signs"),
    [
        ({"non_finite_count": 1.0}, 1.0),
        ({"grad_norm": math.inf, "non_finite_count": 3.0}, math.inf),
        ({"grad_norm": math.nan}, 0.0),
        ({"training_loss": math.nan}, math.inf),
        ({"grad_norm": 0.0}, 1.0),
        ({"grad_norm": 0.0, "training_loss": 0.0}, 0.0),
        ({"training_loss": math.log(256), "uniform_gap": 4e-7}, 1.0),
        ({"training_loss": math.log(256), "uniform_gap": 4e-7, "grad_norm": 0.0}, 2.0),
        ({"training_loss": math.inf, "grad_norm": 0.0}, math.inf),
    ],
)
def test_each_sign_counts(changes: dict[str, float], signs: float) -> None:
    if "grad_norm" in changes and math.isnan(changes["grad_norm"]):
        changes = {**changes, "grad_norm": None}  # not measured
    assert score_after_learning(**changes) == signs


def test_gradients_of_zero_are_none_after_a_batch_that_was_solved() -> None:
    rows = [(2.0, 1.0), (0.5, 0.0), (0.0, 0.0), (0.03, 0.0), (0.5, 1.0), (0.03, 0.0)]
    made = {"training_loss": [loss for loss, _ in rows], "grad_norm": [norm for _, norm in rows]}
    observations = Observations(np.arange(1, 7), {name: np.array(values) for name, values in made.items()})
    detector = Numerics()
    assert detector.extend(observations).tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [detector.update(each) for each in observations] == [0.0] * 6  # the batch is remembered


@pytest.mark.parametrize(("every", "signs"), [(1, 8), (50, 1)])
def test_zeros_that_come_and_go_are_none_where_a_loss_may_be_the_mean_of_several_steps(every: int, signs: int) -> None:
    norms = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 1.0, *6 * [0.0]])
    columns = {"training_loss": np.full(len(norms), 0.03), "grad_norm": norms}
    observations = Observations(every * np.arange(1, len(norms) + 1), columns)
    detector = Numerics()
    assert Numerics().extend(observations).tolist() == [detector.update(each) for each in observations]
    found = detector.fresh().extend(observations)
    assert found.sum() == signs and found[-1] == 1.0


def test_a_validation_loss_counts_in_the_record_of_its_evaluation() -> None:
    rows = [(2.5, True), (math.nan, False), (math.nan, True), (2.5, True)]
    made = [
        Observation(step, **HEALTHY, validation_loss=loss, evaluated=evaluated)
        for step, (loss, evaluated) in enumerate(rows)
    ]
    detector = Numerics()
    assert [detector.update(observation) for observation in made] == [0.0, 0.0, math.inf, 0.0]


def test_a_fresh_model_may_start_at_the_uniform_loss() -> None:
    detector = Numerics()
    at_start = {**HEALTHY, "training_loss": math.log(256), "uniform_gap": 0.0}
    assert [detector.update(Observation(step, **at_start)) for step in (1, 2)] == [0.0, 0.0]


def test_a_loss_that_is_only_near_the_uniform_one_is_no_sign() -> None:
    assert score_after_learning(training_loss=5.546, uniform_gap=1e-3) == 0.0
