from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from tests.faults.common import disturbed, pair


@pytest.mark.parametrize(
    ("severity", "scale", "ramp"), [("low", 10.0, 40), ("medium", 100.0, 40), ("high", 1000.0, 10)]
)
def test_every_workers_gradient_ramps_geometrically_to_its_factor(severity: str, scale: float, ramp: int) -> None:
    factor = disturbed(make_fault("GRADIENT_EXPLOSION", severity)).worker_gradient_factor
    assert (factor == factor[:, :, :1]).all()
    assert np.allclose(factor[:, 200 : 200 + ramp, 0], scale ** (np.arange(1, ramp + 1) / ramp), rtol=1e-6)
    assert np.allclose(factor[:, 200 + ramp : 300, 0], scale, rtol=1e-6)


def test_the_low_severity_ends_after_a_hundred_steps_and_the_others_never() -> None:
    low, medium = (disturbed(make_fault("GRADIENT_EXPLOSION", severity)) for severity in ("low", "medium"))
    assert (low.worker_gradient_factor[:, 299] > 9.9).all()
    assert (low.worker_gradient_factor[:, 300:] == 1.0).all()
    assert (medium.worker_gradient_factor[:, 300:] > 99.0).all()


def test_the_logged_norm_explodes_and_clipping_holds_the_update() -> None:
    runs = pair("GRADIENT_EXPLOSION", "medium")
    norms = runs.faulty.grad_norm[:, 450:] / runs.control.grad_norm[:, 450:]
    updates = runs.faulty.update_rms[:, 450:] / runs.control.update_rms[:, 450:]
    assert norms.min() > 50.0
    assert updates.max() < 10.0


def test_each_step_throws_the_parameters_off_by_a_little() -> None:
    state, healthy = (disturbed(make_fault("GRADIENT_EXPLOSION", name)) for name in ("high", "low"))
    assert (state.kick[:, 250] > healthy.kick[:, 250]).all()
    assert np.median(state.kick[:, 250]) < 0.5


def test_training_heals_it_when_it_stops() -> None:
    runs = pair("GRADIENT_EXPLOSION", "low")
    assert runs.faulty.cleared == [500] * 8
    assert np.abs(runs.relative_excess[:, -1]).max() < 0.005
    assert [outcome.kind for outcome in runs.outcomes] == ["recovered"] * 8
