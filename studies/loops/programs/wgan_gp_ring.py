"""A Wasserstein GAN with gradient penalty on a ring of Gaussians: three critic updates with double backward a step.
The generator is the watched model; a sliced distance to held-out data is its validation."""

from typing import Any

import numpy as np
import torch
from torch import autograd, nn

import rmetric

Z = 4


def mlp(i, o, act):
    return nn.Sequential(nn.Linear(i, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, o))


def ring(n, rng):
    angle = rng.integers(0, 8, n) * (2 * np.pi / 8)
    centre = np.stack([np.cos(angle), np.sin(angle)], 1)
    return torch.tensor(centre + rng.normal(0, 0.06, (n, 2)), dtype=torch.float32)


def gradient_penalty(critic, real, fake):
    a = torch.rand(len(real), 1)
    mid = (a * real + (1 - a) * fake).requires_grad_(True)
    (g,) = autograd.grad(critic(mid).sum(), mid, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


def sliced(a, b, n_dir=32):
    th = torch.linspace(0, np.pi, n_dir)
    d = torch.stack([th.cos(), th.sin()])
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).abs().mean().item()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    gen, critic = mlp(Z, 2, nn.ReLU), mlp(2, 1, nn.SiLU)
    opt_g = torch.optim.Adam(gen.parameters(), lr=2e-4, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    held = ring(1000, rng)
    with rmetric.TrainingMonitor(gen, opt_g, **watch) as monitor:
        for i in range(steps):
            for _ in range(3):
                real = ring(64, rng)
                with torch.no_grad():
                    fake = gen(torch.randn(64, Z))
                gap = critic(real).mean() - critic(fake).mean()
                c_loss = -gap + 1.0 * gradient_penalty(critic, real, fake)
                opt_c.zero_grad()
                c_loss.backward()
                opt_c.step()
            critic.requires_grad_(False)
            g_loss = -critic(gen(torch.randn(128, Z))).mean()
            opt_g.zero_grad()
            g_loss.backward()
            monitor.step(g_loss)
            opt_g.step()
            critic.requires_grad_(True)
            if i % max(1, steps // 15) == 0 or i + 1 == steps:
                with torch.no_grad():
                    dist = sliced(gen(torch.randn(1000, Z)), held)
                monitor.validation(dist)
