"""Segmentation of noisy discs by a tiny U-shaped network with gradient checkpointing; one batch in four is larger.
Cross-entropy turns into a soft dice loss linearly, and a boundary term is added in three stairs."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import rmetric


def discs(rng, n, side):
    yy, xx = np.mgrid[0:side, 0:side] / side
    c, r = rng.uniform(0.25, 0.75, (n, 2, 1, 1)), rng.uniform(0.12, 0.3, (n, 1, 1))
    mask = ((xx - c[:, 0]) ** 2 + (yy - c[:, 1]) ** 2 < r**2).astype("float32")
    img = mask * rng.uniform(0.6, 1.2, (n, 1, 1)) + rng.normal(0, 0.5, mask.shape)
    return torch.tensor(img, dtype=torch.float32)[:, None], torch.tensor(mask)[:, None]


class Net(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, w, 3, padding=1), nn.InstanceNorm2d(w, affine=True), nn.ReLU())
        self.deep = nn.Sequential(
            nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1),
            nn.InstanceNorm2d(2 * w, affine=True),
            nn.ReLU(),
            nn.Conv2d(2 * w, 2 * w, 3, padding=1),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
        )
        self.out = nn.Conv2d(3 * w, 1, 3, padding=1)

    def forward(self, x):
        a = self.stem(x)
        b = checkpoint(self.deep, a, use_reentrant=False) if self.training else self.deep(a)
        return self.out(torch.cat([a, b], 1))


def losses(logit, mask):
    p = logit.sigmoid()
    dice = 1 - (2 * (p * mask).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    edge = functional.max_pool2d(mask, 3, 1, 1) + functional.max_pool2d(-mask, 3, 1, 1)
    bce = functional.binary_cross_entropy_with_logits(logit, mask, reduction="none")
    return bce.mean(), dice.mean(), (bce * edge).sum() / edge.sum().clamp(min=1)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    xv, mv = discs(np.random.default_rng(999 + seed), 100, 16)
    net = Net()
    opt = torch.optim.RAdam(net.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=steps, power=0.9)
    with rmetric.TrainingMonitor(net, opt, **watch) as mon:
        for step in range(steps):
            share = step / steps
            w_edge = 0.1 * int(share * 4)
            x, m = discs(rng, *((4, 32) if rng.random() < 0.25 else (12, 16)))
            bce, dice, edge = losses(net(x), m)
            loss = (1 - share) * bce + share * dice + w_edge * edge
            opt.zero_grad()
            loss.backward()
            mon.step(loss)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            if (step + 1) % max(1, steps // 10) == 0:
                net.eval()
                with torch.no_grad():
                    bce, dice, _ = losses(net(xv), mv)
                net.train()
                mon.validation(bce.item() + dice.item())
