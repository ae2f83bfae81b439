"""What every registered detector promises, whoever wrote it."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from rmetric.detectors import (
    DETECTORS,
    Detector,
    OneMeasurementDetector,
    OwnPastDetector,
    StreamingDetector,
    first_alert,
    make_detector,
    online_detectors,
    register_detector,
)
from rmetric.detectors.base import STANDS_IN, CompiledDetector
from rmetric.detectors.paper_baselines import SingleSignal
from rmetric.errors import UserError
from rmetric.measurements import OBSERVABLE, Observation
from rmetric.records import Observations
from tests.detectors.common import scores_of
from tests.helpers import EXTREMES, any_observations, bits, healthy_observations, small_detector

NAMES = list(DETECTORS)
STREAMING = [name for name, detector in DETECTORS.items() if issubclass(detector, StreamingDetector)]
CAUSAL = [name for name, detector in DETECTORS.items() if detector.causal]
READS = [(name, column) for name, detector in DETECTORS.items() for column in detector.reads]
FORGETFUL = ["olmo_spike"] + [  # a single signal is normalised over so many records, whatever they hold
    name
    for name, detector in DETECTORS.items()
    if issubclass(detector, OneMeasurementDetector) and not issubclass(detector, SingleSignal)
]
HIGHEST = {
    "isolation_forest": 1.0, "isolation_forest_causal": 1.0, "lambda_only": 1.0, "sigma_sq_only": 1.0,
    "delta_l_only": 1.0, "r_metric": 1.25,
}  # fmt: skip
"""Highest score of those detectors whose scores are bounded."""

SLOW = {"isolation_forest", "isolation_forest_causal", "one_class_svm", "ecod", "lstm_forecaster", "half_space_trees"}
"""They fit a model, or take a good part of a millisecond to judge one record alone."""
ALIKE = {name for name, kind in DETECTORS.items() if issubclass(kind, OwnPastDetector)} - {"router_collapse"}
"""They differ in what they read alone; the one that is left reads most."""


def _examples(name: str) -> settings:
    most = settings().max_examples  # of the profile
    fewer = 5 if name in SLOW else 10 if name in ALIKE else most
    return settings(max_examples=min(fewer, most))


def _reads(name: str) -> tuple[str, ...]:
    # A detector that reads one column gets another beside it, so that its own may be missing; and what begins it anew.
    return (*DETECTORS[name].reads, "step_time_s", "planned_changes")


def _disturbed(length: int, seed: int) -> Observations:
    """A healthy run with gaps, extremes and repeated values strewn over it."""
    rng = np.random.default_rng(seed)
    observations = healthy_observations(length, seed)
    for column in observations.columns.values():
        hit = rng.random(length) < 0.03
        column[hit] = rng.choice(EXTREMES, hit.sum())
        column[rng.random(length) < 0.03] = column[length // 3]
    return Observations(observations.step, observations.columns)


def _at_once(detector: StreamingDetector, piece: Observations) -> np.ndarray:
    """Scores of the next records by whole columns, however few they are."""
    return detector.columns(piece) if isinstance(detector, CompiledDetector) else detector.extend(piece)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMING)
def test_update_extend_and_score_run_give_the_same_bits(name: str) -> None:
    @_examples(name)
    @given(any_observations(_reads(name)))
    def check(observations: Observations) -> None:
        detector, batch, whole = (small_detector(name) for _ in range(3))
        assert isinstance(detector, StreamingDetector)
        assert isinstance(batch, StreamingDetector)
        one_by_one = bits([detector.update(observation) for observation in observations])
        assert bits(_at_once(batch, observations)) == one_by_one
        assert bits(whole.score_run(observations)) == one_by_one

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMING)
def test_a_run_may_be_fed_in_any_pieces(name: str) -> None:
    @_examples(name)
    @given(any_observations(_reads(name)), st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=5))
    def check(observations: Observations, cuts: list[tuple[int, bool]]) -> None:
        detector = small_detector(name)
        assert isinstance(detector, StreamingDetector)
        scores: list[float] = []
        start = 0
        for end, at_once in [*sorted(cuts), (len(observations), True)]:
            piece = observations.rows(slice(start, end))
            scores += _at_once(detector, piece).tolist() if at_once else [detector.update(row) for row in piece]
            start = max(start, end)
        assert bits(scores) == bits(small_detector(name).score_run(observations))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMING)
def test_the_published_settings_stream_to_the_same_bits(name: str) -> None:
    observations = _disturbed(2300, seed=1)  # longer than any window and warm-up
    detector, pieces = make_detector(name), make_detector(name)
    assert isinstance(detector, StreamingDetector)
    assert isinstance(pieces, StreamingDetector)
    expected = bits(make_detector(name).score_run(observations))
    cuts = (0, 1, 150, 999, 1000, 1001, 2300)
    fed = [_at_once(pieces, observations.rows(slice(a, b))) for a, b in itertools.pairwise(cuts)]
    assert bits(np.concatenate(fed)) == expected
    length = 400 if name in SLOW else 2300
    assert bits([detector.update(row) for row in observations.rows(slice(0, length))]) == expected[:length]
    assert len(set(expected)) > 1


@pytest.mark.parametrize("name", NAMES)
def test_scoring_a_run_leaves_no_trace(name: str) -> None:
    observations, other = _disturbed(150, seed=2), _disturbed(150, seed=3)
    detector, untouched = small_detector(name), small_detector(name)
    if isinstance(detector, StreamingDetector) and isinstance(untouched, StreamingDetector):
        detector.extend(other)
        untouched.extend(other)
    first = bits(detector.score_run(observations))
    assert bits(detector.score_run(observations)) == first
    assert bits(small_detector(name).score_run(observations)) == first
    if isinstance(detector, StreamingDetector) and isinstance(untouched, StreamingDetector):
        assert bits(detector.extend(observations)) == bits(untouched.extend(observations))


@pytest.mark.parametrize("name", NAMES)
def test_scoring_leaves_the_observations_as_they_are(name: str) -> None:
    observations = _disturbed(150, seed=2)
    before = {key: bits(column) for key, column in observations.columns.items()}
    scores = small_detector(name).score_run(observations)
    scores[:] = 7.0
    assert {key: bits(column) for key, column in observations.columns.items()} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSAL)
def test_the_score_of_a_record_does_not_depend_on_later_ones(name: str) -> None:
    @_examples(name)
    @given(any_observations(_reads(name)), st.integers(0, 40))
    def check(observations: Observations, length: int) -> None:
        detector = small_detector(name)
        beginning = bits(detector.score_run(observations.rows(slice(0, length))))
        assert bits(detector.score_run(observations))[:length] == beginning

    check()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CAUSAL])
def test_a_detector_that_says_it_sees_the_future_does(name: str) -> None:
    observations = healthy_observations(300)
    detector = make_detector(name)
    assert bits(detector.score_run(observations.rows(slice(0, 200)))) != bits(detector.score_run(observations))[:200]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "column"), READS)
@pytest.mark.parametrize("at", [0, 15, 399])
def test_a_non_finite_input_never_goes_unnoticed(name: str, column: str, at: int) -> None:
    observations = healthy_observations()
    observations[column][at] = np.inf
    detector = make_detector(name)
    score = detector.score_run(Observations(observations.step, observations.columns))[at]
    if name == "r_metric":  # a weighted sum: one signal of three counts with its weight (tests/test_metric.py)
        assert score >= dict(zip(detector.reads, (0.10, 0.45, 0.70), strict=True))[column]
        return
    assert score == HIGHEST.get(name, np.inf)
    assert score > detector.threshold


@pytest.mark.parametrize("name", FORGETFUL)
def test_a_value_that_is_not_finite_is_forgotten(name: str) -> None:
    detector = make_detector(name)
    values = healthy_observations()[detector.reads[0]]
    scores = scores_of(detector, np.insert(values, [5, 200], math.inf))  # while it warms up, and later
    assert scores[[5, 201]].tolist() == [math.inf, math.inf]
    assert bits(np.delete(scores, [5, 201])) == bits(scores_of(detector, values))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_whose_inputs_are_all_non_finite_alerts_at_its_first_record(name: str) -> None:
    broken = np.full(30, np.inf)
    observations = Observations(np.arange(1, 31), dict.fromkeys(OBSERVABLE, broken))
    detector = make_detector(name)
    scores = detector.score_run(observations)
    assert scores.tolist() == [HIGHEST.get(name, np.inf)] * 30
    assert first_alert(observations.step, scores, detector.threshold) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_bounded_score_keeps_its_bounds(name: str) -> None:
    @_examples(name)
    @given(any_observations(_reads(name)))
    def check(observations: Observations) -> None:
        scores = small_detector(name).score_run(observations)
        judged = scores[~np.isnan(scores)]
        assert scores.dtype == np.float64
        assert scores.shape == (len(observations),)
        assert (judged <= HIGHEST.get(name, math.inf)).all()
        if name in HIGHEST:
            assert (judged >= 0.0).all()

    check()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_measurements_has_no_score_and_the_detector_says_why(name: str) -> None:
    detector = make_detector(name)
    for observations in (
        Observations(np.arange(10, 4000, 10)),
        Observations(np.arange(10, 4000, 10), {column: np.full(399, np.nan) for column in OBSERVABLE}),
    ):
        scores = detector.score_run(observations)
        assert np.isnan(scores).all()
        assert first_alert(observations.step, scores, detector.threshold) is None
        assert set(detector.missing(observations)) == set(detector.reads)
        assert detector.lack(observations) == f"no score; the log lacks {', '.join(detector.reads)}"


@pytest.mark.parametrize("name", NAMES)
def test_a_detector_names_what_it_needs_and_lacks(name: str) -> None:
    observations = _disturbed(400, seed=6)
    detector = make_detector(name)
    everything = observations.columns | dict.fromkeys(detector.reads, observations["training_loss"])
    assert detector.missing(everything) == ()
    assert detector.lack(everything) == ""
    for column in detector.reads:
        stand_in = STANDS_IN.get(column)
        without = {key: values for key, values in everything.items() if key not in (column, stand_in)}
        lacking = Observations(observations.step, without)
        assert column in detector.missing(lacking)
        silent = np.isnan(detector.score_run(lacking)).all()
        assert silent == detector.lack(lacking).startswith("no score"), column


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_inputs_that_stop_being_measured_raise_no_alert(name: str, seed: int) -> None:
    observations = healthy_observations(seed=seed)
    for column in observations.columns.values():
        column[200:] = np.nan
    detector = make_detector(name)
    scores = detector.score_run(Observations(observations.step, observations.columns))
    # A detector of evaluations holds its latest score; nothing may come on top of that.
    highest = np.fmax(detector.threshold, scores[199])
    assert not (scores[200:] > highest).any()


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_run_has_no_scores(name: str) -> None:
    assert make_detector(name).score_run(Observations(np.empty(0, dtype=np.int64))).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_a_detector_says_what_it_is(name: str) -> None:
    detector = DETECTORS[name]
    assert detector.name == name
    assert detector.title
    assert detector.source
    assert detector.reads
    assert set(detector.reads) <= set(OBSERVABLE)
    assert not inspect.getdoc(detector).startswith(f"{detector.__name__}(")  # type: ignore[union-attr]
    assert detector.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_a_detector_reads_what_it_says_and_nothing_else(name: str) -> None:
    observations, other = _disturbed(400, seed=4), _disturbed(400, seed=5)
    detector = make_detector(name)
    mixed = {column: (observations if column in detector.reads else other)[column] for column in OBSERVABLE}
    again = Observations(observations.step, mixed, observations.evaluated)
    assert bits(detector.score_run(again)) == bits(detector.score_run(observations))


def test_titles_are_distinct() -> None:
    titles = Counter(detector.title for _, detector in DETECTORS.items())
    assert titles.most_common(1)[0][1] == 1


def test_online_detectors_stream_and_come_fresh() -> None:
    detectors = online_detectors()
    assert set(detectors) == {name for name, detector in DETECTORS.items() if detector.online}
    assert "r_metric" in detectors
    assert all(isinstance(detector, StreamingDetector) for detector in detectors.values())
    assert online_detectors()["r_metric"] is not detectors["r_metric"]


def test_the_first_alert_lies_above_the_threshold_and_nan_never_does() -> None:
    steps = np.array([10, 20, 30, 40])
    assert first_alert(steps, np.array([np.nan, 0.5, 0.6, np.inf]), 0.5) == 30
    assert first_alert(steps, np.array([np.nan, 0.5, -np.inf, np.nan]), 0.5) is None
    assert first_alert(steps[:0], np.array([]), 0.5) is None


def test_an_unknown_detector_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown detector 'r_metrik'; did you mean 'r_metric'"):
        make_detector("r_metrik")


@pytest.mark.parametrize("limit", [math.nan, None, "0.5", Decimal(3)])
def test_a_threshold_that_is_no_float_or_that_no_score_can_exceed_is_refused(
    limit: Any, clean_registries: None
) -> None:
    @register_detector("never")
    @dataclass(kw_only=True)
    class Never(StreamingDetector):
        threshold: float = limit

        def update(self, observation: Observation) -> float:
            return 0.0

    with pytest.raises(UserError, match=re.escape(f"detector never has a threshold of {limit!r} where a float")):
        make_detector("never")


@pytest.mark.parametrize(
    ("base", "body", "told"),
    [
        (StreamingDetector, {"threshold": 3.0}, "mine cannot be made of its fields alone"),
        (StreamingDetector, {"__init__": lambda self: setattr(self, "threshold", 3.0)}, "mine cannot be made of its f"),
        (DETECTORS["robust_z"], {"threshold": 3.0}, "mine is made without the threshold of its class"),
        (DETECTORS["robust_z"], {"threshold": 3.0, "__annotations__": {"threshold": float}}, "without the threshold"),
    ],
)
def test_a_class_that_lacks_its_decorator_is_refused(
    base: type[Detector], body: dict[str, Any], told: str, clean_registries: None
) -> None:
    update = {"update": lambda self, observation: 0.0}
    register_detector("mine")(type("Mine", (base,), {"__module__": __name__, **update, **body}))
    with pytest.raises(UserError, match=f"plugin {__file__}: detector .*{told}.*write @dataclass"):
        make_detector("mine")


@pytest.mark.parametrize("kind", [ClassVar[str], "ClassVar[str]", Final, str, None])
def test_a_variant_may_set_what_is_no_field(kind: Any, clean_registries: None) -> None:
    hints = {"__annotations__": {"title": kind, "_note": str, "threshold": float}} if kind else {}
    register_detector("mine")(type("Mine", (DETECTORS["robust_z"],), {"title": "mine", **hints}))
    assert make_detector("mine", threshold=3.0).threshold == 3.0


def test_a_class_with_a_constructor_of_its_own_may_annotate_what_it_sets(clean_registries: None) -> None:
    @register_detector("mine")
    class Mine(StreamingDetector):
        reads: ClassVar[tuple[str, ...]] = ("training_loss",)
        threshold: float = 3.0
        _seen: list[float]

        def __init__(self, threshold: float = 3.0) -> None:
            super().__init__(threshold=threshold)
            self._seen = []

        def update(self, observation: Observation) -> float:
            return 0.0

    assert make_detector("mine").threshold == 3.0


def test_a_measurement_that_there_is_none_of_is_answered_with_the_nearest(clean_registries: None) -> None:
    class Misspelt(StreamingDetector):
        reads = ("grad_norm", "training_losss")

        def update(self, observation: Observation) -> float:
            return 0.0

    told = "'misspelt' reads 'training_losss', which is not a measurement; did you mean training_loss"
    with pytest.raises(ValueError, match=told):
        register_detector("misspelt")(Misspelt)
    assert "misspelt" not in DETECTORS


def test_a_detector_needs_an_update_to_stream(clean_registries: None) -> None:
    class Blind(StreamingDetector):
        reads = ("training_loss",)

    with pytest.raises(TypeError, match="detector 'blind' lacks update"):
        register_detector("blind")(Blind)
    assert "blind" not in DETECTORS
