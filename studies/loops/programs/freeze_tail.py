"""Fine-tuning on digits: the head alone, then the pretrained backbone too with layer-wise rates, then the head again.
For the last 30 % the backbone and its batch norm are frozen: evaluation mode, no gradients."""

from typing import Any

import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

import rmetric


def set_backbone(net, trainable):
    net["backbone"].requires_grad_(trainable)
    net["backbone"].train(trainable)


def pretrain(backbone, x, y, rng):
    """Parity of the digit, as a cheap upstream task."""
    tmp = nn.Linear(64, 2)
    opt = torch.optim.Adam([*backbone.parameters(), *tmp.parameters()], lr=3e-3)
    for _ in range(150):
        i = torch.from_numpy(rng.integers(0, len(x), 64))
        opt.zero_grad()
        nn.functional.cross_entropy(tmp(backbone(x[i])), y[i] % 2).backward()
        opt.step()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    X, y = torch.tensor(X[order] / 16, dtype=torch.float32), torch.tensor(y[order])
    Xt, yt, Xv, yv = X[:1350], y[:1350], X[1350:], y[1350:]

    backbone = nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()
    )
    pretrain(backbone, Xt[:500], yt[:500], rng)
    net = nn.ModuleDict({"backbone": backbone, "head": nn.Sequential(nn.Dropout(0.3), nn.Linear(64, 10))})
    opt = torch.optim.AdamW(
        [
            {"params": backbone[:3].parameters(), "lr": 1e-4},
            {"params": backbone[3:].parameters(), "lr": 3e-4},
            {"params": net["head"].parameters(), "lr": 2e-3},
        ],
        weight_decay=0.01,
    )
    phases = {0: False, int(0.2 * steps): True, int(0.7 * steps): False}

    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for step in range(steps):
            if step in phases:
                set_backbone(net, phases[step])
            i = torch.from_numpy(rng.integers(0, len(Xt), 32))
            x = Xt[i] + 0.08 * torch.randn(32, 64)
            loss = nn.functional.cross_entropy(net["head"](net["backbone"](x)), yt[i])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            monitor.step(loss)
            opt.step()
            if (step + 1) % max(1, steps // 15) == 0:
                was = net["backbone"].training
                net.eval()
                with torch.no_grad():
                    out = net["head"](net["backbone"](Xv))
                    val = nn.functional.cross_entropy(out, yv).item()
                net.train()
                net["backbone"].train(was)
                monitor.validation(val)
