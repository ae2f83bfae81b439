"""One trunk for three tasks on different scales (regression, classification, denoising), one task an update.
A head has gradients only when it is its turn; each part of the network is clipped by itself."""

import itertools
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from torch import nn
from torch.nn import functional

import rmetric


def standard(a):
    a = np.asarray(a, dtype=np.float64)
    return torch.tensor((a - a.mean(0)) / (a.std(0) + 1e-6), dtype=torch.float32)


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.entries = nn.ModuleDict({k: nn.Linear(n, 40) for k, n in sizes.items()})
        self.trunk = nn.Sequential(nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU())
        self.heads = nn.ModuleDict({"sugar": nn.Linear(40, 1), "tumour": nn.Linear(40, 2), "digits": nn.Linear(40, 64)})

    def forward(self, task, x):
        return self.heads[task](self.trunk(self.entries[task](x)))


def task_loss(task, out, y):
    if task == "sugar":
        return 20.0 * functional.smooth_l1_loss(out.squeeze(1), y)
    return functional.cross_entropy(out, y) if task == "tumour" else functional.mse_loss(out, y)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    d, c, g = load_diabetes(), load_breast_cancer(), load_digits()
    pix = torch.tensor(g.data / 16.0, dtype=torch.float32)
    full = {
        "sugar": (standard(d.data), standard(d.target)),
        "tumour": (standard(c.data), torch.tensor(c.target)),
        "digits": (pix, pix),
    }
    data, held = {}, {}
    for k, (x, y) in full.items():
        p = torch.from_numpy(rng.permutation(len(x)))
        n = int(0.8 * len(x))
        data[k], held[k] = (x[p[:n]], y[p[:n]]), (x[p[n:]], y[p[n:]])
    net = Net({"sugar": 10, "tumour": 30, "digits": 64})
    parts = [list(net.trunk.parameters()), list(net.entries.parameters()), list(net.heads.parameters())]
    opt = torch.optim.AdamW(
        [{"params": parts[0], "lr": 6e-4}, {"params": parts[1], "lr": 1e-3}, {"params": parts[2], "lr": 1e-3}],
        weight_decay=0.05,
    )
    sched = torch.optim.lr_scheduler.PolynomialLR(opt, steps, power=1.0)
    turn = itertools.cycle(["digits", "sugar", "tumour"])
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for step in range(steps):
            task = next(turn)
            x, y = data[task]
            i = torch.from_numpy(rng.integers(len(x), size=32))
            xb = x[i] + 0.1 * torch.randn_like(x[i])
            loss = task_loss(task, net(task, xb), y[i])
            loss.backward()
            monitor.step(loss)
            for part, bound in zip(parts, (1.0, 0.5, 2.0), strict=True):
                nn.utils.clip_grad_norm_(part, bound)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            if step % max(3, steps // 10) < 3:
                with torch.no_grad():
                    vals = {k: task_loss(k, net(k, hx), hy).item() for k, (hx, hy) in held.items()}
                if task == "tumour":
                    monitor.validation(sum(vals.values()))
