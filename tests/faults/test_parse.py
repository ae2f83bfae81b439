from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmetric.errors import UserError
from rmetric.faults import (
    FAULTS,
    SEVERITIES,
    CombinedFault,
    Fault,
    RunProcesses,
    make_fault,
    parse_fault,
    register_fault,
    severities_of,
)
from rmetric.streams import RunStreams


@dataclass(frozen=True, kw_only=True)
class _Kinds(Fault):
    """A parameter of each kind."""

    source = "a test"
    count: int = 1
    share: float = 0.5
    on: bool = False
    word: str = "plain"
    maybe: int | None = None
    text_or_none: str | None = "text"
    either: Literal["left", "right"] = "left"
    level: Literal[1, 2] = 1
    several: tuple[int, ...] = ()

    def simulate(self, state: RunProcesses, active: np.ndarray, rng: RunStreams) -> None:
        state.stall_s += active


@pytest.fixture
def kinds(clean_registries: None) -> Callable[[str], Fault]:
    """Parses the parameters of :class:`_Kinds`."""
    register_fault("KINDS")(_Kinds)
    return lambda text: parse_fault(f"KINDS:{text}")


@pytest.mark.parametrize("name", list(FAULTS))
@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_name_and_a_severity_are_what_make_fault_makes(name: str, severity: str) -> None:
    assert parse_fault(f"{name}@{severity}") == make_fault(name, severity)
    assert parse_fault(name, severity) == make_fault(name, severity)
    assert parse_fault(name) == make_fault(name, "medium")


def test_parameters_go_over_those_of_the_severity() -> None:
    made = parse_fault("SILENT_DATA_CORRUPTION@low:target=gradient,bit=29,persistence=recurring")
    assert made == make_fault("SILENT_DATA_CORRUPTION", "low", target="gradient", bit=29, persistence="recurring")


def test_each_part_of_a_combination_has_its_own_severity_and_parameters() -> None:
    made = parse_fault("LR_SPIKE@high:duration_steps=5 + DATA_CORRUPTION:what=labels + NODE_FAILURE", "low")
    assert isinstance(made, CombinedFault)
    assert made.members == (
        make_fault("LR_SPIKE", "high", duration_steps=5),
        make_fault("DATA_CORRUPTION", "low", what="labels"),
        make_fault("NODE_FAILURE", "low"),
    )
    assert made.label == "LR_SPIKE+DATA_CORRUPTION+NODE_FAILURE"


