"""A detector of one object a scene with three losses: the weight of the box is ramped up, the heat map is faded out.
Averaged weights are swapped into the live model for each validation and out again."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import rmetric

SIDE = 24


def draw(rng, n):
    pics = rng.normal(0, 0.25, (n, 1, SIDE, SIDE)).astype("float32")
    cls = rng.integers(0, 3, n)
    wh = rng.integers(5, 11, (n, 2))
    xy = (rng.random((n, 2)) * (SIDE - wh)).astype(int)
    for i in range(n):
        (w, h), (x, y) = wh[i], xy[i]
        patch = np.ones((h, w), "float32")
        if cls[i] == 1:
            patch[1:-1, 1:-1] = 0.0
        elif cls[i] == 2:
            patch[::2] = -1.0
        pics[i, 0, y : y + h, x : x + w] += patch
    box = np.concatenate([xy + wh / 2, wh], 1).astype("float32") / SIDE
    return torch.from_numpy(pics), torch.from_numpy(cls), torch.from_numpy(box)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.SiLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.GroupNorm(4, 24), nn.SiLU(),
            nn.Conv2d(24, 24, 3, padding=1), nn.SiLU(),
        )  # fmt: skip
        self.heat = nn.Conv2d(24, 1, 1)
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(24 * 36, 48), nn.SiLU())
        self.cls, self.box = nn.Linear(48, 3), nn.Linear(48, 4)

    def forward(self, x):
        f = self.trunk(x)
        h = self.fc(f)
        return self.heat(f).flatten(1), self.cls(h), self.box(h).sigmoid()


def terms(out, cls, box):
    heat, logits, pred = out
    cell = (box[:, 1] * 6).long().clamp(0, 5) * 6 + (box[:, 0] * 6).long().clamp(0, 5)
    return (
        functional.cross_entropy(heat, cell),
        functional.cross_entropy(logits, cls),
        functional.smooth_l1_loss(pred, box, beta=0.05),
    )


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    pool, held = draw(rng, 3000), draw(rng, 400)
    net = Detector()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    shadow = [p.detach().clone() for p in net.parameters()]
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for it in range(steps):
            share = it / steps
            w_heat, w_box = max(0.0, 1 - share / 0.6), 1.0 + 9.0 * min(1.0, share / 0.5)
            pick = torch.from_numpy(rng.integers(0, 3000, 32))
            heat, cls, box = terms(net(pool[0][pick]), pool[1][pick], pool[2][pick])
            loss = w_heat * heat + cls + w_box * box
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            sched.step()
            torch._foreach_lerp_(shadow, [p.detach() for p in net.parameters()], 0.02)
            if (it + 1) % max(1, steps // 15) == 0:
                live = [p.detach().clone() for p in net.parameters()]
                with torch.no_grad():
                    torch._foreach_copy_(list(net.parameters()), shadow)
                    _, cls_v, box_v = terms(net(held[0]), *held[1:])
                    torch._foreach_copy_(list(net.parameters()), live)
                monitor.validation(float(cls_v + 10 * box_v))
