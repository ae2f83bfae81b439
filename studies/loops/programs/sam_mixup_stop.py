"""Sharpness-aware minimisation on digits, two backward passes an update, with mixup until 80 % of the run.
The monitor sees the gradients of the second pass with the loss of the first."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import log_softmax, one_hot

import rmetric


def soft_ce(logits, target):
    return -(target * log_softmax(logits, -1)).sum(-1).mean()


@torch.no_grad()
def climb(params, rho):
    norm = torch.sqrt(sum((p.grad**2).sum() for p in params)) + 1e-12
    moves = []
    for p in params:
        e = p.grad * (rho / norm)
        p.add_(e)
        moves.append(e)
    return moves


@torch.no_grad()
def descend(params, moves):
    for p, e in zip(params, moves, strict=True):
        p.sub_(e)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed + 100)
    X, y = load_digits(return_X_y=True)
    perm = rng.permutation(len(y))
    X = torch.from_numpy(X[perm] / 8.0 - 1.0).float().view(-1, 1, 8, 8)
    Y = one_hot(torch.from_numpy(y[perm]), 10).float()
    X_train, Y_train, X_test, Y_test = X[:1300], Y[:1300], X[1300:], Y[1300:]

    model = nn.Sequential(
        nn.Conv2d(1, 20, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(20, 20, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.LayerNorm(320),
        nn.Linear(320, 64),
        nn.GELU(),
        nn.Linear(64, 10),
    )
    params = list(model.parameters())
    base = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(base, max_lr=0.1, total_steps=steps, pct_start=0.15)
    mix_until = int(0.8 * steps)

    with rmetric.TrainingMonitor(model, base, **watch) as monitor:
        for step in range(steps):
            rows = rng.choice(len(X_train), 64, replace=False)
            x, t = X_train[rows], Y_train[rows]
            if step < mix_until:
                lam = rng.beta(0.4, 0.4)
                other = torch.from_numpy(rng.permutation(64))
                x, t = lam * x + (1 - lam) * x[other], lam * t + (1 - lam) * t[other]
            base.zero_grad()
            loss = soft_ce(model(x), t)
            loss.backward()
            moves = climb(params, rho=0.05)
            base.zero_grad()
            soft_ce(model(x), t).backward()
            descend(params, moves)
            monitor.step(loss.item())
            nn.utils.clip_grad_norm_(params, 2.0)
            base.step()
            schedule.step()
            if (step + 1) % max(1, steps // 12) == 0:
                model.eval()
                with torch.inference_mode():
                    val = soft_ce(model(X_test), Y_test).item()
                model.train()
                monitor.validation(val)
