"""SAC of a point that must reach a random place in the plane, with a temperature that is learned. Actor and critic have
a monitor each, and the replay buffer only grows."""

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric
from studies.loops.critic import Critic, mlp

POINTS, WARM_UP, EPISODE, BATCH = 8, 100, 25, 128


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(4, 4)

    def forward(self, s):
        mean, log_std = self.net(s).chunk(2, 1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        x = dist.rsample()
        u = torch.tanh(x)
        return u, (dist.log_prob(x) - torch.log(1 - u * u + 1e-6)).sum(1)


def move(state, action):
    new = state.copy()
    new[:, :2] = np.clip(state[:, :2] + 0.2 * action, -1.5, 1.5)
    return new, -np.linalg.norm(new[:, :2] - new[:, 2:], axis=1)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng, deal = np.random.RandomState(seed), random.Random(seed)

    def fresh():
        return rng.uniform(-1, 1, (POINTS, 4)).astype(np.float32)

    actor, critic = Actor(), Critic(6)
    slow = copy.deepcopy(critic)
    log_heat = torch.tensor(-1.6, requires_grad=True)
    opt_a = torch.optim.Adam(actor.parameters(), lr=6e-4)
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
    opt_h = torch.optim.Adam([log_heat], lr=1e-3)
    replay: list[tuple[np.ndarray, ...]] = []
    state, gained = fresh(), np.zeros(POINTS)
    moves = updates = 0
    of_critic = {**watch, "log": Path(watch["log"]).with_suffix(".critic.jsonl")}
    with (
        rmetric.TrainingMonitor(actor, opt_a, **watch) as monitor,
        rmetric.TrainingMonitor(critic, opt_c, **of_critic) as critic_monitor,
    ):
        while updates < steps:
            if moves < WARM_UP:
                action = rng.uniform(-1, 1, (POINTS, 2)).astype(np.float32)
            else:
                with torch.no_grad():
                    action = actor(torch.from_numpy(state))[0].numpy()
            new, reward = move(state, action)
            gained += reward
            replay += zip(state, action, reward, new, strict=True)
            state = new
            moves += 1
            if moves % EPISODE == 0:
                if updates:
                    monitor.reward(gained.mean())
                    critic_monitor.reward(gained.mean())
                gained[:] = 0
                state = fresh()
            if moves < WARM_UP:
                continue
            s, u, r, s2 = (
                torch.from_numpy(np.array(part)) for part in zip(*deal.choices(replay, k=BATCH), strict=True)
            )
            heat = log_heat.exp().detach()
            with torch.no_grad():
                u2, log_prob = actor(s2)
                goal = r + 0.95 * (torch.min(*slow(s2, u2)) - heat * log_prob)
            q1, q2 = critic(s, u)
            loss_c = (q1 - goal).pow(2).mean() + (q2 - goal).pow(2).mean()
            opt_c.zero_grad()
            loss_c.backward()
            critic_monitor.step(loss_c)
            opt_c.step()
            u, log_prob = actor(s)
            loss_a = (heat * log_prob - torch.min(*critic(s, u))).mean()
            opt_a.zero_grad()
            loss_a.backward()
            monitor.step(loss_a)
            opt_a.step()
            opt_h.zero_grad()
            (-log_heat * (log_prob.detach() - 2).mean()).backward()
            opt_h.step()
            with torch.no_grad():
                for p, old in zip(critic.parameters(), slow.parameters(), strict=True):
                    old.lerp_(p, 0.01)
            updates += 1
