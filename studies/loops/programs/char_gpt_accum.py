"""A character transformer on source code, in bfloat16 autocast: epochs over a fixed set, three micro-batches an update.
The last group of an epoch is smaller, and its loss is divided by its true size."""

import argparse
import inspect
import math
import textwrap
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import rmetric


class CharGPT(nn.Module):
    def __init__(self, vocab, width=32, layers=1, ctx=32):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.pos = nn.Parameter(0.02 * torch.randn(ctx, width))
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=0.05)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(ctx))

    def forward(self, idx):
        x = self.tok(idx) + self.pos
        return self.head(self.norm(self.blocks(x, mask=self.mask, is_causal=True)))


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    text = "".join(inspect.getsource(module) for module in (argparse, inspect, textwrap))
    chars = sorted(set(text))
    table = {c: i for i, c in enumerate(chars)}
    ids = torch.tensor([table[c] for c in text])
    ctx, micro, group = 32, 4, 3
    windows = ids[: len(ids) // (ctx + 1) * (ctx + 1)].view(-1, ctx + 1)
    windows = windows[torch.randperm(len(windows))]
    # 1398 windows are 350 micro-batches, the last of two: 116 groups of three and one of two.
    val, trainset = windows[:64], windows[64:1462]

    model = CharGPT(len(chars))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.98)
    )
    warm = max(1, steps // 20)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warm, 0.55 + 0.45 * math.cos(math.pi * s / steps))
    )

    def loss_of(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
            return functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    done = 0
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        while done < steps:
            micros = list(trainset[torch.randperm(len(trainset))].split(micro))
            for start in range(0, len(micros), group):
                part = micros[start : start + group]
                total = 0.0
                for mb in part:
                    piece = loss_of(mb) / len(part)
                    piece.backward()
                    total += piece.item()
                monitor.step(total)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad(set_to_none=True)
                done += 1
                if done == steps:
                    break
            with torch.no_grad():
                v = loss_of(val).item()
            monitor.validation(v)
