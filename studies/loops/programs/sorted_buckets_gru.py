"""A bidirectional GRU classifies strings that are served from short to long in every epoch, never shuffled.
The clip bound follows a percentile of past gradient norms."""

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import rmetric


def make_strings(rng, n, kinds=5, letters=20):
    chains = rng.dirichlet(np.full(letters, 0.35), size=(kinds, letters))
    seqs, labels = [], []
    for _ in range(n):
        k = int(rng.integers(kinds))
        length = int(np.clip(rng.lognormal(2.5, 0.6), 3, 60))
        s = [int(rng.integers(letters))]
        for _ in range(length - 1):
            s.append(int(rng.choice(letters, p=0.6 * chains[k, s[-1]] + 0.4 / letters)))
        seqs.append(torch.tensor(s) + 1)
        labels.append(k)
    return seqs, torch.tensor(labels)


class Guesser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(21, 16, padding_idx=0)
        self.gru = nn.GRU(16, 32, bidirectional=True, batch_first=True)
        self.classify = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, padded, lengths):
        packed = pack_padded_sequence(self.embed(padded), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.gru(packed)
        return self.classify(torch.cat([h[0], h[1]], 1))


def buckets(seqs, labels, size):
    order = sorted(range(len(seqs)), key=lambda i: len(seqs[i]))
    out = []
    for a in range(0, len(order), size):
        idx = order[a : a + size]
        rows = [seqs[i] for i in idx]
        out.append((pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows]), labels[idx]))
    return out


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    seqs, labels = make_strings(np.random.default_rng(seed), 3400)
    train_b = buckets(seqs[:3000], labels[:3000], 32)
    val_b = buckets(seqs[3000:], labels[3000:], 200)
    net = Guesser()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    decay = torch.optim.lr_scheduler.MultiStepLR(opt, [int(0.6 * steps), int(0.85 * steps)], gamma=0.3)
    history: deque[float] = deque(maxlen=200)
    n = 0
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        while n < steps:
            for padded, lengths, y in train_b:
                if n >= steps:
                    break
                opt.zero_grad()
                loss = nn.functional.cross_entropy(net(padded, lengths), y)
                loss.backward()
                monitor.step(loss)
                bound = float(np.percentile(history, 70)) if len(history) > 20 else 5.0
                history.append(nn.utils.clip_grad_norm_(net.parameters(), bound).item())
                opt.step()
                decay.step()
                n += 1
            net.eval()
            with torch.no_grad():
                parts = [nn.functional.cross_entropy(net(p, size), y).item() for p, size, y in val_b]
            net.train()
            monitor.validation(float(np.mean(parts)))
