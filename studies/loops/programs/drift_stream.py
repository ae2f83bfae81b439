"""Online forecasting of a series that drifts, in strict order of time: each pair of rows is forecast, then learnt from.
Shocks are heavy-tailed; the Student-t likelihood learns its scale and its degrees of freedom."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import rmetric


def series(n, rng):
    """A seasonal series whose amplitude, level and dependence on a driver drift with time."""
    t = np.arange(n)
    driver = np.zeros(n)
    for i in range(1, n):
        driver[i] = 0.9 * driver[i - 1] + 0.4 * rng.normal()
    turn = 2 * np.pi * t / n
    y = np.cos(turn) * driver + np.sin(turn) * np.sin(2 * np.pi * t / 24) + 0.6 * np.sin(turn / 2)
    return driver, y + 0.15 * rng.standard_t(2.5, n)


class Forecaster(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * window + 2, 32), nn.SiLU(), nn.Linear(32, 1))
        self.raw_scale = nn.Parameter(torch.zeros(()))
        self.raw_dof = nn.Parameter(torch.tensor(1.0))

    def nll(self, x, y):
        dist = torch.distributions.StudentT(
            1.5 + functional.softplus(self.raw_dof), self.net(x).squeeze(-1), functional.softplus(self.raw_scale) + 1e-3
        )
        return -dist.log_prob(y).mean()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    window, rows = 8, 2
    driver, y = series(steps * rows + window + 1, rng)
    model = Forecaster(window)
    opt = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.98)
    ahead: list[float] = []
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for k in range(steps):
            first = window + k * rows
            when = np.arange(first, first + rows)
            past = when[:, None] + np.arange(-window, 0)
            hour = 2 * np.pi * when / 24
            seen = np.concatenate([y[past], driver[past + 1], np.sin(hour)[:, None], np.cos(hour)[:, None]], 1)
            x, target = torch.from_numpy(seen).float(), torch.from_numpy(y[when]).float()
            loss = model.nll(x, target)
            ahead.append(loss.item())  # the loss before the update is the honest forecast score
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if (k + 1) % max(1, steps // 25) == 0:
                monitor.validation(float(np.mean(ahead[-steps // 25 :])))
