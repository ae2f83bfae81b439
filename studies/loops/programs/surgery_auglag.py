"""Two regression heads with learnt weights and conflicting gradients: PCGrad's surgery is written into .grad.
Rows of the first layer keep norm 1, and a multiplier for a fairness constraint is raised now and then."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler
from torch import nn

import rmetric


class TwoHeads(nn.Module):
    def __init__(self, features, hidden=6):
        super().__init__()
        self.trunk = nn.Linear(features, hidden)
        self.heads = nn.ModuleList([nn.Linear(hidden, 1), nn.Linear(hidden, 1)])
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = torch.tanh(self.trunk(x))
        return [head(h).squeeze(-1) for head in self.heads]


def flat(loss, params):
    got = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(got, params, strict=True)])


def surgery(a, b):
    dot = a @ b
    if dot >= 0:
        return a + b
    return (a - dot / b.pow(2).sum() * b) + (b - dot / a.pow(2).sum() * a)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, Y = load_diabetes(return_X_y=True)
    sex = torch.from_numpy(X[:, 1] > 0)
    T = StandardScaler().fit_transform(np.c_[Y, X[:, 2]])  # disease progression, body-mass index
    F_ = StandardScaler().fit_transform(np.delete(X, [1, 2], 1))
    order = torch.from_numpy(rng.permutation(len(Y)))
    x, t = torch.from_numpy(F_).float(), torch.from_numpy(T).float()
    tr, va = order[:340], order[340:]
    net = TwoHeads(x.shape[1])
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-2)
    params, lam, rho = list(net.parameters()), 0.0, 1.0

    def tasks(idx):
        out = net(x[idx])
        parts = [
            0.5 * (-s).exp() * (o - t[idx, i]).pow(2).mean() + 0.5 * s
            for i, (o, s) in enumerate(zip(out, net.log_var, strict=True))
        ]
        return parts, out[0][sex[idx]].mean() - out[0][~sex[idx]].mean()

    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for k in range(steps):
            idx = tr[torch.from_numpy(rng.choice(len(tr), 64, replace=False))]
            parts, gap = tasks(idx)
            tied = lam * gap + 0.5 * rho * gap.pow(2)
            step = surgery(flat(parts[0], params), flat(parts[1], params)) + flat(tied, params)
            for p, g in zip(params, step.split([p.numel() for p in params]), strict=True):
                p.grad = g.view_as(p).clone()
            loss = parts[0].detach() + parts[1].detach() + tied.detach()
            monitor.step(loss)
            opt.step()
            with torch.no_grad():
                net.trunk.weight.div_(net.trunk.weight.norm(dim=1, keepdim=True))
            if (k + 1) % max(1, steps // 30) == 0:
                with torch.no_grad():
                    lam += rho * tasks(tr)[1].item()
                    parts, gap = tasks(va)
                    val = (parts[0] + parts[1]).item()
                monitor.validation(val)
