"""An energy model of eight Gaussians, trained by contrast with a persistent pool of Langevin samples: a loss that need
not fall. Half way the noise is cut and the rate halved; at the end the weights are a mean over the last quarter."""

import math
from typing import Any

import torch
from torch import nn

import rmetric


def ring(n):
    a = torch.randint(0, 8, (n,)) * (math.pi / 4)
    return torch.stack([a.cos(), a.sin()], 1) * 1.5 + 0.15 * torch.randn(n, 2)


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.f(x).squeeze(-1) + 0.05 * x.pow(2).sum(1)


def langevin(energy, x, rounds, size, noise):
    for p in energy.parameters():
        p.requires_grad_(False)
    for _ in range(rounds):
        x = x.detach().requires_grad_(True)
        (g,) = torch.autograd.grad(energy(x).sum(), x)
        x = (x - size * g.clamp(-3, 3) + noise * torch.randn_like(x)).clamp(-4, 4)
    for p in energy.parameters():
        p.requires_grad_(True)
    return x.detach()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    net = Energy()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.5, 0.99))
    pool = torch.randn(512, 2)
    ring(400)  # once held out for a check; left in, so that all later draws stay what they were
    mean: list[torch.Tensor] = []
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for k in range(steps):
            late = k >= steps // 2
            for g in opt.param_groups:
                g["lr"] = 1e-3 if late else 2e-3
            idx = torch.randperm(len(pool))[:128]
            start = torch.where(torch.rand(128, 1) < 0.05, torch.randn(128, 2), pool[idx])
            fake = langevin(net, start, 9, 0.07, 0.2 if late else 0.3)
            pool[idx] = fake
            real = ring(128)
            up, down = net(real), net(fake)
            loss = up.mean() - down.mean() + 0.1 * (up.pow(2) + down.pow(2)).mean()
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt.step()
            if k >= int(0.75 * steps):
                now = [p.detach().clone() for p in net.parameters()]
                mean = [0.99 * m + 0.01 * w for m, w in zip(mean, now, strict=True)] if mean else now
    for p, m in zip(net.parameters(), mean, strict=True):
        p.data.copy_(m)
