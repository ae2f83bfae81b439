"""A physics-informed network for the heat equation on one fixed set of points: Adam for 60 % of the steps, then LBFGS.
Each optimizer has a monitor of its own."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rmetric


class Field(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x, t):
        return self.body(torch.stack([2 * x - 1, 2 * t - 1], -1)).squeeze(-1)


def exact(x, t, nu):
    return (math.pi * x).sin() * torch.exp(-nu * math.pi**2 * t) + 0.5 * (3 * math.pi * x).sin() * torch.exp(
        -9 * nu * math.pi**2 * t
    )


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    nu, net = 0.05, Field()
    x, t = torch.rand(160, requires_grad=True), torch.rand(160, requires_grad=True)
    x0, tb = torch.linspace(0, 1, 48), torch.linspace(0, 1, 24)
    u0 = exact(x0, torch.zeros_like(x0), nu)
    gx, gt = torch.meshgrid(torch.linspace(0, 1, 30), torch.linspace(0, 1, 30), indexing="ij")
    truth = exact(gx, gt, nu)

    def objective():
        u = net(x, t)
        ux, ut = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True)
        pde = (ut - nu * uxx).pow(2).mean()
        start = (net(x0, torch.zeros_like(x0)) - u0).pow(2).mean()
        walls = net(torch.zeros_like(tb), tb).pow(2).mean() + net(torch.ones_like(tb), tb).pow(2).mean()
        return pde + 10 * start + 10 * walls

    def error():
        with torch.no_grad():
            return (net(gx, gt) - truth).pow(2).mean().item()

    first = int(0.6 * steps)
    adam = torch.optim.Adam(net.parameters(), lr=2e-3)
    with rmetric.TrainingMonitor(net, adam, **watch) as monitor:
        for k in range(first):
            adam.zero_grad()
            loss = objective()
            loss.backward(inputs=list(net.parameters()))
            monitor.step(loss)
            adam.step()
            if k % max(1, steps // 15) == 0:
                monitor.validation(error())

    lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=2, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        value = objective()
        value.backward(inputs=list(net.parameters()))
        return value

    second = Path(watch["log"]).with_suffix(".lbfgs.jsonl")
    with rmetric.TrainingMonitor(net, lbfgs, **{**watch, "log": second}) as monitor:
        for k in range(first, steps):
            monitor.step(closure())
            lbfgs.step(closure)
            if k % max(1, steps // 15) == 0 or k == steps - 1:
                monitor.validation(error())
