"""A tiny GPT-2 learns preferences (DPO) against a frozen copy of itself; both answers pass through it in one call.
It also writes samples with generate() in the midst of its training."""

import copy
from typing import Any

import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

import rmetric

VOCAB, PROMPT, ANSWER = 18, 3, 6  # 0 = begin, 1 = end, the rest are letters


def rising(n):
    """Continuations which go up by one or two per letter, with wrap-around."""
    start = torch.randint(2, VOCAB, (n, 1))
    jumps = torch.randint(1, 3, (n, PROMPT + ANSWER - 1))
    seq = torch.cat([start, jumps], 1).cumsum(1)
    return torch.cat([torch.zeros(n, 1, dtype=torch.long), (seq - 2) % (VOCAB - 2) + 2], 1)


def answers_logp(model, seq):
    logp = model(input_ids=seq).logits[:, :-1].log_softmax(-1)
    picked = logp.gather(-1, seq[:, 1:, None]).squeeze(-1)
    return picked[:, PROMPT:].sum(-1)


def pair(n):
    """Preferred: few even letters in the answer; rejected: more of them (labels carry 5 % of noise)."""
    a, b = rising(n), rising(n)
    b[:, : PROMPT + 1] = a[:, : PROMPT + 1]
    jump = torch.randint(1, 3, (n, ANSWER - 1))
    climb = torch.cat([jump, torch.ones(n, 1).long()], 1).cumsum(1)
    b[:, PROMPT + 1 :] = (b[:, PROMPT : PROMPT + 1] - 2 + climb) % (VOCAB - 2) + 2
    even = [(s[:, PROMPT + 1 :] % 2 == 0).float().sum(1) + 0.1 * torch.rand(n) for s in (a, b)]
    swap = (even[0] > even[1]) ^ (torch.rand(n) < 0.05)
    return torch.where(swap[:, None], b, a), torch.where(swap[:, None], a, b)


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    cfg = GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=32, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=1, pad_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    policy: Any = GPT2LMHeadModel(cfg)
    sft = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for _ in range(200):  # supervised stage, not watched
        seq = rising(32)
        loss = policy(input_ids=seq, labels=seq).loss
        loss.backward()
        sft.step()
        sft.zero_grad()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    beta = 0.2
    opt = torch.optim.RMSprop(policy.parameters(), lr=1e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / (0.1 * steps)) * (1 - 0.9 * s / steps))

    def dpo(win, lose):
        both = torch.cat([win, lose])
        with torch.no_grad():
            ref = answers_logp(reference, both)
        margin = beta * (answers_logp(policy, both) - ref)
        winner, loser = margin.chunk(2)
        return -functional.logsigmoid(winner - loser).mean()

    held = pair(256)
    prompts = rising(64)[:, : PROMPT + 1]
    with rmetric.TrainingMonitor(policy, opt, **watch) as monitor:
        for step in range(steps):
            policy.train()
            loss = dpo(*pair(24))
            loss.backward()
            monitor.step(loss)
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 5.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            if step % max(1, steps // 6) == 0 or step == steps - 1:
                policy.eval()
                with torch.no_grad():
                    v = dpo(*held).item()
                policy.generate(  # samples to look at
                    input_ids=prompts, attention_mask=torch.ones_like(prompts), do_sample=True, max_new_tokens=ANSWER
                )
                monitor.validation(v)
