from __future__ import annotations

import pytest

from rmetric.errors import UserError
from rmetric.faults import CombinedFault, LrSpike
from rmetric.simulation import RunSpec


def test_a_control_run_has_no_fault() -> None:
    spec = RunSpec(architecture="llama-3-8b")
    assert spec.is_control
    assert spec.make_fault() is None
    assert spec.profile.model_type == "Llama-3-8B"
    assert (spec.steps, spec.log_every, spec.eval_every) == (5000, 10, 100)


def test_a_fault_is_made_at_its_severity() -> None:
    assert RunSpec(architecture="llama-3-8b", fault="LR_SPIKE", severity="high").make_fault() == LrSpike(factor=25.0)
    combined = RunSpec(architecture="llama-3-8b", fault="LR_SPIKE+NODE_FAILURE").make_fault()
    assert isinstance(combined, CombinedFault)


def test_the_twin_shares_the_seed_and_everything_but_the_fault() -> None:
    spec = RunSpec(
        architecture="mistral-7b", fault="LR_SPIKE", severity="high", seed=5, onset=7, steps=400, log_every=20
    )
    twin = spec.twin()
    assert twin == RunSpec(architecture="mistral-7b", severity="high", seed=5, steps=400, log_every=20)
    assert twin.is_control


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (
            {"fault": "LR_SPIKE", "severity": "low", "number": 7, "repetition": 3},
            "run_007_llama-3-8b_lr_spike_low_rep3",
        ),
        ({"number": 1234, "severity": "high"}, "run_1234_llama-3-8b_none_rep1"),
        ({"fault": "LR_SPIKE+NODE_FAILURE"}, "run_000_llama-3-8b_lr_spike-node_failure_medium_rep1"),
        ({"name": "my_run"}, "my_run"),
    ],
)
def test_the_name_says_what_the_run_is(changes: dict, name: str) -> None:
    assert RunSpec(architecture="llama-3-8b", **changes).experiment_id == name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "at least 1"),
        ({"steps": 1_000_001}, "at most 1,000,000 steps"),
        ({"log_every": 0}, "at least 1"),
        ({"eval_every": -1}, "at least 1"),
        (
            {"steps": 5, "log_every": 10},
            "a record every 10 steps leaves a run of 5 without any; lower --log-every",
        ),
        ({"fault": "LR_SPIKE", "onset": 0}, "fault step 0 is not within the run's steps 1 to 5000"),
        ({"fault": "LR_SPIKE", "onset": 5001}, "fault step 5001"),
        ({"fault": "LR_SPKE"}, "did you mean 'LR_SPIKE'"),
        ({"architecture": "lama"}, "did you mean 'llama-3-8b'"),
        ({"fault": "EXPERT_FAILURE"}, "needs a mixture-of-experts model"),
    ],
)
def test_a_run_that_cannot_be_is_the_users_error(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RunSpec(**{"architecture": "llama-3-8b", **changes})


def test_an_unknown_severity_is_found_when_the_fault_is_made() -> None:
    with pytest.raises(UserError, match="unknown severity 'extreme'"):
        RunSpec(architecture="llama-3-8b", fault="LR_SPIKE", severity="extreme").make_fault()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_an_impossible_seed_is_the_user_s_to_mend(seed: int) -> None:
    with pytest.raises(UserError, match="seed must be a whole number"):
        RunSpec(architecture="llama-3-8b", seed=seed)
