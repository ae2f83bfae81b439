"""A tiny Llama under Accelerate's accumulate(), on functions of the standard library packed end to end.
The context grows in three stages, and the clip bound is loosened after the warm-up."""

import ast
import inspect
import random
import statistics
from typing import Any

import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM, get_polynomial_decay_schedule_with_warmup

import rmetric


def documents(*modules):
    for m in modules:
        src = inspect.getsource(m)
        for node in ast.walk(ast.parse(src)):
            if isinstance(node, ast.FunctionDef):
                yield (ast.get_source_segment(src, node) or "").encode("ascii", "replace")


def pack(docs, length, rng):
    """Endless packed rows: shuffled documents joined by byte 0 and cut into rows of length + 1."""
    buffer = []
    while True:
        order = list(docs)
        rng.shuffle(order)
        for d in order:
            buffer.extend(d + b"\0")
            while len(buffer) > length:
                yield torch.tensor(buffer[: length + 1])
                del buffer[:length]


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = random.Random(seed)
    docs = list(documents(random, statistics, ast))
    rng.shuffle(docs)
    held, docs = docs[:25], docs[25:]
    acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
    cfg = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    model = LlamaForCausalLM(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.05)
    warm = steps // 15
    sched = get_polynomial_decay_schedule_with_warmup(opt, warm, steps, lr_end=1e-4, power=1.5)
    model, opt = acc.prepare(model, opt)
    rows = pack(held, 40, random.Random(0))
    val = torch.stack([next(rows) for _ in range(60)])

    update, micro_losses = 0, []
    stages = [(0.0, 16, 8), (0.25, 28, 5), (0.6, 40, 4)]  # from this share on: context, rows per micro-batch
    with rmetric.TrainingMonitor(acc.unwrap_model(model), opt, **watch) as monitor:
        while update < steps:
            stage = max(s for s in stages if int(s[0] * steps) <= update)
            until = min([int(s[0] * steps) for s in stages if s > stage] + [steps])
            packed = pack(docs, stage[1], rng)
            while update < until:
                batch = torch.stack([next(packed) for _ in range(stage[2])])
                with acc.accumulate(model):
                    logits = model(input_ids=batch[:, :-1]).logits
                    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                    acc.backward(loss)
                    micro_losses.append(loss.item())
                    if acc.sync_gradients:
                        mean = sum(micro_losses) / len(micro_losses)
                        monitor.step(mean)
                        acc.clip_grad_norm_(model.parameters(), 0.5 if update < warm else 2.0)
                    opt.step()
                    opt.zero_grad()
                if acc.sync_gradients:
                    sched.step()
                    micro_losses.clear()
                    if update % max(1, steps // 10) == 0 or update == steps - 1:
                        with torch.no_grad():
                            z = model(input_ids=val[:, :-1]).logits
                            v = torch.nn.functional.cross_entropy(z.flatten(0, 1), val[:, 1:].flatten()).item()
                        monitor.validation(v)
                    update += 1
