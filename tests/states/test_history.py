"""What is kept of a long run for its states."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from rmetric.records import Observations
from rmetric.states import History
from tests.helpers import any_observations, bits
from tests.states.common import observed


@given(any_observations(("training_loss", "validation_loss", "grad_norm"), max_size=60), st.integers(1, 60))
def test_what_is_kept_of_a_long_run_does_not_depend_on_its_pieces(observations: Observations, size: int) -> None:
    whole, pieces = History(most=8), History(most=8)
    whole.extend(observations)
    for start in range(0, len(observations), size):
        pieces.extend(observations.rows(slice(start, start + size)))
        pieces = History.of_state(pieces.state_dict(), most=8)
    singly = History(most=8)
    for observation in observations:
        singly.add(observation)
    kept = whole.observations
    assert len(kept) <= 16
    for same in (pieces.observations, singly.observations):
        assert kept.step.tolist() == same.step.tolist()
        for name in observations.columns:
            assert bits(kept[name]) == bits(same[name])
    if len(observations):
        assert kept.step[[0, -1]].tolist() == observations.step[[0, -1]].tolist()


def test_records_that_may_not_be_written_to_are_kept() -> None:
    records = observed(training_loss=np.where(np.arange(20) < 12, 1.0, np.inf))
    records.step.flags.writeable = False  # as of an array that Arrow holds
    history = History(most=32)
    history.extend(records)
    assert history.observations.step.tolist() == records.step.tolist()


def test_of_very_many_evaluations_neighbours_are_averaged() -> None:
    history = History(most=4)
    history.extend(observed(training_loss=np.ones(20)))
    for step in range(1, 12):
        history.note({"event": "VALIDATION", "step": step, "validation_loss": float(step)})
    kept = history.observations
    assert kept.step[kept.evaluated].tolist() == [2, 4, 6, 8, 9, 10, 11]
    assert kept["validation_loss"][kept.evaluated].tolist() == [1.5, 3.5, 5.5, 7.5, 9.0, 10.0, 11.0]


def test_the_loss_is_compared_with_the_classes_that_the_log_tells_of_as_long_as_it_does() -> None:
    history = History()
    history.extend(observed(training_loss=[2.5, 2.0], uniform_gap=[-1.5, -2.0]))  # of a vocabulary, which is no label's
    for classes, gaps in ((10, 2.5 - np.log(10.0)), (None, -1.5)):
        history.note({"event": "CLASSES", "step": 2, "classes": classes})
        assert History.of_state(history.state_dict()).observations["uniform_gap"][0] == gaps
