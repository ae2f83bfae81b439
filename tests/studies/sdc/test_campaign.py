"""Tests of studies.sdc.campaign and plan."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rmetric.errors import UserError
from studies.sdc.campaign import ORDER, Campaign
from studies.sdc.plan import Injection, Settings

SETTINGS = Settings(rows=4, length=16, workers=2, window=6)
FLIP = Injection(step=2, stage="payload", target="payload", kernel="mlp", tensor="w", worker=0)


@pytest.fixture(scope="module")
def drawn() -> Campaign:
    return Campaign.drawn(SETTINGS, seed=3, injections=60, onsets=(5, 7))


def test_the_same_seed_draws_the_same_and_another_draws_another(drawn: Campaign) -> None:
    assert Campaign.drawn(SETTINGS, seed=3, injections=60, onsets=(5, 7)) == drawn
    assert Campaign.drawn(SETTINGS, seed=4, injections=60, onsets=(5, 7)) != drawn


def test_stages_and_onsets_come_equally_often(drawn: Campaign) -> None:
    stages = Counter(injection.stage for injection in drawn.injections)
    assert stages == {stage: 10 * ORDER.count(stage) for stage in set(ORDER)}
    steps = Counter(injection.step for injection in drawn.injections)
    assert abs(steps[5] - steps[7]) <= 4
    assert {injection.kernel for injection in drawn.injections if injection.stage == "forward"} >= {
        "query", "key", "value", "scores", "mixing", "output projection", "mlp", "lm_head"
    }  # fmt: skip


def test_stages_and_bits_can_be_chosen() -> None:
    chosen = Campaign.drawn(SETTINGS, injections=12, onsets=(5,), stages=("payload", "forward"), bits=(30, 29))
    assert [injection.stage for injection in chosen.injections] == ["payload", "forward"] * 6
    assert Counter(injection.bit for injection in chosen.injections) == {30: 6, 29: 6}
    with pytest.raises(UserError, match="float32 numbers have no bit 32; choose 0 to 31"):
        Campaign.drawn(SETTINGS, injections=1, onsets=(5,), bits=(32,))


def test_a_campaign_comes_back_from_its_file_and_can_be_read(drawn: Campaign, tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    drawn.save(path)
    assert Campaign.load(path) == drawn
    content = json.loads(path.read_text())
    assert content["schema_version"] == 1
    assert content["model"] == "tiny-llama"
    assert len(content["injections"]) == 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 9}, "schema version"),
        ({"dtype": "int8"}, "dtype"),
        ({"colour": "red"}, "colour"),
        ({"rows": "four"}, "rows"),
        ({"injections": []}, "at least one"),
        ({"injections": [{"step": 5}]}, "missing"),
        ({"injections": [{"bit": "top"}]}, "bit"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(
    drawn: Campaign, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "campaign.json"
    drawn.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        Campaign.load(path)


@pytest.mark.parametrize(
    "change",
    [{"stage": "forward"}, {"worker": None}, {"call": 3}, {"step": 1}, {"recurs": 1.5}, {"target": "nothing"}],
)
def test_an_injection_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError):
        replace(FLIP, **change)


def test_what_lies_in_memory_or_recurs_is_not_transient() -> None:
    assert FLIP.transient
    assert not replace(FLIP, recurs=0.5).transient
    assert not replace(FLIP, stage="memory", target="weight", worker=None).transient
    assert replace(FLIP, stage="memory", target="gradient", worker=None).transient
