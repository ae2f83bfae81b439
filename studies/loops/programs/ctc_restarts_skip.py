"""A CTC recogniser of synthetic digit strings that grow longer as it learns: warm restarts, noise in the gradients.
An update is skipped where its gradient norm is three times the running average."""

from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric

SYMBOLS, BANDS = 8, 12


def utter(rng, voices, n, most):
    feats, targets, tl, fl = [], [], [], []
    for _ in range(n):
        word = rng.integers(1, SYMBOLS + 1, size=rng.integers(1, most + 1))
        frames = [0.3 * rng.standard_normal((2, BANDS))]
        for w in word:
            shape = voices[w - 1] * rng.uniform(0.8, 1.2)
            frames.append(np.repeat(shape[None], rng.integers(2, 5), 0))
            frames.append(np.zeros((1, BANDS)))
        f = np.concatenate(frames)
        f = f + 0.6 * rng.standard_normal(f.shape)
        feats.append(torch.tensor(f, dtype=torch.float32))
        targets.append(torch.tensor(word))
        tl.append(len(word))
        fl.append(len(f))
    return nn.utils.rnn.pad_sequence(feats), torch.cat(targets), torch.tensor(fl), torch.tensor(tl)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(BANDS, 32, 3, padding=1)
        self.rec = nn.GRU(32, 32)
        self.out = nn.Linear(32, SYMBOLS + 1)

    def forward(self, x):  # time, batch, bands
        h = torch.relu(self.front(x.permute(1, 2, 0))).permute(2, 0, 1)
        return self.out(self.rec(h)[0]).log_softmax(-1)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    voices = rng.standard_normal((SYMBOLS, BANDS))
    model = Listener()
    ctc = nn.CTCLoss(zero_infinity=True)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=max(1, steps // 5), T_mult=2, eta_min=1e-4)
    held = utter(rng, voices, 120, 6)
    usual = None
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for step in range(steps):
            share = step / steps
            x, y, xl, yl = utter(rng, voices, 12, 2 + int(4 * min(1.0, share / 0.5)))
            loss = ctc(model(x), y, xl, yl)
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            norm = torch.stack([g.norm() for g in grads]).norm().item()
            if usual is not None and step > 50 and not norm < 3.0 * usual:
                usual = 0.9 * usual + 0.1 * min(norm, 6.0 * usual)
            else:
                usual = norm if usual is None else 0.97 * usual + 0.03 * norm
                sigma = 0.02 / (1 + step) ** 0.55
                for g in grads:
                    g.add_(sigma * torch.randn_like(g))
                opt.step()
            sched.step()
            if step % max(1, steps // 12) == 0 or step == steps - 1:
                with torch.no_grad():
                    v = ctc(model(held[0]), *held[1:]).item()
                monitor.validation(v)
