"""Skip-gram with negative sampling over the standard library: two sparse embedding tables under SparseAdam.
Text is read in order, the rate decays linearly as in word2vec, and a gradient touches few rows."""

import collections
import pathlib
import re
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import rmetric


class SkipGram(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.centre = nn.Embedding(vocab, dim, sparse=True)
        self.around = nn.Embedding(vocab, dim, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.around.weight)

    def forward(self, c, o, neg):
        v = self.centre(c)
        good = (v * self.around(o)).sum(-1)
        bad = torch.einsum("bd,bkd->bk", v, self.around(neg))
        return -(functional.logsigmoid(good) + functional.logsigmoid(-bad).sum(1)).mean()


def read_tokens(limit):
    folder, words = pathlib.Path(collections.__file__).parent.parent, []
    for path in sorted(folder.glob("*.py")):
        words += re.findall(r"[a-z_]{2,}", path.read_text(errors="ignore").lower())
        if len(words) > limit:
            break
    return words[:limit]


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    words = read_tokens(160_000)
    common = [w for w, n in collections.Counter(words).most_common(1500)]
    index = {w: i for i, w in enumerate(common)}
    ids = np.array([index[w] for w in words if w in index])
    freq = np.bincount(ids, minlength=len(common)) / len(ids)
    keep = rng.random(len(ids)) < np.minimum(1, np.sqrt(2e-3 / freq[ids]))
    ids = ids[keep]
    noise = torch.from_numpy(freq**0.75).float()
    shifts = [-3, -2, -1, 1, 2, 3]
    spots = np.arange(3, len(ids) - 3)
    held = rng.choice(spots, 2000, replace=False)
    spots = np.setdiff1d(spots, held)
    vc, vo = torch.from_numpy(ids[held]), torch.from_numpy(ids[held + rng.choice(shifts, len(held))])
    vneg = torch.multinomial(noise, len(held) * 5, True).view(-1, 5)
    net = SkipGram(len(common), 48)
    opt = torch.optim.SparseAdam(list(net.parameters()), lr=4e-3)
    at, batch = 0, 320
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for k in range(steps):
            for g in opt.param_groups:
                g["lr"] = 4e-3 * max(0.01, 1 - k / steps)
            here = spots[np.arange(at, at + batch) % len(spots)]
            at += batch
            c, o = ids[here], ids[here + rng.choice(shifts, batch)]
            neg = torch.multinomial(noise, batch * 5, True).view(-1, 5)
            loss = net(torch.from_numpy(c), torch.from_numpy(o), neg)
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt.step()
            if k % max(1, steps // 15) == 0 or k == steps - 1:
                with torch.no_grad():
                    val = net(vc, vo, vneg).item()
                monitor.validation(val)
