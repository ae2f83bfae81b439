"""A student network learns digits from a larger teacher while masks, multiplied in after each update, thin it out.
The sparsity rises along a cubic schedule between 20 % and 70 % of the run, up to 80 % of the weights."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import rmetric


class Pruner:
    def __init__(self, model):
        self.weights = [p for p in model.parameters() if p.ndim == 2]
        self.masks = [torch.ones_like(w) for w in self.weights]

    def retarget(self, sparsity):
        for w, m in zip(self.weights, self.masks, strict=True):
            k = int(sparsity * w.numel())
            if k:
                cut = w.detach().abs().flatten().kthvalue(k).values
                m.copy_((w.detach().abs() > cut).float())

    @torch.no_grad()
    def apply(self):
        for w, m in zip(self.weights, self.masks, strict=True):
            w.mul_(m)


def fit_teacher(x, y):
    big = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Dropout(0.3), nn.Linear(200, 10))
    opt = torch.optim.Adam(big.parameters(), lr=2e-3)
    for _ in range(250):
        i = torch.randint(0, len(x), (128,))
        opt.zero_grad()
        functional.cross_entropy(big(x[i]), y[i]).backward()
        opt.step()
    return big.eval().requires_grad_(False)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    digits = load_digits()
    split = np.random.default_rng(seed).permutation(len(digits.target))
    x = torch.tensor(digits.data[split] / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target[split])
    x, xv, y, yv = x[:1400], x[1400:], y[:1400], y[1400:]
    teacher = fit_teacher(x, y)
    student = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
    opt = torch.optim.Adam(student.parameters(), lr=2e-3)
    pruner, T = Pruner(student), 3.0
    every = max(1, steps // 60)

    def kd(inp, target):
        s = student(inp)
        soft = (
            functional.kl_div(
                functional.log_softmax(s / T, 1), functional.softmax(teacher(inp) / T, 1), reduction="batchmean"
            )
            * T
            * T
        )
        return 0.7 * soft + 0.3 * functional.cross_entropy(s, target)

    with rmetric.TrainingMonitor(student, opt, **watch) as monitor:
        for t in range(steps):
            share = (t / steps - 0.2) / 0.5
            if 0 <= share <= 1 and t % every == 0:
                pruner.retarget(0.8 * (1 - (1 - share) ** 3))
            i = torch.randint(0, len(x), (64,))
            loss = kd(x[i] + 0.1 * torch.randn(64, 64), y[i])
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt.step()
            pruner.apply()
            if (t + 1) % max(1, steps // 15) == 0:
                with torch.no_grad():
                    val = kd(xv, yv)
                monitor.validation(val.item())
