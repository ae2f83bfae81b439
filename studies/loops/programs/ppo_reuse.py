"""PPO of a point mass that must reach the origin: each rollout serves four epochs of minibatches and is thrown away.
The learning rate goes linearly to zero."""

from typing import Any

import torch
from torch import nn

import rmetric

ENVS, HORIZON, EPOCHS, MINI = 32, 32, 4, 8


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
        self.v = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((2,), -0.5))
        with torch.no_grad():
            next(self.pi[-1].parameters()).mul_(0.01)

    def forward(self, s):
        return torch.distributions.Normal(self.pi(s), self.log_std.exp()), self.v(s).squeeze(-1)


def fresh(n):
    return torch.cat([torch.empty(n, 2).uniform_(-1, 1), torch.zeros(n, 2)], 1)


def move(s, a):
    vel = 0.9 * s[:, 2:] + 0.1 * a.clamp(-1, 1)
    pos = (s[:, :2] + 0.3 * vel).clamp(-2, 2)
    return torch.cat([pos, vel], 1), -pos.norm(dim=1) - 0.05 * a.pow(2).sum(1)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=7e-4, eps=1e-5)
    fade = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: max(0.0, 1 - k / steps))
    state, age = fresh(ENVS), torch.randint(0, 64, (ENVS,))
    done_updates = 0
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        while done_updates < steps:
            rollout: list[list[torch.Tensor]] = [[] for _ in range(6)]
            with torch.no_grad():
                for _ in range(HORIZON):
                    dist, v = net(state)
                    a = dist.sample()
                    nxt, r = move(state, a)
                    age = age + 1
                    end = age >= 64
                    for box, item in zip(rollout, (state, a, dist.log_prob(a).sum(1), r, v, end), strict=True):
                        box.append(item)
                    state = torch.where(end[:, None], fresh(ENVS), nxt)
                    age = torch.where(end, torch.zeros_like(age), age)
                ss, aa, lp, rr, vv, ends = rollout
                carry, nv, adv = torch.zeros(ENVS), net(state)[1], []
                for t in reversed(range(HORIZON)):
                    alive = 1 - ends[t].float()
                    delta = rr[t] + 0.97 * alive * nv - vv[t]
                    carry = delta + 0.97 * 0.95 * alive * carry
                    adv.append(carry)
                    nv = vv[t]
                A = torch.stack(adv[::-1]).flatten()
                R = A + torch.stack(vv).flatten()
            S, U, L = torch.cat(ss), torch.cat(aa), torch.cat(lp)
            for _ in range(EPOCHS):
                for idx in torch.randperm(ENVS * HORIZON).chunk(MINI):
                    if done_updates >= steps:
                        break
                    dist, v = net(S[idx])
                    ad = (A[idx] - A[idx].mean()) / (A[idx].std() + 1e-8)
                    ratio = (dist.log_prob(U[idx]).sum(1) - L[idx]).exp()
                    surrogate = torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean()
                    value = (v - R[idx]).pow(2).mean()
                    loss = -surrogate + 0.5 * value - 0.005 * dist.entropy().sum(1).mean()
                    opt.zero_grad(set_to_none=True)
                    loss.backward()
                    monitor.step(loss)
                    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                    opt.step()
                    fade.step()
                    done_updates += 1
