"""Differentially private SGD on digits: lots of random size, gradients of single samples, clipped and noised.
The finished private gradient is what the monitor and the optimizer see."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

import rmetric

LOT, CLIP, SIGMA = 64, 1.0, 0.7


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, Y = load_digits(return_X_y=True)
    order = rng.permutation(len(Y))
    x, y = torch.from_numpy(X[order] / 16.0).float(), torch.from_numpy(Y[order])
    xt, yt, xv, yv = x[:1300], y[:1300], x[1300:], y[1300:]
    net = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)

    def one(params, xi, yi):
        return functional.cross_entropy(functional_call(net, params, (xi[None],)), yi[None])

    each = vmap(grad_and_value(one), in_dims=(None, 0, 0))
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for k in range(steps):
            lot = torch.rand(len(yt)) < LOT / len(yt)
            if not lot.any():
                continue
            params = {n: p.detach() for n, p in net.named_parameters()}
            grads, losses = each(params, xt[lot], yt[lot])
            norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()], 1).norm(dim=1)
            factor = (CLIP / (norms + 1e-6)).clamp(max=1.0)
            for n, p in net.named_parameters():
                total = torch.einsum("b,b...->...", factor, grads[n])
                p.grad = (total + SIGMA * CLIP * torch.randn_like(total)) / LOT
            monitor.step(losses.mean())
            opt.step()
            opt.zero_grad()
            for g in opt.param_groups:
                g["lr"] = 0.5 * (1 - 0.9 * k / steps)
            if k % max(1, steps // 20) == 0 or k == steps - 1:
                with torch.no_grad():
                    val = functional.cross_entropy(net(xv), yv).item()
                monitor.validation(val)
