"""Low-rank adapters of the program's own on a frozen sequence model that was trained on another source of text.
At 60 % they are merged into the weights, and a new parameter group with a lower learning rate takes over."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import rmetric

V, T = 24, 16


class LowRank(nn.Module):
    def __init__(self, base, r=4, alpha=8.0):
        super().__init__()
        self.base, self.scale, self.merged = base, alpha / r, False
        self.down = nn.Parameter(torch.randn(r, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) if self.merged else self.base(x) + self.scale * (x @ self.down.T) @ self.up.T

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scale * self.up @ self.down
        self.merged = True
        self.requires_grad_(False)


class Mixer(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.emb, self.conv = nn.Embedding(V, d), nn.Conv1d(d, d, 3)
        self.up1, self.dn1, self.up2, self.dn2 = (nn.Linear(*s) for s in 2 * [(d, 2 * d), (2 * d, d)])
        self.out = nn.Linear(d, V)

    def forward(self, x):
        h = self.conv(functional.pad(self.emb(x).transpose(1, 2), (2, 0))).transpose(1, 2)
        for up, dn in ((self.up1, self.dn1), (self.up2, self.dn2)):
            h = h + dn(functional.silu(up(h)))
        return self.out(h)


def draw(table, n, gen):
    s = torch.randint(V, (n, 2), generator=gen)
    for _ in range(T - 1):
        s = torch.cat([s, torch.multinomial(table[s[:, -2], s[:, -1]], 1, generator=gen)], 1)
    return s


def nll(model, s):
    return functional.cross_entropy(model(s[:, :-1])[:, 1:].flatten(0, 1), s[:, 2:].flatten())


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    gen, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    old, new = (torch.from_numpy(rng.dirichlet(np.full(V, 0.1), size=(V, V))).float() for _ in range(2))
    model = Mixer()
    pre = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):  # pretraining, not watched
        pre.zero_grad()
        nll(model, draw(old, 32, gen)).backward()
        pre.step()
    model.requires_grad_(False)
    for name in ("up1", "dn1", "up2", "dn2", "out"):
        setattr(model, name, LowRank(getattr(model, name)))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3, weight_decay=0.0)
    held = draw(new, 256, gen)
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for step in range(steps):
            if step == int(0.6 * steps):
                for m in (m for m in model.modules() if isinstance(m, LowRank)):
                    m.merge()
                body = [p.requires_grad_() for n, p in model.named_parameters() if not n.endswith((".down", ".up"))]
                opt.param_groups[0]["lr"] = 0.0
                opt.add_param_group({"params": body, "lr": 6e-4, "weight_decay": 0.01})
                opt.zero_grad()  # what the pretraining left
            loss = nll(model, draw(new, 32, gen))
            loss.backward()
            monitor.step(loss)
            opt.step()
            opt.zero_grad()
            if step % max(1, steps // 10) == 0 or step == steps - 1:
                with torch.no_grad():
                    monitor.validation(nll(model, held).item())
