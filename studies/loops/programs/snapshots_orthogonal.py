"""Digits with four cosine cycles and a snapshot at the end of each; the snapshots vote as an ensemble.
After every update one square layer is pulled back to the orthogonal matrices."""

import copy
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import rmetric


@torch.no_grad()
def orthogonalise(w, rounds=2):
    for _ in range(rounds):
        w.copy_(1.5 * w - 0.5 * w @ w.T @ w)


def shifts(x):
    img = x.view(-1, 8, 8)
    return [torch.roll(img, s, (1, 2)).flatten(1) for s in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))]


class Rotor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(64, 64)
        self.turn = nn.Linear(64, 64, bias=False)
        nn.init.orthogonal_(self.turn.weight)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        h = torch.relu(self.embed(x))
        for _ in range(3):
            h = torch.relu(self.turn(h)) + 0.5 * h
        return self.head(self.norm(h))


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    perm = rng.permutation(len(y))
    x, y = torch.tensor(x[perm] / 16, dtype=torch.float32), torch.tensor(y[perm])
    xt, yt, xv, yv = x[:1300], y[:1300], x[1300:], y[1300:]
    model, crit = Rotor(), nn.CrossEntropyLoss(label_smoothing=0.02)
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-3)
    cycle = max(1, steps // 4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=cycle, eta_min=1e-4)
    album = []
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for step in range(1, steps + 1):
            i = torch.from_numpy(rng.integers(0, 1300, 32))
            batch = torch.roll(xt[i].view(-1, 8, 8), tuple(rng.integers(-1, 2, 2).tolist()), (1, 2)).flatten(1)
            loss = crit(model(batch + 0.1 * torch.randn_like(batch)), yt[i])
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            opt.step()
            orthogonalise(model.turn.weight)
            sched.step()
            if step % max(1, steps // 20) == 0:
                model.eval()
                with torch.no_grad():
                    val = crit(model(xv), yv).item()
                model.train()
                monitor.validation(val)
            if step % cycle == 0:
                album.append(copy.deepcopy(model).eval())
                with torch.no_grad():
                    sum(m(v).softmax(1) for m in album for v in shifts(xv))  # the ensemble votes
