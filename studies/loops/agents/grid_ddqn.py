"""Double deep Q-learning of a way through a grid with walls. The target network is copied every fifty updates, and what
is explored at random falls to a twentieth."""

import copy
import random
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import nn

import rmetric

WALLS = {(1, 1), (1, 2), (1, 3), (3, 2), (3, 3), (3, 4), (4, 2)}
GOAL = (5, 5)


def seen(place):
    one_hot = np.zeros(36, np.float32)
    one_hot[place[0] * 6 + place[1]] = 1
    return one_hot


def fresh(rng):
    while True:
        place = (rng.randrange(6), rng.randrange(6))
        if place not in WALLS and place != GOAL:
            return place


def move(place, action):
    row, column = place[0] + (0, 0, 1, -1)[action], place[1] + (1, -1, 0, 0)[action]
    is_free = 0 <= row < 6 and 0 <= column < 6 and (row, column) not in WALLS
    return (row, column) if is_free else place


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = random.Random(seed)
    q = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    target = copy.deepcopy(q)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay: deque[tuple[Any, ...]] = deque(maxlen=10_000)
    place, age, gained = fresh(rng), 0, 0.0
    moves = updates = 0
    with rmetric.TrainingMonitor(q, opt, **watch) as monitor:
        while updates < steps:
            moves += 1
            if rng.random() < max(0.05, 1 - updates / 400):
                action = rng.randrange(4)
            else:
                with torch.no_grad():
                    action = int(q(torch.from_numpy(seen(place))).argmax())
            new = move(place, action)
            won = new == GOAL
            reward = 1.0 if won else -0.05
            replay.append((seen(place), action, reward, seen(new), float(won)))
            place, age, gained = new, age + 1, gained + reward
            if won or age >= 30:
                monitor.reward(gained)
                place, age, gained = fresh(rng), 0, 0.0
            if moves < 500 or moves % 4:
                continue
            s, a, r, s2, end = (torch.from_numpy(np.array(part)) for part in zip(*rng.sample(replay, 64), strict=True))
            with torch.no_grad():
                best = q(s2).argmax(1, keepdim=True)
                goal = r.float() + 0.95 * (1 - end.float()) * target(s2).gather(1, best).squeeze(1)
            loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), goal)
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(q.parameters(), 10.0)
            opt.step()
            updates += 1
            if updates % 50 == 0:
                target.load_state_dict(q.state_dict())
