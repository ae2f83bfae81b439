"""Tests of studies.sdc.run: a whole campaign, small, and the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.log_reader import read_log
from rmetric.measurements import MACHINE_MEASUREMENTS
from rmetric.records import Run
from studies.sdc.campaign import Campaign
from studies.sdc.plan import Injection, Settings
from studies.sdc.report import write_results
from studies.sdc.run import CampaignResult, repair_policy, run_campaign
from studies.sdc.twin import healthy_run

CLOCK = (*MACHINE_MEASUREMENTS, "lambda_norm", "r_metric", "time_s", "seconds")
"""What two equal runs do not share."""
SETTINGS = Settings(rows=3, length=16, workers=3, window=6)
UP = "model.layers.1.mlp.up_proj"


def _injection(**fields: object) -> Injection:
    return Injection(**{"step": 8, "kernel": "mlp", "layer": 1, "element": 5, "bit": 30, **fields})  # type: ignore[arg-type]


CAMPAIGN = Campaign(
    settings=SETTINGS,
    injections=(
        _injection(stage="backward", target="weight_gradient", tensor=f"{UP}.weight", worker=1, call=4),
        _injection(stage="memory", target="weight", tensor=f"{UP}.weight"),
        _injection(stage="payload", target="payload", tensor=f"{UP}.weight", worker=2, bit=22),
    ),
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> CampaignResult:
    return run_campaign(CAMPAIGN, tmp_path_factory.mktemp("first"), policy=repair_policy)


@pytest.mark.slow
def test_top_bits_do_harm_and_low_ones_none(result: CampaignResult) -> None:
    gradient, weight, payload = (item.effect for item in result.results)
    assert gradient.outcome == "spike"
    assert gradient.largest_norm_factor > 1e6
    assert weight.outcome in ("non_finite", "dead", "diverged")
    assert payload.outcome == "benign"
    assert 0.0 < payload.weights_distance < 0.01
    assert payload.largest_excess == pytest.approx(0.0, abs=1e-4)


def test_every_injection_stands_in_its_log_with_its_place(result: CampaignResult) -> None:
    for item in result.results:
        log = read_log(result.out / f"injection_{item.number:04}.jsonl")
        event = log.first("CORRUPTION")
        assert event is not None
        assert (event["step"], event["tensor"], event["bit"]) == (8, item.injection.tensor, item.injection.bit)
        assert log.onset == 8
        assert log.terminal is not None


def test_the_place_and_the_worker_are_found(result: CampaignResult) -> None:
    assert all(item.diagnosis_score.tensor and item.diagnosis_score.layer for item in result.results)
    assert [item.diagnosis_score.worker for item in result.results] == [True, None, True]
    assert result.results[0].suspect == 1
    assert result.results[0].disagreement_alarm


def test_what_did_harm_is_repaired_to_the_last_bit(result: CampaignResult) -> None:
    gradient, weight, payload = (item.repaired for item in result.results)
    assert gradient is not None
    assert gradient.identical
    assert gradient.verdicts == ("RecomputeStep: transient",)
    assert gradient.steps == (8,)
    assert gradient.outcome == "benign"
    assert weight is not None
    assert weight.identical
    assert weight.verdicts == ("RestoreState: restored",)
    assert payload is None
    assert result.twin.repairs == 0


@pytest.mark.slow
def test_the_same_campaign_gives_the_same_logs(result: CampaignResult, tmp_path: Path) -> None:
    CAMPAIGN.save(tmp_path / "campaign.json")
    again = run_campaign(Campaign.load(tmp_path / "campaign.json"), tmp_path, policy=repair_policy)
    names = sorted(path.name for path in result.out.glob("*.jsonl"))
    assert len(names) == 6
    for name in names:
        assert _told(read_log(tmp_path / name)) == _told(read_log(result.out / name)), name
    assert again.results[0].effect == result.results[0].effect


def _told(run: Run) -> tuple[object, ...]:
    columns = {name: column.tobytes() for name, column in run.observations.columns.items() if name not in CLOCK}
    events = [
        {key: value for key, value in event.items() if key not in CLOCK}
        for event in run.events
        if event["event"] != "HARDWARE_EVENT"
    ]
    return run.config, columns, events


@pytest.mark.slow
def test_without_a_policy_nothing_is_tried_again(tmp_path: Path) -> None:
    only = replace(CAMPAIGN, injections=CAMPAIGN.injections[:1])
    found = run_campaign(only, tmp_path)
    assert found.results[0].repaired is None
    assert found.policy == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["injection_0000.jsonl", "twin.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "top"), [("bfloat16", 14), ("float16", 14)])
def test_products_of_16_bit_numbers_are_hit_under_autocast(tmp_path: Path, dtype: str, top: int) -> None:
    settings = replace(SETTINGS, dtype=dtype, window=5)
    flip = _injection(stage="forward", target="output", tensor=UP, worker=0, call=16, bit=top, step=3)
    (found,) = run_campaign(Campaign(settings=settings, injections=(flip,)), tmp_path, policy=repair_policy).results
    assert found.dtype == dtype
    assert found.bit_part == "exponent"
    assert found.diagnosis_score.worker
    assert found.diagnosis_score.tensor


def test_tables_of_an_earlier_campaign_do_not_stay(result: CampaignResult, tmp_path: Path) -> None:
    (mine := tmp_path / "sdc_mine.md").write_text("of no campaign")
    write_results(result, None, tmp_path, "")
    assert len({*tmp_path.glob("sdc_repair.*")}) == 3
    write_results(replace(result, policy=()), None, tmp_path, "")
    assert not {*tmp_path.glob("sdc_repair.*")}
    assert mine.exists()


@pytest.mark.slow
def test_a_product_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    flip = replace(CAMPAIGN.injections[0], call=999)
    with pytest.raises(UserError, match="hit nothing"):
        run_campaign(replace(CAMPAIGN, injections=(flip,)), tmp_path)


def test_a_healthy_run_is_left_alone() -> None:
    told: list[int] = []
    found = healthy_run(SETTINGS, 12, repair_policy, told.append)
    assert sum(told) == 2 * 12
    assert found.steps == 12
    assert found.identical
    assert found.false_repairs == 0
    assert found.computations_pct == pytest.approx(100.0 * found.suspicions / 12)
