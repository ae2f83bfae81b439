"""Hyper-parameters of a Gaussian process by its marginal likelihood: float64, no layers, a handful of parameters.
The objective is the same at every step and goes below zero; the learning rate is cut twice."""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric


class ArdGP(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dims, dtype=torch.float64))
        self.log_amp = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.log_noise = nn.Parameter(torch.tensor(-1.0, dtype=torch.float64))
        self.mean = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def kernel(self, a, b):
        a, b = a * torch.exp(-self.log_scale), b * torch.exp(-self.log_scale)
        d2 = (a[:, None, :] - b[None, :, :]).pow(2).sum(-1)
        return torch.exp(2 * self.log_amp - 0.5 * d2)

    def factor(self, x, y):
        k = self.kernel(x, x) + (torch.exp(2 * self.log_noise) + 1e-6) * torch.eye(len(x), dtype=x.dtype)
        chol = torch.linalg.cholesky(k)
        return chol, torch.cholesky_solve((y - self.mean)[:, None], chol)

    def forward(self, x, y):
        chol, alpha = self.factor(x, y)
        fit = 0.5 * ((y - self.mean) @ alpha.squeeze(1))
        return (fit + chol.diagonal().log().sum()) / len(x) + 0.5 * math.log(2 * math.pi)

    def predict(self, x, y, new):
        chol, alpha = self.factor(x, y)
        cross = self.kernel(new, x)
        half = torch.linalg.solve_triangular(chol, cross.T, upper=False)
        var = torch.exp(2 * self.log_amp) - half.pow(2).sum(0) + torch.exp(2 * self.log_noise)
        return self.mean + (cross @ alpha).squeeze(1), var


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (160, 6))
    f = np.sin(2.5 * X[:, 0]) + X[:, 1] ** 2 - 0.6 * X[:, 0] * X[:, 2]
    Y = 3.0 + f + 0.08 * rng.normal(size=len(X))
    (x, xv), (y, yv) = (torch.from_numpy(a).split((100, 60)) for a in (X, Y))
    gp = ArdGP(6)
    opt = torch.optim.Adam(gp.parameters(), lr=0.03)
    cuts = torch.optim.lr_scheduler.MultiStepLR(opt, [int(0.5 * steps), int(0.8 * steps)], gamma=0.2)
    with rmetric.TrainingMonitor(gp, opt, **watch) as monitor:
        for k in range(steps):
            opt.zero_grad()
            nll = gp(x, y)
            nll.backward()
            monitor.step(nll)
            opt.step()
            cuts.step()
            if k % max(1, steps // 30) == 0 or k == steps - 1:
                with torch.no_grad():
                    m, v = gp.predict(x, y, xv)
                    held = (0.5 * (yv - m).pow(2) / v + 0.5 * torch.log(2 * math.pi * v)).mean().item()
                monitor.validation(held)
