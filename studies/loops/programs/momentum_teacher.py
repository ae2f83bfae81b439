"""Self-supervision on digits in the manner of BYOL: the momentum of the averaged teacher goes to 1 along a cosine.
The learning rate and SGD's momentum are written into the parameter groups at each update."""

import copy
import math
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

import rmetric


def view(x):
    shift = torch.randint(-1, 2, (2,)).tolist()
    x = torch.roll(x.view(-1, 8, 8), shift, (1, 2)).flatten(1)
    keep = (torch.rand_like(x) > 0.2).float()
    return x * keep * (0.8 + 0.4 * torch.rand(len(x), 1)) + 0.05 * torch.randn_like(x)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    perm = rng.permutation(len(y))
    xt = torch.tensor(X[perm] / 16, dtype=torch.float32)[:1300]

    encoder = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 32), nn.BatchNorm1d(32))
    predictor = nn.Sequential(
        weight_norm(nn.Linear(32, 64)), nn.BatchNorm1d(64), nn.ReLU(), weight_norm(nn.Linear(64, 32))
    )
    teacher = copy.deepcopy(encoder).requires_grad_(False)
    watched = nn.ModuleList([encoder, predictor])
    opt = torch.optim.SGD(watched.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)

    def byol(x):
        a, b = view(x), view(x)
        with torch.no_grad():
            ta, tb = teacher(a), teacher(b)
        return (
            2
            - functional.cosine_similarity(predictor(encoder(a)), tb).mean()
            - functional.cosine_similarity(predictor(encoder(b)), ta).mean()
        )

    with rmetric.TrainingMonitor(watched, opt, **watch) as monitor:
        for step in range(steps):
            share = step / steps
            for group in opt.param_groups:
                group["lr"] = 0.1 * min(1.0, share / 0.1) * 0.5 * (1 + math.cos(math.pi * share))
                group["momentum"] = 0.85 + 0.1 * min(1.0, share / 0.5)
            i = torch.from_numpy(rng.integers(0, len(xt), 64))
            loss = byol(xt[i])
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt.step()
            tau = 1 - 0.02 * 0.5 * (1 + math.cos(math.pi * share))
            with torch.no_grad():
                for p, q in zip(teacher.parameters(), encoder.parameters(), strict=True):
                    p.mul_(tau).add_(q, alpha=1 - tau)
