"""Regression that becomes quantisation-aware half way: int4 weights and int8 activations, rounded straight-through.
The learning rate falls tenfold at the switch."""

from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, lo, hi):
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= lo) & (q <= hi))
        return q.clamp(lo, hi) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None


class QLinear(nn.Linear):
    quant = False
    peak: torch.Tensor

    def __init__(self, i, o):
        super().__init__(i, o)
        self.register_buffer("peak", torch.tensor(1e-3))

    def forward(self, x):
        if self.training:
            self.peak.lerp_(x.detach().abs().max(), 0.05)
        w = self.weight
        if self.quant:
            x = RoundSTE.apply(x, self.peak / 127, -127, 127)
            w = RoundSTE.apply(w, w.detach().abs().amax(1, keepdim=True) / 7, -7, 7)
        return nn.functional.linear(x, w, self.bias)


def target(x):
    return torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] - 0.5 * x[:, 3:4].abs()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.uniform(-1.5, 1.5, (4500, 6)), dtype=torch.float32)
    y = target(x) + 0.1 * torch.randn(len(x), 1)
    xt, yt, xv, yv = x[:4000], y[:4000], x[4000:], y[4000:]
    net = nn.Sequential(QLinear(6, 64), nn.ReLU(), QLinear(64, 64), nn.ReLU(), QLinear(64, 1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    half, epoch, done = steps // 2, 4000 // 64, 0
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        while done < steps:
            order = torch.from_numpy(rng.permutation(4000))
            for rows in order.split(64)[:epoch]:
                if done == half:
                    for layer in net:
                        if isinstance(layer, QLinear):
                            layer.quant = True
                    for g in opt.param_groups:
                        g["lr"] *= 0.1
                loss = nn.functional.mse_loss(net(xt[rows]), yt[rows])
                opt.zero_grad()
                loss.backward()
                monitor.step(loss)
                opt.step()
                done += 1
                if done == steps:
                    break
            net.eval()
            with torch.no_grad():
                val = nn.functional.mse_loss(net(xv), yv).item()
            net.train()
            monitor.validation(val)
