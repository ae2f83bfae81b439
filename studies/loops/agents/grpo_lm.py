"""GRPO of a small transformer: each of its four tokens should be the sum of two digits. Eight answers a prompt."""

from typing import Any

import torch
from torch import nn

import rmetric
from studies.loops.transformer import Transformer

PROMPTS, ANSWERS = 8, 8


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    policy = Transformer(vocabulary=10, length=6)
    opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    with rmetric.TrainingMonitor(policy, opt, **watch) as monitor:
        for _ in range(steps):
            digits = torch.randint(0, 10, (PROMPTS, 2)).repeat_interleave(ANSWERS, 0)
            digits[:, 1] %= 3
            said = policy.sample(digits, 4)
            due = digits.sum(1) % 10
            reward = (said[:, 2:] == due[:, None]).float().mean(1)
            monitor.reward(reward.mean())
            group = reward.view(PROMPTS, ANSWERS)
            spread = group.std(1, keepdim=True) + 1e-4
            advantage = ((group - group.mean(1, keepdim=True)) / spread).view(-1, 1)
            log_probs = policy.log_probs(said)[:, 1:]
            ratio = (log_probs - log_probs.detach()).exp()
            loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
