"""What two agents with continuous actions are made of: small networks, and two of them as one critic."""

import torch
from torch import nn


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class Critic(nn.Module):
    """Two estimates of the value of actions in states; of the two the smaller one is believed."""

    def __init__(self, inputs):
        super().__init__()
        self.a, self.b = mlp(inputs, 1), mlp(inputs, 1)

    def forward(self, s, u):
        x = torch.cat([s, u], 1)
        return self.a(x).squeeze(1), self.b(x).squeeze(1)
