"""Advantage actor-critic of sixteen cart-poles, eight steps of each a batch. The reward is how long a pole was held."""

from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric

POLES, HORIZON = 16, 8


class CartPoles:
    def __init__(self, rng):
        self.rng = rng
        self.state = self.fresh(POLES)
        self.age = np.zeros(POLES, int)

    def fresh(self, n):
        return self.rng.uniform(-0.05, 0.05, (n, 4))

    def observe(self):
        return torch.tensor(self.state, dtype=torch.float32)

    def step(self, action):
        """Which episodes are over, and how long they were."""
        x, v, th, w = self.state.T
        c, s = np.cos(th), np.sin(th)
        tmp = (np.where(action == 1, 10.0, -10.0) + 0.05 * w * w * s) / 1.1
        turn = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        push = tmp - 0.05 * turn * c / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * push, th + 0.02 * w, w + 0.02 * turn], 1)
        self.age += 1
        fell = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > 0.2095)
        over = fell | (self.age >= 200)
        lengths = self.age[over].copy()
        self.state[over] = self.fresh(over.sum())
        self.age[over] = 0
        return over, lengths


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 2)
        self.v = nn.Linear(64, 1)

    def forward(self, s):
        h = self.body(s)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    env = CartPoles(np.random.RandomState(seed))
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for _ in range(steps):
            states, actions, ends = [], [], []
            for _ in range(HORIZON):
                states.append(env.observe())
                with torch.no_grad():
                    actions.append(net(states[-1])[0].sample())
                over, lengths = env.step(actions[-1].numpy())
                ends.append(torch.tensor(over, dtype=torch.float32))
                for length in lengths:
                    monitor.reward(float(length))
            with torch.no_grad():
                to_come = net(env.observe())[1]
            returns = []
            for end in reversed(ends):
                to_come = 0.1 + 0.98 * to_come * (1 - end)
                returns.append(to_come)
            goal = torch.cat(returns[::-1])
            dist, v = net(torch.cat(states))
            advantage = (goal - v).detach()
            policy = -(dist.log_prob(torch.cat(actions)) * advantage).mean()
            loss = policy + 0.5 * (goal - v).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
