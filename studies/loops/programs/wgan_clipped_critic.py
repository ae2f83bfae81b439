"""The first Wasserstein GAN, on samples with two modes: critic weights are clamped after every update.
The critic is the watched model; the generator moves once in four of its updates."""

from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric


def sample(n, rng):
    side = rng.random(n) < 0.35
    x = np.where(side, rng.normal(-1.5, 0.3, n), rng.normal(1.0, 0.5, n))
    return torch.tensor(x, dtype=torch.float32).unsqueeze(1)


class Net(nn.Module):
    def __init__(self, inp, hidden):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(inp, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.a(x), 0.2)
        return self.c(nn.functional.leaky_relu(self.b(x), 0.2))


def wasserstein(gen, held):
    with torch.no_grad():
        fake = gen(torch.randn(len(held), 2))
    return (fake.flatten().sort().values - held.flatten().sort().values).abs().mean().item()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    critic, gen = Net(1, 48), Net(2, 32)
    bound = 0.1
    with torch.no_grad():
        for p in critic.parameters():
            p.clamp_(-bound, bound)
    opt_d = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    opt_g = torch.optim.RMSprop(gen.parameters(), lr=1e-3)
    held = sample(2000, rng)
    wasserstein(gen, held)  # once printed; left in, so that all later draws stay what they were
    with rmetric.TrainingMonitor(critic, opt_d, **watch) as monitor:
        for k in range(1, steps + 1):
            real = sample(64, rng)
            fake = gen(torch.randn(64, 2)).detach()
            loss = critic(fake).mean() - critic(real).mean()
            opt_d.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt_d.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-bound, bound)
            if k % 4 == 0:
                g_loss = -critic(gen(torch.randn(64, 2))).mean()
                opt_g.zero_grad()
                g_loss.backward()
                opt_g.step()
            if k % max(1, steps // 15) == 0:
                w = wasserstein(gen, held)
                monitor.validation(w)
