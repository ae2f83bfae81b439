"""TD3 of eight pendulums: twin critics, a noisy target, an actor that is updated every second time.
The watched model is the critic."""

import copy
from typing import Any

import numpy as np
import torch

import rmetric
from studies.loops.critic import Critic, mlp

PENDULUMS, WARM_UP, EPISODE, SIZE, BATCH = 8, 200, 100, 20_000, 128


class Pendulums:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.angle = self.rng.uniform(-np.pi, np.pi, PENDULUMS)
        self.speed = self.rng.uniform(-1, 1, PENDULUMS)
        self.age = 0

    def observe(self):
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.speed / 8], 1).astype(np.float32)

    def step(self, action):
        torque = 5 * action
        tilt = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(tilt * tilt + 0.1 * self.speed**2 + 0.001 * torque * torque)
        self.speed = np.clip(self.speed + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle = self.angle + self.speed * 0.05
        self.age += 1
        return reward


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.RandomState(seed)
    actor, critic = mlp(3, 1), Critic(4)
    slow_actor, slow_critic = copy.deepcopy(actor), copy.deepcopy(critic)
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
    opt_a = torch.optim.Adam(actor.parameters(), lr=1e-3)
    replay = [np.zeros((SIZE, *shape), np.float32) for shape in ((3,), (1,), (), (3,))]
    env, gained = Pendulums(rng), np.zeros(PENDULUMS)
    moves = updates = 0
    with rmetric.TrainingMonitor(critic, opt_c, **watch) as monitor:
        while updates < steps:
            before = env.observe()
            if moves < WARM_UP:
                action = rng.uniform(-1, 1, PENDULUMS)
            else:
                with torch.no_grad():
                    wanted = torch.tanh(actor(torch.from_numpy(before))).numpy()[:, 0]
                action = np.clip(wanted + 0.1 * rng.randn(PENDULUMS), -1, 1)
            reward = env.step(action)
            gained += reward
            places = (moves * PENDULUMS + np.arange(PENDULUMS)) % SIZE
            for box, item in zip(replay, (before, action[:, None], 0.1 * reward, env.observe()), strict=True):
                box[places] = item
            moves += 1
            if env.age == EPISODE:
                if updates:
                    monitor.reward(gained.mean())
                gained[:] = 0
                env.reset()
            if moves < WARM_UP:
                continue
            pick = rng.randint(0, min(moves * PENDULUMS, SIZE), BATCH)
            s, u, r, s2 = (torch.from_numpy(box[pick]) for box in replay)
            with torch.no_grad():
                noise = (0.2 * torch.randn(BATCH, 1)).clamp(-0.5, 0.5)
                u2 = (torch.tanh(slow_actor(s2)) + noise).clamp(-1, 1)
                goal = r + 0.97 * torch.min(*slow_critic(s2, u2))
            q1, q2 = critic(s, u)
            loss = (q1 - goal).pow(2).mean() + (q2 - goal).pow(2).mean()
            opt_c.zero_grad()
            loss.backward()
            monitor.step(loss)
            opt_c.step()
            updates += 1
            if updates % 2 == 0:
                actor_loss = -critic(s, torch.tanh(actor(s)))[0].mean()
                opt_a.zero_grad()
                actor_loss.backward()
                opt_a.step()
                with torch.no_grad():
                    for fast, slow in ((actor, slow_actor), (critic, slow_critic)):
                        for new, old in zip(fast.parameters(), slow.parameters(), strict=True):
                            old.lerp_(new, 0.02)
