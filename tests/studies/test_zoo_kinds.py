"""What every kind of training of the zoo keeps to, whoever wrote it."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import studies.zoo.kinds  # noqa: E402, F401 - registers all kinds
from studies.zoo.training import KINDS, Family, Kind, KindRun  # noqa: E402
from tests.live.faults.common import same_bits  # noqa: E402
from tests.live.live import train  # noqa: E402

STEPS, FORK = 8, 4
SINGLE = [name for name, kind in KINDS.items() if kind.processes == 1]


class Told:
    """A run of some steps, forked on the way: what the tests look at."""

    def __init__(self, name: str) -> None:
        self.run = KindRun(KINDS[name](), 0, STEPS)
        self.losses = train(self.run, FORK)
        self.fork = self.run.state_dict()
        self.held_out = self.run.held_out_loss("judge")
        self.losses += train(self.run, STEPS - FORK)
        self.end = self.run.state_dict()


@pytest.fixture(scope="module", params=SINGLE)
def told(request: pytest.FixtureRequest) -> Told:
    torch.set_num_threads(1)
    return Told(request.param)


@pytest.mark.slow
def test_losses_and_held_out_loss_are_finite_and_it_changes_its_weights(told: Told) -> None:
    assert all(math.isfinite(loss) for loss in told.losses)
    assert math.isfinite(told.held_out) and told.held_out > 0.0
    assert not same_bits(told.fork["model"], told.end["model"])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(told: Told) -> None:
    again = KindRun(told.run.kind, 0, STEPS)
    assert train(again, FORK) == told.losses[:FORK]
    assert same_bits(again.state_dict()["model"], told.fork["model"])
    assert train(KindRun(told.run.kind, 1, STEPS), FORK) != told.losses[:FORK]


@pytest.mark.slow
def test_a_fork_goes_on_bit_for_bit_and_judging_changes_nothing(told: Told) -> None:
    fork = KindRun(told.run.kind, 0, STEPS).load_state_dict(told.fork)
    assert train(fork, 2) == told.losses[FORK : FORK + 2]
    assert fork.held_out_loss("judge") == fork.held_out_loss("judge")
    assert train(fork, STEPS - FORK - 2) == told.losses[FORK + 2 :]
    assert same_bits(fork.state_dict(), told.end)


@pytest.mark.slow
def test_a_batch_is_a_function_of_seed_and_step(told: Told) -> None:
    kind = told.run.kind
    run = KindRun(kind, 0, STEPS)

    def batch(step: int) -> dict[str, Any]:
        run.step = step
        return vars(kind.batch(run.rng("batch"), step))

    assert same_bits(batch(3), batch(3))
    assert not same_bits(vars(run.held_out_batch("judge")), vars(run.held_out_batch("evaluation")))


@pytest.mark.parametrize("name", list(KINDS))
def test_says_what_it_is(name: str) -> None:
    kind = KINDS[name]
    assert kind.name == name
    assert kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}(")
    assert kind.__doc__ != Kind.__doc__
    assert kind.why and kind.optimizer
    assert kind.family in get_args(Family)


@pytest.mark.parametrize("name", list(KINDS))
def test_learning_rate_stays_between_nothing_and_its_peak(name: str) -> None:
    kind = KINDS[name]()
    rates = [kind.rate(step, 400) for step in range(1, 401)]
    assert min(rates) >= 0.0 and 0.5 < max(rates) <= 1.0 + 1e-12
    assert np.all(np.isfinite(rates))


def test_forty_kinds_of_eight_families_with_eight_optimizers() -> None:
    kinds = [kind for _, kind in KINDS.items()]
    assert len(kinds) >= 40
    assert len({kind.family for kind in kinds}) >= 8
    assert len({kind.optimizer for kind in kinds}) >= 8
