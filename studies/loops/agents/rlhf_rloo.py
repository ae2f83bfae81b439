"""RLOO of a small transformer that has learned a random bigram language: more of four tokens that are liked, and
a price for leaving what it had learned."""

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import rmetric
from studies.loops.transformer import Transformer

VOCABULARY, LENGTH, PROMPTS, ANSWERS, LIKED = 12, 9, 8, 4, 4


def learn_language(model):
    """Supervised stage, not watched."""
    follows = torch.randn(VOCABULARY, VOCABULARY).softmax(1)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        x = torch.randint(0, VOCABULARY, (64, 1))
        for _ in range(LENGTH - 1):
            x = torch.cat([x, torch.multinomial(follows[x[:, -1]], 1)], 1)
        loss = functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    policy = Transformer(VOCABULARY, LENGTH)
    learn_language(policy)
    reference = copy.deepcopy(policy).requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-4, weight_decay=0.01)
    with rmetric.TrainingMonitor(policy, opt, **watch) as monitor:
        for _ in range(steps):
            prompts = torch.randint(0, VOCABULARY, (PROMPTS, 1)).repeat_interleave(ANSWERS, 0)
            said = policy.sample(prompts, LENGTH - 1)
            log_prob = policy.log_probs(said).sum(1)
            with torch.no_grad():
                log_prob_before = reference.log_probs(said).sum(1)
            score = (said[:, 1:] < LIKED).float().mean(1)
            monitor.reward(score.mean())
            group = (score - 0.03 * (log_prob.detach() - log_prob_before)).view(PROMPTS, ANSWERS)
            others = (group.sum(1, keepdim=True) - group) / (ANSWERS - 1)
            loss = -((group - others).view(-1) * log_prob).mean()
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
