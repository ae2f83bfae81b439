"""Logistic regression of breast cancer in five-fold cross-validation: a new model, optimizer and monitor for each fold.
Full-batch descent from zero weights, one step an epoch, with no noise at all."""

from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional

import rmetric


class Logistic(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(features))
        self.b = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x @ self.w + self.b


def fit(x, y, xv, yv, steps, watch):
    model = Logistic(x.shape[1])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    weight = torch.where(y > 0, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for epoch in range(steps):
            opt.zero_grad()
            nll = functional.binary_cross_entropy_with_logits(model(x), y, weight=weight)
            loss = nll + 2e-3 * model.w.pow(2).sum()
            loss.backward()
            monitor.step(loss)
            opt.step()
            if epoch % 10 == 9:
                with torch.no_grad():
                    monitor.validation(functional.binary_cross_entropy_with_logits(model(xv), yv).item())


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    X, Y = load_breast_cancer(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    for k, (a, b) in enumerate(folds.split(X, Y)):
        scale = StandardScaler().fit(X[a])
        x, xv = (torch.from_numpy(scale.transform(X[i])).float() for i in (a, b))
        y, yv = (torch.from_numpy(Y[i]).float() for i in (a, b))
        log = watch["log"] if k == 0 else Path(watch["log"]).with_suffix(f".fold{k}.jsonl")
        fit(x, y, xv, yv, steps // 5, {**watch, "log": log})
