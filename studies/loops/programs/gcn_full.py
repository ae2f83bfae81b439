"""Graph convolution on a stochastic block model: the whole graph is the batch of every step, few nodes are labelled.
Dropout on features and on edges is all that is random."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import rmetric


def make_graph(rng, nodes=600, classes=4, dim=40):
    y = rng.integers(0, classes, nodes)
    same = y[:, None] == y[None, :]
    upper = np.triu(rng.random((nodes, nodes)) < np.where(same, 0.03, 0.004), 1)
    i, j = np.nonzero(upper)
    centres = rng.normal(size=(classes, dim)) * 0.35
    feats = centres[y] + rng.normal(size=(nodes, dim))
    edges = np.stack([np.r_[i, j], np.r_[j, i]])
    return torch.from_numpy(feats).float(), torch.from_numpy(edges), torch.from_numpy(y)


def propagation(edges, nodes, drop):
    if drop > 0:
        edges = edges[:, torch.rand(edges.shape[1]) >= drop]
    loops = torch.arange(nodes).repeat(2, 1)
    e = torch.cat([edges, loops], 1)
    deg = torch.bincount(e[0], minlength=nodes).float()
    w = (deg[e[0]] * deg[e[1]]).rsqrt()
    return torch.sparse_coo_tensor(e, w, (nodes, nodes), check_invariants=False)


class GCN(nn.Module):
    def __init__(self, dim, hidden, classes):
        super().__init__()
        self.enter = nn.Linear(dim, hidden, bias=False)
        self.leave = nn.Linear(hidden, classes)

    def forward(self, adj, x):
        x = functional.dropout(x, 0.5, self.training)
        h = torch.sparse.mm(adj, self.enter(x)).relu()
        return torch.sparse.mm(adj, self.leave(functional.dropout(h, 0.5, self.training)))


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, edges, y = make_graph(rng)
    nodes = len(y)
    order = torch.from_numpy(rng.permutation(nodes))
    known, held = order[:100], order[100:250]
    net = GCN(x.shape[1], 32, 4)
    opt = torch.optim.Adam(
        [
            {"params": net.enter.parameters(), "weight_decay": 5e-3},
            {"params": net.leave.parameters(), "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    whole = propagation(edges, nodes, 0.0)
    with rmetric.TrainingMonitor(net, opt, **watch) as monitor:
        for epoch in range(steps):
            net.train()
            opt.zero_grad()
            out = net(propagation(edges, nodes, 0.2), x)
            loss = functional.cross_entropy(out[known], y[known])
            loss.backward()
            monitor.step(loss)
            opt.step()
            if epoch % max(1, steps // 100) == 0 or epoch == steps - 1:
                net.eval()
                with torch.no_grad():
                    out = net(whole, x)
                    val = functional.cross_entropy(out[held], y[held]).item()
                monitor.validation(val)
