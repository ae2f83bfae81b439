"""A small network learns digits from a random forest's soft labels and from the true ones, in a mix that changes.
The optimizer is a sign-momentum class of the program's own, its one-cycle learning rate is written by hand."""

import math
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from torch import nn
from torch.nn import functional

import rmetric


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = (b1 * m + (1 - b1) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["decay"]).sub_(group["lr"] * direction)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


def one_cycle(t, top, start=0.1, end=0.01, rise=0.3):
    if t < rise:
        return top * (start + (1 - start) * t / rise)
    return top * (end + (1 - end) * 0.5 * (1 + math.cos(math.pi * (t - rise) / (1 - rise))))


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype(np.float32)
    order = rng.permutation(len(X))
    tr, te = order[:1300], order[1300:]
    teacher = RandomForestClassifier(60, min_samples_leaf=3, random_state=seed).fit(X[tr], y[tr])
    soft = np.log(teacher.predict_proba(X[tr]) + 1e-2).astype(np.float32)  # kept as logits
    x, t, hard = torch.tensor(X[tr]), torch.tensor(soft), torch.tensor(y[tr])
    xv, yv = torch.tensor(X[te]), torch.tensor(y[te])

    student = nn.Sequential(
        nn.Linear(64, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10)
    )
    opt = SignMomentum(student.parameters(), lr=1e-3, decay=0.1)
    with rmetric.TrainingMonitor(student, opt, **watch) as monitor:
        for s in range(steps):
            frac = s / steps
            opt.param_groups[0]["lr"] = one_cycle(frac, 2e-3)
            temp, mix = 3.0 - 2.0 * frac, 0.9 - 0.6 * frac
            pick = torch.from_numpy(rng.choice(len(x), 64, replace=False))
            noisy = x[pick] + 0.1 * torch.randn(64, 64)
            logits = student(noisy)
            kd = (
                functional.kl_div((logits / temp).log_softmax(1), (t[pick] / temp).softmax(1), reduction="batchmean")
                * temp**2
            )
            ce = functional.cross_entropy(logits, hard[pick])
            loss = mix * kd + (1 - mix) * ce
            student.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt.step()
            if s % max(1, steps // 12) == 0 or s == steps - 1:
                student.eval()
                with torch.no_grad():
                    v = functional.cross_entropy(student(xv), yv).item()
                student.train()
                monitor.validation(v)
