"""State as plain values: there and back for everything in this package that streams."""

import io
import json
import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmetric.detectors import DETECTORS, StreamingDetector
from rmetric.measurements import FIELDS, MECHANISM, Observation
from rmetric.monitor.loop_invariants import LoopInvariants
from rmetric.robust.reference import RobustReference
from rmetric.state import restore, state_of
from tests.helpers import resumed_and_straight

STREAMING = [name for name, kind in DETECTORS.items() if issubclass(kind, StreamingDetector)]


def observation(step: int, rng: np.random.Generator) -> Observation:
    fields = {name: float(rng.lognormal()) for name in FIELDS}
    return Observation(step, **fields, evaluated=True, mechanism={name: float(rng.lognormal()) for name in MECHANISM})


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("seen", [0, 3, 80, 120, 160])  # models are fitted to the first 100 or 150 records
def test_a_restored_detector_goes_on_with_the_same_scores(name: str, seen: int) -> None:
    rng = np.random.default_rng(seen)
    records = [observation(step, rng) for step in range(1, seen + 60)]
    resumed_and_straight(DETECTORS[name], records, seen)


def test_a_checkpoint_is_read_without_pickle() -> None:
    torch = pytest.importorskip("torch")
    detector = DETECTORS["loss_spike"]()
    rng = np.random.default_rng(0)
    for step in range(1, 30):
        detector.update(observation(step, rng))
    buffer = io.BytesIO()
    torch.save(state_of(detector), buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True) == state_of(detector)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(plain)
def test_plain_values_are_their_own_state(value: object) -> None:
    assert state_of(value) == value
    assert restore(value, state_of(value)) == value


def test_kinds_come_back() -> None:
    value = {"queue": deque([(1, 2.0)], maxlen=3), "array": np.array([1.5, math.inf]), "scalar": np.float64(2.0)}
    state = state_of(value)
    json.dumps(state)
    back = restore({"queue": deque(maxlen=3), "array": np.zeros(2), "scalar": np.float64(0.0)}, state)
    assert back["queue"] == value["queue"] and back["queue"].maxlen == 3
    assert np.array_equal(back["array"], value["array"])
    assert back["scalar"] == 2.0


def test_the_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not the state of a Numerics"):
        restore(DETECTORS["numerics"](), state_of(DETECTORS["r_metric"]()))


def test_a_list_of_objects_is_not_restored_from_that_of_more_or_fewer() -> None:
    invariants = LoopInvariants()
    state = state_of(invariants)
    with pytest.raises(ValueError, match="not the state of a list; resume with the version"):
        restore(invariants, {**state, "_invariants": state["_invariants"][1:]})


def test_what_has_no_plain_state_is_refused() -> None:
    with pytest.raises(TypeError, match="plain values"):
        state_of(iter([1]))


def test_a_state_is_read_that_is_older_than_the_public_name_of_an_attribute() -> None:
    reference, resumed = (RobustReference(window=8, warm_up=4, floor=0.1, clip=5.0) for _ in range(2))
    for value in (1.0, 1.1, 0.9, 1.0):
        reference.update(value)
    state = state_of(reference)
    restore(resumed, {"_values": state.pop("values"), **state})
    assert resumed.update(2.0) == reference.update(2.0) == 10.0
