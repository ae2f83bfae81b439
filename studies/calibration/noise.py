"""Healthy training: noise, benign spikes and shifts, from the control runs. One function a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.scores import poisson_interval
from rmetric.records import Run
from studies.calibration.real_runs import (
    FEW_DRAWS,
    Estimate,
    Pair,
    after_warm_up,
    controls,
    disturbed,
    median_over_runs,
    over_runs,
    residual,
    robust_sd,
    undisturbed,
)

Floats = NDArray[np.float64]
SPIKE_SDS = 5.0
"""Robust standard deviations above its trend beyond which a training loss is a spike."""
SPIKE_APART_STEPS = 20
"""Spikes nearer than that are one."""
FEWEST_RUNS = 2
"""Disturbed runs that a number may rest on."""
MIXED_STEPS = 40
"""Steps before and after a change of the data mix that are compared."""
REAL_WORKERS = 4


def fit_noise(runs: Sequence[Run]) -> dict[str, Estimate]:
    """All numbers of healthy training that these runs can tell, by the name of the parameter."""
    quiet = undisturbed(runs)
    found = {
        "minibatch_noise": _of_residuals(quiet, "training_loss", robust_sd),
        "held_out_noise": held_out_noise(quiet),
        "update_level": update_level(quiet),
        "update_spread": _of_residuals(quiet, "update_rms", robust_sd),
        "update_correlation_steps": _of_residuals(quiet, "update_rms", memory_steps),
        **worker_noise(quiet),
        **benign_spikes(runs),
        **bad_batches(runs),
        **mix_shifts(runs),
    }
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def _of_residuals(runs: Sequence[Run], signal: str, statistic: Callable[[Floats], float]) -> Estimate | None:
    values = [after_warm_up(run, signal) for run in runs]
    values = [part for part in values if len(part) > 100]
    return median_over_runs([statistic(residual(part)) for part in values], sum(map(len, values)))


def memory_steps(noise: Floats) -> float:
    """c of e^(-k / c), from the correlation of neighbours: -1 / ln r; 0.1 at least, where there is none.

    >>> round(memory_steps(np.cumsum([1.0, -1.0] * 50)), 1)
    0.1
    """
    correlation = float(np.corrcoef(noise[:-1], noise[1:])[0, 1])
    return -1.0 / math.log(correlation) if 0.0001 < correlation < 1.0 else 0.1


def held_out_noise(runs: Sequence[Run]) -> Estimate | None:
    """Second differences of the logarithm of the validation losses, over √6: a smooth trend drops out."""
    found, count = [], 0
    for run in runs:
        observations = run.observations
        at = observations.evaluated & np.isfinite(observations["validation_loss"])
        second = np.diff(np.log(observations["validation_loss"][at]), 2)[5:]
        found.append(robust_sd(second) / math.sqrt(6.0) if len(second) > 5 else math.nan)
        count += int(at.sum())
    return median_over_runs(found, count)


def update_level(runs: Sequence[Run]) -> Estimate | None:
    """Median of update RMS over learning rate."""
    found, count = [], 0
    for run in runs:
        rate, update = run.observations["learning_rate"], run.observations["update_rms"]
        kept = np.isfinite(update) & (rate > 0.0) & (run.observations.step > 40)
        found.append(float(np.median(update[kept] / rate[kept])) if kept.any() else math.nan)
        count += int(kept.sum())
    return median_over_runs(found, count)


# --- gradient norms of workers ---------------------------------------------------------------------------------------


def worker_noise(runs: Sequence[Run]) -> dict[str, Estimate | None]:
    """Spread and tail of the workers' gradient norms, with which ln(σ² / norm²) has the real median and spread."""
    shapes, count = [], 0
    for run in runs:
        step, observations = run.observations.step > 40, run.observations
        sigma, norm = observations["sigma_sq"][step], observations["grad_norm"][step]
        kept = np.isfinite(sigma) & np.isfinite(norm) & (sigma > 0.0) & (norm > 0.0)
        if kept.sum() > 100:
            ratio = np.log(sigma[kept] / norm[kept] ** 2)
            shapes.append((float(np.median(ratio)), float(ratio.std())))
            count += int(kept.sum())

    def spread(part: Sequence[tuple[float, float]]) -> float:
        return solve_workers(*np.median(part, axis=0).tolist())[0]

    def tail(part: Sequence[tuple[float, float]]) -> float:
        return solve_workers(*np.median(part, axis=0).tolist())[1]

    return {
        "worker_spread": over_runs(shapes, spread, count, FEW_DRAWS),
        "worker_tail": over_runs(shapes, tail, count, FEW_DRAWS),
    }


