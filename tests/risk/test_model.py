"""The model ships, streams and needs no scikit-learn; its file is read back exactly or refused in one line."""

import json
from collections import Counter
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.faults import FAULTS
from rmetric.log_reader import read_log
from rmetric.records import Observations
from rmetric.risk.features import features_of
from rmetric.risk.model import FAMILIES, RiskModel, cumulative, family_of
from rmetric.risk.model_file import to_json
from rmetric.risk.parameters import BENIGN, UNKNOWN
from tests.helpers import healthy_observations, printed_by
from tests.risk.helpers import bits


@pytest.fixture(scope="module")
def shipped() -> RiskModel:
    return RiskModel.shipped()


def test_the_shipped_model_is_small_and_says_what_it_was_made_of(shipped: RiskModel) -> None:
    file = files("rmetric.risk").joinpath("model.json")
    assert len(file.read_bytes()) < 300_000
    made = shipped.parameters.provenance
    assert made["half"].startswith("fit")
    assert len(made["data_sha256"]) == 64
    assert {"numpy", "scikit-learn"} <= {*made["libraries"]}


def test_probabilities_are_probabilities_and_a_longer_horizon_is_never_safer(
    shipped: RiskModel, real_logs: list[Path]
) -> None:
    for log in real_logs:
        said = shipped.assess_features(features_of(read_log(log).observations))
        assert ((said.risk >= 0) & (said.risk <= 1)).all()
        assert (np.diff(said.risk, axis=1) >= 0).all()
        assert ((said.heals >= 0) & (said.heals <= 1)).all()
        assert said.families.sum(axis=1) == pytest.approx(1.0)
        assert {*said.family.tolist()} <= {*said.names, UNKNOWN}
    assert {*shipped.parameters.families.names} <= {*FAMILIES}


def test_one_by_one_gives_the_same_bits(shipped: RiskModel, real_logs: list[Path]) -> None:
    observations = read_log(real_logs[1]).observations.rows(slice(0, 200))
    many, watching = shipped.assess_features(features_of(observations)), shipped.fresh()
    single = [watching.update(row) for row in observations]
    assert bits([[*row.risk.values()] for row in single]) == bits(many.risk)
    assert bits([row.heals for row in single]) == bits(many.heals)
    assert bits([[*row.families.values()] for row in single]) == bits(many.families)
    assert [row.family for row in single] == many.family.tolist()
    assert [row.step for row in single] == observations.step.tolist()
    assert bits(shipped.risk(observations)) == bits(many.risk)


def healthy(length: int, every: int = 1) -> Observations:
    """A run in which nothing happens, with a record every so many steps."""
    return Observations(every * np.arange(1, length + 1), healthy_observations(length).columns)


def test_a_loss_that_is_not_finite_is_a_failure_already(shipped: RiskModel) -> None:
    run = healthy(60)
    run.columns["training_loss"][40:50] = np.inf
    risk, watching = shipped.risk(run), shipped.fresh()
    single = [watching.update(row) for row in run]
    assert (risk[40:50] == 1.0).all() and (risk[:40] < 1.0).all() and (risk[50:] < 1.0).all()
    assert bits([[*row.risk.values()] for row in single]) == bits(risk)
    assert {row.heals for row in single[40:50]} == {0.0} and single[50].heals > 0.0


def test_a_record_every_hundred_steps_is_said_to_be_out_of_range_once(shipped: RiskModel) -> None:
    near, far = healthy(50), healthy(50, every=100)
    said = "a record every 100 steps is out of the range of the risk model, which was fitted to one every 1:"
    watching = shipped.fresh()
    with pytest.warns(UserWarning, match=said):
        assert bits(shipped.risk(far)) == bits(shipped.risk(near))
    with pytest.warns(UserWarning, match=said) as warned:
        assert len([watching.update(row) for row in far]) == 50
    assert len(warned) == 1


def test_assessing_a_run_leaves_the_model_as_it_was(shipped: RiskModel) -> None:
    first, again = shipped.fresh(), shipped.fresh()
    again.risk(healthy(50))
    row = next(iter(healthy(20)))
    assert first.update(row) == again.update(row)


def test_hazards_add_up_as_survival_does() -> None:
    assert cumulative(np.array([[0.1, 0.2]])) == pytest.approx(np.array([[0.1, 1.0 - 0.9 * 0.8]]))


def test_a_family_below_the_bar_is_not_named(shipped: RiskModel) -> None:
    families = shipped.parameters.families
    even = np.full((1, len(families.names)), 1.0 / len(families.names))
    sure = np.eye(len(families.names))[:1]
    assert families.bar > even[0, 0]
    assert [*families.name(even), *families.name(sure)] == [UNKNOWN, families.names[0]]


@pytest.mark.parametrize("damage", ["{", "[]", "3", "{}", '{"version": 99, "features": []}', "cut", "hole", "kind"])
def test_a_file_that_is_no_model_is_refused_in_one_line(shipped: RiskModel, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "model.json"
    text = to_json(shipped.parameters)
    content = json.loads(text)
    if damage == "hole":
        del content["heals"]["slope"]
    if damage == "kind":
        content["heals"]["kind"] = "forest"
    made = {"cut": text[:-100], "hole": json.dumps(content), "kind": json.dumps(content)}
    path.write_text(made.get(damage, damage))
    with pytest.raises(UserError, match=r"studies\.risk\.fit") as caught:
        RiskModel.load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(UserError, match="cannot be read"):
        RiskModel.load("no/such/model.json")


def test_the_shipped_model_needs_no_scikit_learn() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from rmetric.measurements import Observation\n"
        "from rmetric.risk.model import RiskModel\n"
        "print(len(RiskModel.shipped().update(Observation(1, training_loss=3.0)).risk))"
    )
    assert int(printed_by(program)) == len(RiskModel.shipped().horizons)


def test_every_simulated_fault_has_exactly_one_family() -> None:
    count = Counter(fault for faults in FAMILIES.values() for fault in faults)
    assert set(count) == {name for name, fault in FAULTS.items() if fault.simulated}
    assert set(count.values()) == {1}
    assert all(family_of(fault) in FAMILIES for fault in count)


def test_a_control_run_is_benign_and_a_stranger_unknown() -> None:
    assert family_of("NONE") == BENIGN
    assert family_of("NIC_FLAP") == UNKNOWN
