"""A small diffusion model of two moons: the batch doubles at 1/3 and at 2/3 of the run while the learning rate stays.
A moving average of the weights, a module of its own, is what gets validated."""

import copy
import math
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn

import rmetric

T = 50


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(4) * math.pi / T)
        self.inp = nn.Linear(2 + 8, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear(width, 2)
        nn.init.zeros_(self.out.weight)

    def forward(self, x, t):
        phase = t[:, None] * self.freq
        h = nn.functional.silu(self.inp(torch.cat([x, phase.sin(), phase.cos()], 1)))
        for layer in self.mid:
            h = h + nn.functional.silu(layer(h))
        return self.out(h)


beta = torch.linspace(1e-3, 0.2, T)
abar = torch.cumprod(1 - beta, 0)


def eps_loss(net, x0, t, eps):
    a = abar[t][:, None]
    return (net(a.sqrt() * x0 + (1 - a).sqrt() * eps, t.float()) - eps).square().mean()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    pts = make_moons(5000, noise=0.05, random_state=seed)[0]
    pts = torch.tensor((pts - pts.mean(0)) / pts.std(0), dtype=torch.float32)
    x, xv = pts[:4000], pts[4000:]
    gen = torch.Generator().manual_seed(seed + 5)
    tv, ev = torch.randint(0, T, (1000,), generator=gen), torch.randn(1000, 2, generator=gen)
    net = Denoiser()
    ema = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, betas=(0.9, 0.99))
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for step in range(steps):
            size = 64 * 2 ** min(2, 3 * step // steps)
            x0 = x[torch.from_numpy(rng.integers(0, 4000, size))]
            loss = eps_loss(net, x0, torch.randint(0, T, (size,)), torch.randn(size, 2))
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            decay = min(0.99, (1 + step) / (10 + step))
            with torch.no_grad():
                for s, p in zip(ema.parameters(), net.parameters(), strict=True):
                    s.lerp_(p, 1 - decay)
            if (step + 1) % max(1, steps // 15) == 0:
                with torch.no_grad():
                    val = eps_loss(ema, xv, tv, ev).item()
                monitor.validation(val)
