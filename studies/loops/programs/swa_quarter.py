"""A batch-norm network on noisy tables with class-balanced sampling; SGD with Nesterov momentum.
In the last quarter the rate is constant and weights are averaged (SWA); batch norm is renewed to validate."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_classification
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import rmetric


def make_data(seed):
    X, y = make_classification(
        6000,
        30,
        n_informative=12,
        n_redundant=6,
        n_classes=4,
        weights=[0.6, 0.25, 0.1, 0.05],
        class_sep=1.6,
        flip_y=0.03,
        random_state=seed,
    )
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    return TensorDataset(X[:5000], y[:5000]), (X[5000:], y[5000:])


def forever(loader):
    while True:
        yield from loader


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    trainset, (Xv, yv) = make_data(seed)
    labels = trainset.tensors[1]
    weights = (1.0 / np.bincount(labels.numpy()))[labels.numpy()]
    loader = DataLoader(
        trainset, batch_size=64, drop_last=True, sampler=WeightedRandomSampler(weights.tolist(), len(trainset))
    )

    def block(i, o):
        return nn.Sequential(nn.Linear(i, o, bias=False), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.2))

    model = nn.Sequential(block(30, 96), block(96, 96), nn.Linear(96, 4))
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    start = int(0.75 * steps)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, start, eta_min=0.005)
    swalr = SWALR(optimizer, swa_lr=0.02, anneal_epochs=max(1, steps // 50))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def evaluate(net):
        net.eval()
        with torch.no_grad():
            loss = criterion(net(Xv), yv).item()
        net.train()
        return loss

    stream = forever(loader)
    with rmetric.TrainingMonitor(model, optimizer, **watch) as monitor:
        for i in range(1, steps + 1):
            x, y = next(stream)
            loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            monitor.step(loss)
            optimizer.step()
            if i > start:
                averaged.update_parameters(model)
                swalr.step()
            else:
                cosine.step()
            if i % max(1, steps // 20) == 0:
                if i > start:
                    update_bn(loader, averaged)
                    val = evaluate(averaged)
                else:
                    val = evaluate(model)
                monitor.validation(val)
