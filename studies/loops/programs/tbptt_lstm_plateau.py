"""A character LSTM reads eight continuous streams by truncated backpropagation; the state goes from chunk to chunk.
Gradients are clipped by value, and the learning rate falls where the validation stays."""

import inspect
import tarfile
import zipfile
from typing import Any

import numpy as np
import torch
import torch.nn as nn

import rmetric

CHUNK, STREAMS = 25, 8


class StreamLM(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.emb = nn.Embedding(n, 32)
        self.rnn = nn.LSTM(32, 96)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(96, n)

    def forward(self, x, state):
        h, state = self.rnn(self.emb(x), state)
        return self.out(self.drop(h)), state


def as_streams(codes):
    n = len(codes) // STREAMS
    return torch.from_numpy(codes[: n * STREAMS].reshape(STREAMS, n).T.copy())


def evaluate(model, streams, crit):
    model.eval()
    state, losses = None, []
    with torch.no_grad():
        for a in range(0, streams.shape[0] - 1 - CHUNK, CHUNK):
            logits, state = model(streams[a : a + CHUNK], state)
            losses.append(crit(logits.flatten(0, 1), streams[a + 1 : a + CHUNK + 1].flatten()).item())
    model.train()
    return float(np.mean(losses))


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    raw = inspect.getsource(tarfile) + inspect.getsource(zipfile)
    symbols, codes = np.unique(np.array(list(raw)), return_inverse=True)
    codes = codes.astype(np.int64)
    cut = int(0.93 * len(codes))
    tr, va = as_streams(codes[:cut]), as_streams(codes[cut:])
    model = StreamLM(len(symbols))
    crit = nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.8)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd, factor=0.5, patience=1, threshold=1e-3)
    every = max(1, steps // 15)

    state, at = None, 0
    with rmetric.TrainingMonitor(model, sgd, **watch) as mon:
        for step in range(1, steps + 1):
            if at + CHUNK + 1 > tr.shape[0]:
                at, state = 0, None
            if state is not None:
                state = tuple(s.detach() for s in state)
            x, y = tr[at : at + CHUNK], tr[at + 1 : at + CHUNK + 1]
            at += CHUNK
            logits, state = model(x, state)
            loss = crit(logits.flatten(0, 1), y.flatten())
            sgd.zero_grad()
            loss.backward()
            mon.step(loss)
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            sgd.step()
            if step % every == 0:
                v = evaluate(model, va, crit)
                mon.validation(v)
                plateau.step(v)
