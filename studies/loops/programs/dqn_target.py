"""Deep Q-learning of a cart-pole: the replay buffer fills meanwhile, the target network is copied now and then.
The loss has no reason to fall as returns rise."""

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric


class CartPole:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action else -10.0
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        acc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        self.s = np.array([x + 0.02 * v, v + 0.02 * (tmp - 0.05 * acc * c / 1.1), th + 0.02 * w, w + 0.02 * acc])
        self.t += 1
        fell = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21
        return self.s.astype(np.float32), fell, fell or self.t >= 200


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = CartPole(rng)
    q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    size = 10_000
    S, S2 = np.zeros((size, 4), np.float32), np.zeros((size, 4), np.float32)
    A, D = np.zeros(size, np.int64), np.zeros(size, np.float32)
    filled, obs = 0, env.reset()

    def act(eps):
        nonlocal obs, filled
        if rng.random() < eps:
            a = int(rng.integers(2))
        else:
            with torch.no_grad():
                a = int(q(torch.from_numpy(obs)).argmax())
        nxt, fell, over = env.step(a)
        i = filled % size
        S[i], A[i], S2[i], D[i] = obs, a, nxt, fell
        filled += 1
        obs = env.reset() if over else nxt

    for _ in range(500):
        act(1.0)
    with rmetric.TrainingMonitor(q, opt, **watch) as monitor:
        for update in range(steps):
            for _ in range(4):
                act(max(0.03, 1.0 - update / (0.4 * steps)))
            pick = rng.integers(0, min(filled, size), 64)
            s, a, s2, d = (torch.from_numpy(z[pick]) for z in (S, A, S2, D))
            with torch.no_grad():
                best = q(s2).argmax(1, keepdim=True)
                goal = 1.0 + 0.98 * (1 - d) * target(s2).gather(1, best).squeeze(1)
            loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), goal)
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(q.parameters(), 10.0)
            opt.step()
            if (update + 1) % max(1, steps // 40) == 0:
                target.load_state_dict(q.state_dict())
