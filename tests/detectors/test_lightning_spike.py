"""Lightning's rule against Lightning's own class."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rmetric.detectors import LightningSpike
from rmetric.records import Observations


def _scores(losses: np.ndarray, **settings: float) -> np.ndarray:
    run = Observations(np.arange(1, len(losses) + 1), {"training_loss": losses})
    return LightningSpike(**settings).score_run(run)  # type: ignore[arg-type]


def _losses(seed: int) -> np.ndarray:
    """A falling loss with spikes of all sizes, some of them not finite."""
    rng = np.random.default_rng(seed)
    losses = 1.0 + 3.0 * np.exp(-np.arange(300) / 60.0) + 0.05 * rng.standard_normal(300)
    hit = rng.random(300) < 0.1
    losses[hit] *= rng.uniform(0.3, 6.0, hit.sum())
    losses[1:][rng.random(299) < 0.02] = math.inf
    return losses


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(3))
def test_it_calls_the_same_losses_spikes_as_lightning_does(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("torchmetrics")
    torch = pytest.importorskip("torch")
    spike = pytest.importorskip("lightning.fabric.utilities.spike", reason="needs the extra 'lightning'")
    alone = {"barrier": lambda: None, "reduce_boolean_decision": lambda value, **_: value}
    fabric = SimpleNamespace(global_rank=0, strategy=SimpleNamespace(root_device=torch.device("cpu"), **alone))
    theirs, detection = [], spike.SpikeDetection(exclude_batches_path=tmp_path / "skip.json")
    losses = _losses(seed)
    for index, loss in enumerate(losses):
        try:
            detection.on_train_batch_end(fabric, torch.tensor(loss, dtype=torch.float64), None, index)
            theirs.append(False)
        except spike.TrainingSpikeException:
            theirs.append(True)
    ours = _scores(losses) > LightningSpike().threshold
    assert ours.tolist() == theirs
    assert 5 < sum(theirs) < 100


def test_the_score_is_the_distance_from_the_mean_of_ten() -> None:
    losses = np.linspace(3.0, 2.0, 30)
    losses[20] = 5.0
    mean = losses[10:20].mean()
    scores = _scores(losses)
    assert scores[20] == pytest.approx((5.0 - mean) / mean)
    assert scores[1:20].tolist() == [0.0] * 19  # a loss that falls is never a spike


def test_a_spike_does_not_enter_the_mean() -> None:
    losses = np.full(30, 2.0)
    losses[[10, 11]] = 7.0
    assert _scores(losses)[[10, 11]].tolist() == [2.5, 2.5]


def test_nothing_is_said_of_the_first_record() -> None:
    assert math.isnan(_scores(np.array([9.0, 9.0]))[0])
    assert np.isnan(_scores(np.arange(1.0, 6.0), warm_up=3)).tolist() == [True] * 3 + [False] * 2


def test_a_mean_of_zero_divides_nothing() -> None:
    assert _scores(np.array([0.0, 0.0, 1.0]))[2] == math.inf
