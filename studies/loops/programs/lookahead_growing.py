"""A small CNN on digits of growing resolution (8, 12, then 16 pixels) with random shifts.
Lookahead is written by hand around Adam: every sixth update the weights go half way back to slow ones."""

from typing import Any

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.nn import functional

import rmetric


class Lookahead:
    def __init__(self, inner, k=6, alpha=0.5):
        self.inner, self.k, self.alpha, self.count = inner, k, alpha, 0
        self.slow = {p: p.detach().clone() for g in inner.param_groups for p in g["params"]}

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.k == 0:
            for p, s in self.slow.items():
                s.add_(p - s, alpha=self.alpha)
                p.copy_(s)


def augment(x, size, gen):
    x = functional.interpolate(x, size=(size, size), mode="bilinear", align_corners=False)
    dx, dy = torch.randint(-1, 2, (2,), generator=gen).tolist()
    x = torch.roll(x, (dy, dx), dims=(2, 3))
    return x + 0.1 * torch.randn(x.shape, generator=gen)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images = torch.tensor(data.images[order], dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target[order])
    xt, yt, xv, yv = images[:1400], labels[:1400], images[1400:], labels[1400:]

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    adam = torch.optim.Adam(net.parameters(), lr=2e-3)
    look = Lookahead(adam)
    warm = max(1, steps // 30)
    sched = torch.optim.lr_scheduler.LambdaLR(adam, lambda t: min(1.0, (t + 1) / warm) * (1 - 0.95 * t / steps))

    with rmetric.TrainingMonitor(net, adam, **watch) as monitor:
        for t in range(steps):
            size = (8, 12, 16)[min(2, 3 * t // steps)]
            idx = torch.randint(0, len(xt), (48,), generator=gen)
            loss = functional.cross_entropy(net(augment(xt[idx], size, gen)), yt[idx])
            adam.zero_grad()
            loss.backward()
            monitor.step(loss)
            look.step()
            sched.step()
            if t % max(1, steps // 20) == 0 or t == steps - 1:
                net.eval()
                with torch.no_grad():
                    logits = net(functional.interpolate(xv, size=(size, size), mode="bilinear", align_corners=False))
                val = functional.cross_entropy(logits, yv).item()
                net.train()
                monitor.validation(val)
