"""Federated averaging on digits: three of ten clients with skewed labels train copies of their own for two steps.
The mean of their moves is written into .grad of the watched model, and a server with momentum makes the update."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import rmetric


def split_by_skew(y, clients, rng):
    shards: list[list[int]] = [[] for _ in range(clients)]
    for c in range(10):
        where = rng.permutation(np.flatnonzero(y == c))
        share = rng.dirichlet(np.full(clients, 0.5))
        for box, part in zip(shards, np.split(where, (np.cumsum(share)[:-1] * len(where)).astype(int)), strict=True):
            box.extend(part.tolist())
    return [np.array(s) for s in shards if len(s) >= 16]


def local_round(model, weights, x, y, rng, rate, local_steps=2):
    copy = [w.detach().clone().requires_grad_(True) for w in weights.values()]
    first = None
    for _ in range(local_steps):
        pick = rng.integers(0, len(y), 32)
        out = torch.func.functional_call(model, dict(zip(weights, copy, strict=True)), (x[pick],))
        loss = functional.cross_entropy(out, y[pick])
        first = loss.item() if first is None else first
        for w, g in zip(copy, torch.autograd.grad(loss, copy), strict=True):
            w.data.sub_(g, alpha=rate)
    return copy, first


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, Y = load_digits(return_X_y=True)
    order = rng.permutation(len(Y))
    X, Y = X[order] / 16.0, Y[order]
    xt, yt = torch.from_numpy(X).float(), torch.from_numpy(Y)
    shards = split_by_skew(Y[:1400], 10, rng)
    net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    server = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.6)
    with rmetric.TrainingMonitor(net, server, **watch) as monitor:
        for rnd in range(steps):
            weights = dict(net.named_parameters())
            chosen = rng.choice(len(shards), 3, replace=False)
            sizes = np.array([len(shards[c]) for c in chosen], float)
            sizes /= sizes.sum()
            server.zero_grad()
            loss = 0.0
            for c, part in zip(chosen, sizes, strict=True):
                mine, first = local_round(net, weights, xt[shards[c]], yt[shards[c]], rng, rate=0.05)
                loss += part * first
                for p, w in zip(net.parameters(), mine, strict=True):
                    move = (p.data - w.data) * part
                    p.grad = move if p.grad is None else p.grad + move
            monitor.step(torch.tensor(loss))
            server.step()
            if rnd % max(1, steps // 50) == 0 or rnd == steps - 1:
                with torch.no_grad():
                    val = functional.cross_entropy(net(xt[1400:]), yt[1400:]).item()
                monitor.validation(val)
