"""A Bradley-Terry reward model of pairs of texts: half way Adam is replaced by SGD, unknown to the monitor.
From 75 % on, a running average of the weights is what gets validated."""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.optim.swa_utils import AveragedModel

import rmetric

WORDS = 60


class Reward(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, dim, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(dim, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, flat, offsets):
        return self.mlp(self.bag(flat, offsets)).squeeze(-1)


class Judge:
    """Hidden scorer: goodness of words plus a bonus for a pair of topics; answers by a noisy comparison."""

    def __init__(self, gen):
        self.gen = gen
        self.good = torch.randn(WORDS, generator=gen)
        self.topic = torch.randint(4, (WORDS,), generator=gen)

    def text(self):
        n = int(torch.randint(4, 15, (1,), generator=self.gen))
        return torch.randint(WORDS, (n,), generator=self.gen)

    def score(self, t):
        top = self.topic[t]
        return 2.5 * self.good[t].mean() + 3 * (top == 0).float().mean() * (top == 1).float().mean()

    def pairs(self, n):
        left, right = [], []
        for _ in range(n):
            a, b = self.text(), self.text()
            p = torch.sigmoid(3 * (self.score(a) - self.score(b)))
            if torch.rand((), generator=self.gen) > p:
                a, b = b, a
            left.append(a)
            right.append(b)
        return self.collate(left), self.collate(right)

    @staticmethod
    def collate(items):
        lengths = torch.tensor([0] + [len(i) for i in items[:-1]])
        return torch.cat(items), lengths.cumsum(0)


def bt_loss(model, pair):
    return softplus(model(*pair[1]) - model(*pair[0])).mean()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    judge = Judge(torch.Generator().manual_seed(seed))
    pool = [judge.pairs(32) for _ in range(120)]
    held = judge.pairs(400)
    model = Reward()
    averaged = AveragedModel(model)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    switch, average_from = steps // 2, int(0.75 * steps)
    eval_every = max(1, steps // 12)
    with rmetric.TrainingMonitor(model, optimizer, **watch) as monitor:
        for it in range(steps):
            if it == switch:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
            loss = bt_loss(model, pool[int(torch.randint(len(pool), ()))])
            optimizer.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if it >= average_from:
                averaged.update_parameters(model)
            if (it + 1) % eval_every == 0 or it == 0:
                with torch.no_grad():
                    v = bt_loss(averaged if it >= average_from else model, held).item()
                monitor.validation(v)
