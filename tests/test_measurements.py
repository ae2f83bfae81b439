from __future__ import annotations

import math
from dataclasses import fields
from typing import get_args

import hypothesis.strategies as st
from hypothesis import given

from rmetric.measurements import FIELDS, MEASUREMENTS, MECHANISM, VERDICTS, Merge, Observation, in_convention
from tests.helpers import any_float, bits

NAN, INF = math.nan, math.inf


def test_every_measurement_is_named_once_and_described() -> None:
    known = [*MEASUREMENTS.values(), *MECHANISM.values(), *VERDICTS.values()]
    assert [measurement.name for measurement in known] == [*MEASUREMENTS, *MECHANISM, *VERDICTS]
    assert len({measurement.name for measurement in known}) == len(known)
    for measurement in known:
        assert measurement.merge in get_args(Merge), measurement.name
        assert measurement.meaning in measurement.description, measurement.name
        assert measurement.source in ("", *MEASUREMENTS), measurement.name


def test_an_observation_has_one_field_a_measurement_in_the_order_of_the_log() -> None:
    names = [item.name for item in fields(Observation)]
    assert names == ["step", *FIELDS, "evaluated", "mechanism"]
    assert [name.replace("lambda_", "lambda") for name in FIELDS] == [*MEASUREMENTS]


@given(st.one_of(st.none(), any_float))
def test_none_is_not_measured_and_non_finite_is_infinite(value: float | None) -> None:
    held_as = in_convention(value)
    if value is None:
        assert math.isnan(held_as)
    elif math.isfinite(value):
        assert held_as == value
    else:
        assert held_as == INF
    assert bits([Observation(step=1, grad_norm=value)["grad_norm"]]) == bits([held_as])


def test_an_observation_answers_to_the_names_of_the_log() -> None:
    values = {name: float(number) for number, name in enumerate(MEASUREMENTS)}
    observation = Observation(7, *values.values())
    assert {name: observation[name] for name in MEASUREMENTS} == values
    assert observation["lambda"] == observation.lambda_ == values["lambda"]
    assert Observation(1).evaluated is False
