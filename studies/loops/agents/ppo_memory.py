"""PPO of a small transformer that names the symbol before the present one: four epochs of two minibatches a rollout."""

from typing import Any

import torch
from torch import nn

import rmetric
from studies.loops.transformer import Transformer

SYMBOLS, LENGTH, ROLLOUTS, EPOCHS = 5, 10, 64, 4


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    net = Transformer(SYMBOLS, LENGTH, value=True)
    opt = torch.optim.Adam(net.parameters(), lr=5e-4, eps=1e-5)
    done_updates = 0
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        while done_updates < steps:
            shown = torch.randint(0, SYMBOLS, (ROLLOUTS, LENGTH))
            with torch.no_grad():
                logits, v = net(shown)
                dist = torch.distributions.Categorical(logits=logits)
                named = dist.sample()
                old = dist.log_prob(named)
            reward = torch.zeros(ROLLOUTS, LENGTH)
            reward[:, 1:] = (named[:, 1:] == shown[:, :-1]).float()
            monitor.reward(reward.sum(1).mean())
            advantage, carry, next_v = torch.zeros_like(reward), torch.zeros(ROLLOUTS), torch.zeros(ROLLOUTS)
            for t in reversed(range(LENGTH)):
                carry = reward[:, t] + 0.5 * next_v - v[:, t] + 0.5 * 0.95 * carry
                advantage[:, t], next_v = carry, v[:, t]
            returns = advantage + v
            for _ in range(EPOCHS):
                for idx in torch.randperm(ROLLOUTS).split(ROLLOUTS // 2):
                    if done_updates >= steps:
                        break
                    ad = (advantage[idx] - advantage[idx].mean()) / (advantage[idx].std() + 1e-8)
                    logits, value = net(shown[idx])
                    dist = torch.distributions.Categorical(logits=logits)
                    ratio = (dist.log_prob(named[idx]) - old[idx]).exp()
                    surrogate = torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean()
                    loss = -surrogate + 0.5 * (value - returns[idx]).pow(2).mean() - 0.01 * dist.entropy().mean()
                    opt.zero_grad()
                    loss.backward()
                    monitor.step(loss)
                    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                    opt.step()
                    done_updates += 1
