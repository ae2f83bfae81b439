"""A GRU encoder-decoder reverses strings of digits and sorts neighbours, with label smoothing.
Teacher forcing falls linearly to 10 %, and dropout goes to zero."""

import random
from typing import Any

import torch
from torch import nn

import rmetric

DIGITS, GO, L = 10, 10, 6


def examples(n, gen):
    src = torch.randint(DIGITS, (n, L), generator=gen)
    tgt = src.flip(1).view(n, L // 2, 2).sort(-1).values.reshape(n, L)
    return src, tgt


class Translator(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(DIGITS, d), nn.Embedding(DIGITS + 1, d)
        self.place = nn.Parameter(torch.randn(L, d) * 0.3)
        self.enc = nn.GRU(d, d, batch_first=True)
        self.cell = nn.GRUCell(2 * d, d)
        self.query = nn.Linear(d, d, bias=False)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2 * d, DIGITS)

    def forward(self, src, tgt=None, force=0.0, coin=None):
        mem, h = self.enc(self.drop(self.src_emb(src) + self.place))
        h, prev, outs = h[0], torch.full((len(src),), GO), []
        ctx = torch.zeros_like(h)
        for k in range(L):
            h = self.cell(torch.cat([self.tgt_emb(prev), ctx], 1), h)
            att = (
                torch.einsum("bd,bld->bl", self.query(h + self.place[k]), mem + self.place)
                .div(h.shape[1] ** 0.5)
                .softmax(-1)
            )
            ctx = torch.einsum("bl,bld->bd", att, mem + self.src_emb(src))
            logits = self.out(self.drop(torch.cat([h, ctx], 1)))
            outs.append(logits)
            prev = tgt[:, k] if tgt is not None and coin.random() < force else logits.detach().argmax(-1)
        return torch.stack(outs, 1)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    gen, coin = torch.Generator().manual_seed(seed + 100), random.Random(seed)
    model = Translator()
    crit = nn.CrossEntropyLoss(label_smoothing=0.05)
    opt = torch.optim.NAdam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps, eta_min=1e-4)
    hsrc, htgt = examples(200, gen)
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for step in range(steps):
            share = step / steps
            model.drop.p = 0.2 * max(0.0, 1 - 1.5 * share)
            src, tgt = examples(32, gen)
            logits = model(src, tgt, force=1.0 - 0.9 * share, coin=coin)
            loss = crit(logits.flatten(0, 1), tgt.flatten())
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % max(1, steps // 10) == 0 or step == steps - 1:
                model.eval()
                with torch.no_grad():
                    free = model(hsrc)
                    v = crit(free.flatten(0, 1), htgt.flatten()).item()
                model.train()
                monitor.validation(v)