@pytest.mark.parametrize("spelling", ["1000", "1e3", "1e+3", "1.E+3", " 1e+03 "])
def test_the_plus_of_a_number_joins_no_faults(spelling: str) -> None:
    assert parse_fault(f"GRADIENT_EXPLOSION:scale={spelling}+LR_SPIKE").parts == (
        make_fault("GRADIENT_EXPLOSION", scale=1000.0),
        make_fault("LR_SPIKE"),
    )


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("count=-3", "count", -3),
        ("share=1e-3", "share", 0.001),
        ("share=2", "share", 2.0),
        ("on=true", "on", True),
        ("on=False", "on", False),
        ("word=layers.*.q_proj", "word", "layers.*.q_proj"),
        ("word=", "word", ""),
        ("word=a:b=c@d", "word", "a:b=c@d"),
        ("word=3", "word", "3"),
        ("maybe=7", "maybe", 7),
        ("maybe=none", "maybe", None),
        ("text_or_none=none", "text_or_none", None),
        ("text_or_none=some", "text_or_none", "some"),
        ("either=right", "either", "right"),
        ("level=2", "level", 2),
        ("duration_steps=9", "duration_steps", 9),
    ],
)
def test_a_value_has_the_type_of_its_field(kinds: Callable[[str], Fault], text: str, name: str, value: object) -> None:
    found = getattr(kinds(text), name)
    assert found == value
    assert type(found) is type(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_survives_its_spelling(number: float) -> None:
    spelling = f"LOW_PRECISION_ATTENTION:bias_ulp={number!r}"
    assert parse_fault(spelling) == make_fault("LOW_PRECISION_ATTENTION", bias_ulp=number)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("KINDS:count=1.5", "KINDS:count=1.5 cannot be read; give a whole number"),
        ("KINDS:share=much", "KINDS:share=much cannot be read; give a finite number"),
        ("KINDS:share=nan", "KINDS:share=nan cannot be read; give a finite number"),
        ("KINDS:share=inf", "KINDS:share=inf cannot be read; give a finite number"),
        ("KINDS:on=1", "KINDS:on=1 cannot be read; give true or false"),
        ("KINDS:maybe=x", "KINDS:maybe=x cannot be read; give a whole number or none"),
        ("KINDS:either=up", "KINDS:either=up cannot be read; give one of left, right"),
        (
            "KINDS:several=1",
            "KINDS:several=1 cannot be read; give it in Python: it has no spelling on the command line",
        ),
        ("KINDS:counts=1", "unknown parameter of KINDS 'counts'; did you mean 'count'?"),
        ("KINDS:name=x", "unknown parameter of KINDS 'name'"),
        ("KINDS:count", "KINDS:count has no value; write count=a whole number"),
        ("KINDS:count=1,count=2", "KINDS gets count twice; give it once"),
        ("KINDS:count=1,", "unknown parameter of KINDS ''"),
        ("LR_SPIK", "unknown fault 'LR_SPIK'; did you mean 'LR_SPIKE'?"),
        ("LR_SPIK:factor=2", "unknown fault 'LR_SPIK'; did you mean 'LR_SPIKE'?"),
        ("LR_SPIKE@hihg", "unknown severity 'hihg'; choose one of low, medium, high"),
        ("LR_SPIKE@", "fault 'LR_SPIKE@' cannot be read; write NAME, NAME@severity or NAME@severity:key=value"),
        ("LR_SPIKE:", "fault 'LR_SPIKE:' cannot be read; write NAME, NAME@severity or NAME@severity:key=value"),
        ("", "fault '' cannot be read"),
        ("LR_SPIKE+", "fault '' cannot be read"),
        (":factor=2", "fault ':factor=2' cannot be read"),
        ("LR_SPIKE@low+LR_SPIKE@high", "LR_SPIKE+LR_SPIKE names a fault twice; name each once"),
        ("SILENT_DATA_CORRUPTION:bit=32", "SILENT_DATA_CORRUPTION has no bit=32; choose 0 to 22 (mantissa)"),
        ("GRADIENT_EXPLOSION:ramp_steps=0", "GRADIENT_EXPLOSION has ramp_steps=0; choose at least 1"),
        ("GRADIENT_EXPLOSION:scale=0", "GRADIENT_EXPLOSION has scale=0.0; choose one above 0"),
        ("LR_SPIKE:duration_steps=-5", "LR_SPIKE has duration_steps=-5; choose at least 0"),
        ("HALF_FROZEN:duration_steps=-5", "HALF_FROZEN has duration_steps=-5; choose at least 0"),
        ("HALF_FROZEN:share=1.5", "HALF_FROZEN has share=1.5; choose at most 1"),
        ("MOMENTUM_WRONG:momentum=1", "MOMENTUM_WRONG has momentum=1.0; choose one below 1"),
        ("NODE_FAILURE:incubation_steps=-3", "NODE_FAILURE has incubation_steps=-3.0; choose at least 0"),
        ("NODE_FAILURE:events_per_step=7", "NODE_FAILURE has events_per_step=7.0; choose at most 1"),
        ("NETWORK_DEGRADATION:delay_ms=-1", "NETWORK_DEGRADATION has delay_ms=-1.0; choose at least 0"),
    ],
)
def test_a_wrong_spelling_is_answered_with_one_line(text: str, message: str, clean_registries: None) -> None:
    register_fault("KINDS")(_Kinds)
    with pytest.raises(UserError) as caught:
        parse_fault(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "severities"),
    [
        ("LR_SPIKE", "medium"),
        ("LR_SPIKE+DATA_CORRUPTION@high", "medium+high"),
        ("LR_SPIKE@low:factor=1e+3 + DATA_CORRUPTION", "low+medium"),
    ],
)
def test_each_part_has_its_own_severity(text: str, severities: str) -> None:
    assert severities_of(text) == severities
