"""A linear-chain CRF tagger trained by LBFGS: 25 updates on one chunk of sentences, then the next with a fresh history.
The monitor is called in the closure, at its first evaluation only."""

from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric

TAGS, WORDS, LEN = 5, 50, 7


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS, 12)
        self.hid = nn.Linear(36, 20)
        self.emit = nn.Linear(20, TAGS)
        self.trans = nn.Parameter(torch.zeros(TAGS, TAGS))
        self.begin = nn.Parameter(torch.zeros(TAGS))

    def scores(self, words):
        e = self.emb(words)
        left = torch.cat([torch.zeros_like(e[:, :1]), e[:, :-1]], 1)
        right = torch.cat([e[:, 1:], torch.zeros_like(e[:, :1])], 1)
        return self.emit(torch.tanh(self.hid(torch.cat([left, e, right], -1))))

    def nll(self, words, tags):
        s = self.scores(words)
        gold = (
            s.gather(-1, tags[..., None]).sum((1, 2))
            + self.begin[tags[:, 0]]
            + self.trans[tags[:, :-1], tags[:, 1:]].sum(1)
        )
        a = self.begin + s[:, 0]
        for t in range(1, LEN):
            a = torch.logsumexp(a[:, :, None] + self.trans, dim=1) + s[:, t]
        return (torch.logsumexp(a, 1) - gold).mean() / LEN


def hmm(rng):
    move = rng.dirichlet(np.full(TAGS, 0.4), size=TAGS)
    say = rng.dirichlet(np.full(WORDS, 0.15), size=TAGS)

    def draw(n):
        tags = np.zeros((n, LEN), dtype=np.int64)
        tags[:, 0] = rng.integers(TAGS, size=n)
        for t in range(1, LEN):
            tags[:, t] = (rng.random((n, 1)) > move[tags[:, t - 1]].cumsum(1)).sum(1).clip(0, TAGS - 1)
        words = (rng.random((n, LEN, 1)) > say[tags].cumsum(-1)).sum(-1).clip(0, WORDS - 1)
        return torch.from_numpy(words), torch.from_numpy(tags)

    return draw


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    draw = hmm(np.random.default_rng(seed))
    held = draw(500)
    model = CRF()
    opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=2, history_size=8, line_search_fn="strong_wolfe")
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for step in range(steps):
            if step % 25 == 0:
                words, tags = draw(300)
                opt.state.clear()
            first = True

            def closure(words=words, tags=tags):
                nonlocal first
                opt.zero_grad()
                loss = model.nll(words, tags) + 1e-4 * sum(p.square().sum() for p in model.parameters())
                loss.backward()
                if first:
                    monitor.step(loss)
                    first = False
                return loss

            opt.step(closure)
            if step % max(1, steps // 10) == 0 or step == steps - 1:
                with torch.no_grad():
                    v = model.nll(*held).item()
                monitor.validation(v)
