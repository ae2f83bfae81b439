"""Spike rules: Lightning, OLMo, robust z-score, update RMS, ZClip."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import median_abs_deviation

from rmetric.detectors import LightningSpike, OlmoSpike, RobustZ, UpdateRmsThreshold, ZClip
from rmetric.records import Observations
from rmetric.robust.reference import RobustReference
from tests.detectors.common import noisy_losses, scores_of
from tests.helpers import bits

# --- lightning spike -------------------------------------------------------------------------------------------------
# Lightning's rule against Lightning's own class.


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
    ours = scores_of(LightningSpike(), losses) > LightningSpike().threshold
    assert ours.tolist() == theirs
    assert 5 < sum(theirs) < 100


def test_the_score_is_the_distance_from_the_mean_of_ten() -> None:
    losses = np.linspace(3.0, 2.0, 30)
    losses[20] = 5.0
    mean = losses[10:20].mean()
    scores = scores_of(LightningSpike(), losses)
    assert scores[20] == pytest.approx((5.0 - mean) / mean)
    assert scores[1:20].tolist() == [0.0] * 19  # a loss that falls is never a spike


def test_a_spike_does_not_enter_the_mean() -> None:
    losses = np.full(30, 2.0)
    losses[[10, 11]] = 7.0
    assert scores_of(LightningSpike(), losses)[[10, 11]].tolist() == [2.5, 2.5]


def test_nothing_is_said_of_the_first_record() -> None:
    assert math.isnan(scores_of(LightningSpike(), np.array([9.0, 9.0]))[0])
    assert np.isnan(scores_of(LightningSpike(warm_up=3), np.arange(1.0, 6.0))).tolist() == [True] * 3 + [False] * 2


def test_a_mean_of_zero_divides_nothing() -> None:
    assert scores_of(LightningSpike(), np.array([0.0, 0.0, 1.0]))[2] == math.inf


# --- olmo spike ------------------------------------------------------------------------------------------------------
# OLMo's rule: six standard deviations above the mean of the last 128 values.


def _run(loss: np.ndarray, norm: np.ndarray | None = None) -> Observations:
    columns = {"training_loss": loss} | ({} if norm is None else {"grad_norm": norm})
    return Observations(np.arange(1, len(loss) + 1), columns)


def test_the_score_is_the_distance_from_the_mean_of_the_window_before() -> None:
    loss = noisy_losses(400)
    scores = OlmoSpike().score_run(_run(loss))
    assert np.isnan(scores[:128]).all()
    expected = [(loss[i] - loss[i - 128 : i].mean()) / loss[i - 128 : i].std() for i in range(128, 400)]
    assert scores[128:] == pytest.approx(expected)


def test_the_larger_of_the_two_scores_counts() -> None:
    loss, norm = noisy_losses(400), noisy_losses(400, seed=1)
    loss[200], norm[300] = 6.0, 9.0
    both = OlmoSpike().score_run(_run(loss, norm))
    alone = [OlmoSpike().score_run(_run(column)) for column in (loss, norm)]
    assert bits(both) == bits(np.fmax(*alone))
    assert [*np.flatnonzero(both > OlmoSpike().threshold)] == [200, 300]


def test_a_window_that_stands_still_says_nothing() -> None:
    assert OlmoSpike().score_run(_run(np.array([2.0] * 128 + [3.0])))[-1] == 0.0


def test_the_blocks_of_a_long_run_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = OlmoSpike().score_run(_run(noisy_losses(400)))
    monkeypatch.setattr("rmetric.detectors.spike_rules.OLMO_BLOCK", 50)
    assert bits(OlmoSpike().score_run(_run(noisy_losses(400)))) == bits(expected)


# --- robust z --------------------------------------------------------------------------------------------------------
# The robust z-score: hand-computed values, outliers that do not raise their own bar, ramps that do not alarm.


def reference(**changes: float) -> RobustReference:
    return RobustReference(**{"window": 16, "warm_up": 8, "floor": 1e-9, "clip": 5.0, **changes})  # type: ignore[arg-type]


def test_against_scipy_on_noise_without_outliers() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(3.0, 0.5, size=200)
    ours = reference(clip=1e9)
    scores = [ours.update(value) for value in values.tolist()]
    for index in range(16, 200):
        window = values[index - 16 : index]
        expected = (values[index] - np.median(window)) / (1.4826 * median_abs_deviation(window))
        assert scores[index] == pytest.approx(expected)


def test_an_outlier_enters_clipped() -> None:
    ours = reference()
    for value in (1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0):
        ours.update(value)
    first = ours.update(1e6)
    for _ in range(3):
        assert ours.update(1e6) > 0.2 * first  # a bar that followed the outliers would have risen by orders


def test_infinity_passes_and_leaves_no_trace() -> None:
    ours, twin = reference(), reference()
    for value in np.linspace(1.0, 2.0, 20).tolist():
        ours.update(value)
        twin.update(value)
    assert ours.update(math.inf) == math.inf
    assert math.isnan(ours.update(math.nan))
    assert ours.update(1.7) == twin.update(1.7)


def noisy(n: int, **columns: np.ndarray) -> Observations:
    rng = np.random.default_rng(1)
    healthy = {
        "training_loss": 2.0 + 3.0 * np.arange(1, n + 1) ** -0.5 + rng.normal(0.0, 0.05, n),
        "grad_norm": np.exp(rng.normal(0.0, 0.2, n)),
        "update_rms": 1e-3 * np.minimum(1.0, np.arange(1, n + 1) / 100.0) * np.exp(rng.normal(0.0, 0.05, n)),
    }
    return Observations(np.arange(1, n + 1), {**healthy, **columns})


def test_a_falling_loss_and_a_warm_up_do_not_alarm() -> None:
    detector = RobustZ()
    assert np.nanmax(detector.score_run(noisy(1000))) < detector.threshold


@pytest.mark.parametrize(
    ("name", "value"), [("training_loss", 4.0), ("grad_norm", 30.0), ("update_rms", 0.05), ("grad_norm", np.inf)]
)
def test_a_jump_of_any_signal_alarms_at_once(name: str, value: float) -> None:
    detector, column = RobustZ(), noisy(400)[name].copy()
    column[300] = value
    scores = detector.score_run(noisy(400, **{name: column}))
    assert scores[300] > detector.threshold
    assert np.nanmax(scores[:300]) < detector.threshold


def test_a_gradient_of_zero_is_left_to_the_detector_of_broken_numbers() -> None:
    column = noisy(400)["grad_norm"].copy()
    column[300] = 0.0
    assert RobustZ().score_run(noisy(400, grad_norm=column))[300] < RobustZ().threshold


# --- update rms threshold --------------------------------------------------------------------------------------------
# The size of an update against the mean of the last ones.


def test_the_score_is_the_ratio_to_the_moving_mean() -> None:
    sizes = 1e-4 * np.random.default_rng(0).uniform(0.9, 1.1, 200)
    scores = scores_of(UpdateRmsThreshold(), sizes)
    assert np.isnan(scores[:32]).all()
    expected = [sizes[i] / sizes[max(0, i - 64) : i].mean() for i in range(32, 200)]
    assert scores[32:] == pytest.approx(expected)


def test_the_bar_follows_a_schedule_and_an_outlier_does_not_raise_it() -> None:
    sizes = np.linspace(1e-4, 5e-4, 400)
    assert np.nanmax(scores_of(UpdateRmsThreshold(), sizes)) < 2.0
    sizes[300] *= 1000.0
    scores = scores_of(UpdateRmsThreshold(), sizes)
    assert scores[300] > 1000.0
    assert scores[301] > 0.9


def test_updates_that_begin_after_standing_still_alert() -> None:
    assert scores_of(UpdateRmsThreshold(), np.array([0.0] * 40 + [1e-4]))[[39, 40]].tolist() == [0.0, math.inf]


# --- zclip -----------------------------------------------------------------------------------------------------------
# ZClip's statistic against its update rule, written out with numpy.


def _zclip_noisy(length: int) -> np.ndarray:
    return 1.0 + 0.1 * np.random.default_rng(0).random(length)


def test_the_statistic_follows_the_published_update_rule() -> None:
    norms = _zclip_noisy(120)
    norms[[60, 61]] = 3.0, 8.0
    mean, variance = norms[:25].mean(), norms[:25].var()
    expected = [math.nan] * 25
    for norm in norms[25:]:
        deviation = np.sqrt(variance)
        z = (norm - mean) / (deviation + 1e-6)
        expected.append(z)
        if z > 2.5:
            norm = mean + 2.5 * deviation / (z / 2.5)
        mean = 0.97 * mean + 0.03 * norm
        variance = 0.97 * variance + 0.03 * (norm - mean) ** 2
    assert scores_of(ZClip(), norms) == pytest.approx(expected, rel=1e-9, nan_ok=True)


def test_a_spike_alerts_and_hardly_moves_its_own_bar() -> None:
    norms = _zclip_noisy(120)
    norms[60] = 50.0
    scores = scores_of(ZClip(), norms)
    assert scores[60] > 100.0
    assert scores[61:] == pytest.approx(scores_of(ZClip(), np.delete(norms, 60))[60:], abs=0.2)


def test_a_huge_norm_while_warming_up_does_not_blind_it_for_good() -> None:
    norms = np.concatenate([[1e300], _zclip_noisy(25_000)])
    norms[-1] = 10.0
    assert scores_of(ZClip(), norms)[-1] > 2.5