@cache
def solve_workers(median: float, sd: float) -> tuple[float, float]:
    """Spread s and tail c of exp(s z (1 + c z²)) over workers, from median and spread of ln(variance / mean²)."""
    z = np.random.default_rng(0).standard_normal((8000, REAL_WORKERS))
    cube = z**3
    spread, tail = 0.2, 0.1
    for _ in range(6):
        tail = _bisect(lambda c, s=spread: _shape(s * (z + c * cube))[1] - sd, 0.0, 1.0)  # type: ignore[misc]
        spread = _bisect(lambda s, c=tail: _shape(s * (z + c * cube))[0] - median, 0.005, 1.0)  # type: ignore[misc]
    return spread, tail


def _shape(logarithm: Floats) -> tuple[float, float]:
    norms = np.exp(logarithm)
    ratio = np.log(norms.var(axis=1) / norms.mean(axis=1) ** 2)
    return float(np.median(ratio)), float(ratio.std())


def _bisect(rises: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(16):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rises(middle) < 0.0 else (low, middle)
    return 0.5 * (low + high)


# --- what looks like a fault and is none ------------------------------------------------------------------------------


def spikes(run: Run) -> list[float]:
    """Heights over the trend of the spikes of a run's training loss, relative."""
    values = after_warm_up(run, "training_loss")
    if len(values) <= 100:
        return []
    noise = residual(values)
    at = np.flatnonzero(noise > SPIKE_SDS * robust_sd(noise))
    groups = np.split(at, np.flatnonzero(np.diff(at) > SPIKE_APART_STEPS) + 1) if len(at) else []
    return [float(np.expm1(noise[group].max())) for group in groups]


def benign_spikes(runs: Sequence[Run]) -> dict[str, Estimate | None]:
    """Rate, size and spread of the spikes of all control runs, and what the held-out loss sees of a bad batch."""
    healthy = controls(runs)
    found = [(spikes(run), len(run.observations)) for run in healthy]
    steps = sum(count for _, count in found)
    with_some = [heights for heights, _ in found if heights]
    bad = [(share, pair) for pair in disturbed(runs, "bad_batch") for share in [_healed_share(pair)] if share >= 0.0]
    return {
        "benign_spikes_per_1000_steps": events_per_1000_steps([len(heights) for heights, _ in found], steps),
        "benign_spike_size": over_runs(with_some, lambda part: float(np.median(np.concatenate(part))), steps),
        "benign_spike_spread": over_runs(
            with_some, lambda part: min(robust_sd(np.log(np.concatenate(part))), 1.0), steps
        ),
        "benign_spike_held_out": over_runs(
            [share for share, _ in bad], lambda part: float(np.clip(np.median(part), 0.0, 1.0)), len(bad)
        )
        if len(bad) >= FEWEST_RUNS
        else None,
    }


def bad_batches(runs: Sequence[Run]) -> dict[str, Estimate | None]:
    """Effect of a bad batch on the gradient norm, and on its spread over workers."""
    seen = [batch for pair in disturbed(runs, "bad_batch") for batch in [_bad_batch(pair)] if batch is not None]
    if len(seen) < FEWEST_RUNS:
        return {}
    height, norm, spread = (np.array(column) for column in zip(*seen, strict=True))
    return {
        "benign_spike_gradient": median_over_runs(np.maximum(np.log(norm) / np.log1p(height), 0.0).tolist(), len(seen)),
        "benign_spike_worker_spread": median_over_runs(np.maximum((spread - 1.0) / height, 0.0).tolist(), len(seen)),
    }


def _bad_batch(pair: Pair) -> tuple[float, float, float] | None:
    """Height of the loss, gradient norm and relative spread over workers, against the medians before."""
    observations = pair.run.observations
    before, now = _before(pair.run, pair.onset), observations.step == pair.onset
    if not now.any() or not before.any():
        return None
    loss, norm = observations["training_loss"], observations["grad_norm"]
    spread = np.sqrt(observations["sigma_sq"]) / norm
    ratios = [float(values[now][0] / np.nanmedian(values[before])) for values in (loss, norm, spread)]
    height = ratios[0] - 1.0
    return (height, ratios[1], ratios[2]) if height > 0.05 and np.isfinite(ratios).all() else None


def events_per_1000_steps(counts: Sequence[int], steps: int) -> Estimate | None:
    """Rate of rare events with the exact Poisson interval (Garwood): none in n steps is no proof that none ever comes.

    >>> found = events_per_1000_steps([0, 0], 2000)
    >>> found.value, found.low, round(found.high, 3)
    (0.0, 0.0, 1.844)
    """
    if not steps:
        return None
    events = sum(counts)
    rate, low, high = (1000.0 * number / steps for number in (events, *poisson_interval(events)))
    return Estimate(rate, low, high, len(counts), steps)


def _before(run: Run, onset: int) -> NDArray[np.bool_]:
    """The last steps before the onset."""
    step = run.observations.step
    return (step < onset) & (step >= onset - MIXED_STEPS)


def _healed_share(pair: Pair) -> float:
    """Excess of the held-out loss in the ten steps after a bad batch, over the height in the training loss."""
    lag, excess = pair.held_out
    observations = pair.run.observations
    before = _before(pair.run, pair.onset)
    now = observations["training_loss"][observations.step == pair.onset]
    height = float(now[0] / np.median(observations["training_loss"][before]) - 1.0) if len(now) else 0.0
    soon = excess[lag <= 10]
    return max(0.0, float(soon.mean()) / height) if len(soon) and height > 0.05 else math.nan


@dataclass(frozen=True)
class MixChange:
    """Change by another data mix in one run, beside what undisturbed runs show at the same steps."""

    loss: float
    """Change of the logarithm of the training loss."""
    placebo_variance: float
    """Variance over the undisturbed runs of the same."""
    held_out: float
    """Change of the held-out loss against the run without the change, relative."""
    workers: float
    """Change of the spread over workers, relative."""


def mix_shifts(runs: Sequence[Run]) -> dict[str, Estimate | None]:
    """Rate and size of shifts by another data mix, what the held-out loss sees of it, how much more workers disagree.

    A loss falls whatever its data: without the undisturbed runs beside it any change of the mix would look helpful.
    """
    healthy, quiet = controls(runs), undisturbed(runs)
    pairs = disturbed(runs, "data_mix")
    changes = [found for pair in pairs for found in [_mix_change(pair, quiet)] if found is not None]
    if len(changes) < FEWEST_RUNS:
        return {}
    steps = 2 * MIXED_STEPS * len(changes)
    counts = [int(any(pair.run is run for pair in pairs)) for run in healthy]
    return {
        "mix_shifts_per_1000_steps": events_per_1000_steps(counts, sum(len(run.observations) for run in healthy)),
        "mix_shift_size": over_runs(changes, _mean_size, steps),
        "mix_shift_spread": over_runs(changes, _true_spread, steps),
        "mix_shift_held_out": median_over_runs([change.held_out for change in changes], steps),
        "mix_shift_worker_spread": median_over_runs([max(change.workers, 0.0) for change in changes], steps),
    }


def _mean_size(changes: Sequence[MixChange]) -> float:
    return float(np.mean([change.loss for change in changes]))


def _true_spread(changes: Sequence[MixChange]) -> float:
    """Without what the noise of the batches adds to it, as undisturbed runs show it."""
    seen = np.var([change.loss for change in changes]) - np.mean([change.placebo_variance for change in changes])
    return math.sqrt(max(0.0, float(seen)))


def _mix_change(pair: Pair, quiet: Sequence[Run]) -> MixChange | None:
    """``None`` where the run ends too soon, or no undisturbed run of its architecture stands beside it."""
    alike = [run for run in quiet if run.config.get("architecture") == pair.run.config.get("architecture")]
    lag, excess = pair.held_out
    seen = excess[(lag >= 20) & (lag <= 100)]
    own = _change_at(pair.run, pair.onset)
    usual = np.array([change for run in alike for change in [_change_at(run, pair.onset)] if change is not None])
    if own is None or not len(usual) or not len(seen):
        return None
    loss, workers = own - np.median(usual, axis=0)
    return MixChange(loss, float(usual[:, 0].var()), float(np.median(seen)), math.expm1(workers))


def _change_at(run: Run, onset: int) -> NDArray[np.float64] | None:
    """Logarithms of training loss and spread over workers, the steps from the onset on less those before it."""
    observations = run.observations
    before = _before(run, onset)
    after = (observations.step >= onset) & (observations.step < onset + MIXED_STEPS)
    if not before.any() or not after.any():
        return None
    signals = observations["training_loss"], np.sqrt(observations["sigma_sq"]) / observations["grad_norm"]
    return np.log([float(np.nanmedian(x[after]) / np.nanmedian(x[before])) for x in signals])
