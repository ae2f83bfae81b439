"""Active learning on digits: the labelled set grows at each tenth of the run by what the model is least certain of.
From 60 % on, confident guesses join at half weight; an update uses only the hardest half of its batch."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import rmetric


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    X, Y = load_digits(return_X_y=True)
    order = rng.permutation(len(Y))
    x, y = torch.from_numpy(X[order] / 16.0).float(), torch.from_numpy(Y[order])
    xv, yv = x[1400:], y[1400:]
    x, y = x[:1400], y[:1400].clone()
    label, weight = torch.full((1400,), -1), torch.zeros(1400)
    label[:40], weight[:40] = y[:40], 1.0
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.02)
    chunk = max(1, steps // 10)

    def ask():
        net.eval()
        with torch.no_grad():
            p = net(x).softmax(1)
        top = p.topk(2, dim=1).values
        true_label = weight == 1.0
        doubt = (top[:, 0] - top[:, 1]).masked_fill(true_label, 9.0)
        new = doubt.argsort()[:30]
        label[new], weight[new] = y[new], 1.0
        return p, weight == 1.0

    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for k in range(steps):
            if k and k % chunk == 0:
                p, known = ask()
                if k >= int(0.6 * steps):
                    sure = (p.max(1).values > 0.98) & ~known
                    weight[~known], label[~known] = 0.0, -1
                    weight[sure], label[sure] = 0.5, p.argmax(1)[sure]
            usable = torch.nonzero(weight > 0).squeeze(1)
            pick = usable[torch.randint(0, len(usable), (32,))]
            net.train()
            each = functional.cross_entropy(net(x[pick]), label[pick], reduction="none") * weight[pick]
            loss = each.topk(16).values.mean()
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt.step()
            if k % max(1, steps // 60) == 0 or k == steps - 1:
                net.eval()
                with torch.no_grad():
                    val = functional.cross_entropy(net(xv), yv).item()
                monitor.validation(val)
