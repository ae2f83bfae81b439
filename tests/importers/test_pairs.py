"""Pairs of a line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rmetric.importers.pairs import pairs

LINES: dict[str, dict[str, Any]] = {
    "Epoch: [0][50]\tTime 0.123 (0.2)\tLoss 8.0068 (8.0)": {"Epoch": 0, "batch": 50, "Time": 0.123, "Loss": 8.0068},
    "loss: nan  grad_norm: inf": {"loss": math.nan, "grad_norm": math.inf},
    "number of nan iterations:   0 |": {"number of nan iterations": 0},
    "2024-01-01 10:00:00,123 loss=-0.5": {"loss": -0.5},
    "[03/15 10:00:00 d2.utils.events]: iter: 19": {"iter": 19},
    "tokens: 1,234,567 loss 2": {"tokens": 1234567, "loss": 2},
    "log(f'{val_loss:.4f}')": {},
    "eta: 4:59:11  loss: 2.5": {"loss": 2.5},
    "Step: 1, {'validation/loss': Array(2.5, dtype=float32)}": {"Step": 1, "validation/loss": 2.5},
    "\x1b[31mstep: 10  \x1b[32mloss:  7.1\x1b[0m": {"step": 10, "loss": 7.1},
    "Evaluation at step 5 | loss 2.5": {"step": 5, "validation loss": 2.5},
    "checksum 12ab34 of a1b2": {},
    "2026-01-01 10:00:00,123 INFO step 50 loss 3.8": {"step": 50, "loss": 3.8},
    "2026-01-01 10:00:00 step 50 loss 3.8": {"step": 50, "loss": 3.8},
    "1:02:03 PM [step 50] loss 3.8": {"step": 50, "loss": 3.8},
    "2026-01-01T10:00:00.123456789Z stdout F step: 50 | loss: 3.8": {"step": 50, "loss": 3.8},
    "step 50 eta 1:02:03 loss 3.8 elapsed 00:10 lr 0.1": {"step": 50, "loss": 3.8, "lr": 0.1},
    "step 50 loss nan lr 0.1": {"step": 50, "loss": math.nan, "lr": 0.1},
    "step 50 train loss nan val loss nan": {"step": 50, "train loss": math.nan, "val loss": math.nan},
    "step 50 loss nan 12.5 tok/s lr 0.1": {"step": 50, "loss": math.nan, "lr": 0.1},
    "step: 50, CTCLoss: nanxxx, loss: -infxx, lr: 0.1": {"step": 50, "CTCLoss": math.nan, "loss": -math.inf, "lr": 0.1},
    "ScoreIterationListener - Score at iteration 50 is 1.62": {"iteration": 50, "loss": 1.62},
    "[9]\tcv_agg's l2: 0.25 + 0.01": {"#": 9, "valid's l2": 0.25},
    "Score at iteration 50 is 1.62": {"iteration": 50, "score": 1.62},
    "step 5 -ELBO: 35.1": {"step": 5, "negative ELBO": 35.1},
    "step 5 - ELBO: -35.1": {"step": 5, "ELBO": -35.1},
    "step 50 grad_norm inf lr: 0.1": {"step": 50, "grad_norm": math.inf, "lr": 0.1},
    "step 50 loss nan count 3": {"step": 50, "loss nan count": 3},
    "[1/90] batch 20/60 loss 2.5": {"batch": 20, "batch of": 60, "loss": 2.5},
    "1/90 | batch: 0, loss 2.5": {"batch": 0, "loss": 2.5},
    "loss 3.8 at step 50": {"loss": 3.8, "step": 50},
    "INFO:root:step 50 loss 3.9": {"step": 50, "loss": 3.9},
    "step 5 loss -1.#IND, gnorm: 1.#INF00 (1.#QNAN)": {"step": 5, "loss": math.nan, "gnorm": math.nan},
    "step 5 loss 1.#R": {"step": 5, "loss": math.nan},
    "step 34.1k/1.5M loss 5.4 (12.3k tok/s)": {"step": 34_100, "step of": 1_500_000, "loss": 5.4},
    "iter 2K: loss 5.4 kept 7kB": {"iter": 2_000, "loss": 5.4, "kept": 7},
    "iter 5: loss 1,000.00, ppl 3": {"iter": 5, "loss": 1000, "ppl": 3},
    "step 1,000/10,000 | loss 10,00377": {"step": 1_000, "step of": 10_000, "loss": "10,00377"},
    "step 7 grad_norm=0,88 lr 0,001": {"step": 7, "grad_norm": "0,88", "lr": "0,001"},
    "betas (0.9,0.95) gpus 0,1,2 loss 1.234,5": {"betas": 0.9, "gpus": "0,1,2", "loss": "1.234,5"},
    "step 2: train loss nan (80.6 ms, 50794 tok/s)": {"step": 2, "train loss": math.nan},
    "iter 3/9 - loss nan - lr: 0.1": {"iter": 3, "iter of": 9, "loss": math.nan, "lr": 0.1},
    "Up. 180 : Cost nan * 288,044 @ 12,345 after 7": {"Up.": 180, "Cost": math.nan, "after": 7},
    "step 5 loss -> nan, lr 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "step 5 loss <nan> lr 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "5: nan, nan avg loss, 0.001 rate, 12.1 seconds": {
        "#": 5,
        "avg loss": math.nan,
        "learning rate": 0.001,
        "seconds": 12.1,
    },
    "Loss is Infinity. The rate is 0.1.": {"Loss is": math.inf, "The rate is": 0.1},
    "step 5 mse nan mae nan lr 0.1": {"step": 5, "mse": math.nan, "mae": math.nan, "lr": 0.1},
    "step 5 loss_0 nan norm 2": {"step": 5, "loss_0": math.nan, "norm": 2},
    "step 5 loss nan ▸ 99 tok/s": {"step": 5, "loss": math.nan},
    "step 5 loss nan on (9 images)": {"step": 5, "loss": math.nan, "on": 9},
    "step 5 found nan in 3 layers": {"step": 5, "found nan in": 3},
    "step 5 has nan 3 times": {"step": 5, "has nan": 3},
    "5: NaN, -NaN avg loss, 1E-3 rate": {"#": 5, "avg loss": math.nan, "learning rate": 1e-3},
    "5: 1.5E3, 1,234.5 avg loss, 0.1 rate": {"#": 5, "avg loss": 1234.5, "learning rate": 0.1},
    "s:5 tel:-NAN": {"step": 5, "val loss": math.nan},
    "| loss | NaN |": {"loss": math.nan},
    "step 5 loss None lr 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 loss: N/A, lr: 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 loss ***** lr 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 | loss: - | lr: 0.1": {"step": 5, "loss": None, "lr": 0.1},
    "step 5 - loss - 2.5": {"step": 5, "loss": 2.5},
    "step 5 loss:      nan lr: 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "step 5 loss nan nats | lr 0.1": {"step": 5, "loss": math.nan, "lr": 0.1},
    "step: 5, loss: .nan": {"step": 5, "loss": math.nan},
    "│ train_loss       nan │": {"train_loss": math.nan},
    "Loss after epoch 299: nan": {"epoch": 299, "Loss": math.nan},
    "Cost after iteration 100: 0.69": {"iteration": 100, "Cost": 0.69},
    "losses: [2.5, 2.1], step: 200, reference_loss: 8.5": {"step": 200, "reference_loss": 8.5},
    "step 5 losses: [2.5, 2.1]": {"step": 5, "losses": 2.5},
    "epoch 5 training loss, validation loss: 2.5, 2.6": {"epoch": 5, "training loss": 2.5, "validation loss": 2.6},
    "epoch 5 train_fold_loss: 2.5 val_fold1_loss: 2.6": {"epoch": 5, "train_fold_loss": 2.5, "val_fold1_loss": 2.6},
    "epoch 5 loss: 2.5 val fold loss: 2.6": {"epoch": 5, "loss": 2.5, "val fold loss": 2.6},
    "loss after 5 epochs: 2.5": {"epochs": 5, "loss": 2.5},
    "Mean loss over epoch 5: 2.5": {"epoch": 5, "Mean loss": 2.5},
    "loss (epoch 5): 2.5": {"epoch": 5, "loss": 2.5},
    "loss[5]: 2.5": {"step": 5, "loss": 2.5},
    "step 5 tokens in batch: 4096": {"step": 5, "tokens in batch": 4096},
    "epoch 5 train_acc: 0.5; val_acc: 0.4; loss: 2.5": {"epoch": 5, "train_acc": 0.5, "val_acc": 0.4, "loss": 2.5},
    "epoch 5 val_acc: 0.4; loss: 2.5": {"epoch": 5, "val_acc": 0.4, "validation loss": 2.5},
    "epoch 5 loss: Optional(2.5)": {"epoch": 5, "loss": 2.5},
    "step 5, average loss over 10 steps: 2.5": {"step": 5, "average loss over 10 steps": 2.5},
    "step 5 loss of the last 100 = nan": {"step": 5, "loss of the last 100": math.nan},
    "epoch 5 loss tensor(2.5, grad_fn=<Nll>)": {"epoch": 5, "loss": 2.5},
    "epoch 5: Train/Val Loss: 2.5 / nan": {"epoch": 5, "Train loss": 2.5, "Val loss": math.nan},
    "epoch 5 loss (train/test) = 2.5/2.6": {"epoch": 5, "train loss": 2.5, "test loss": 2.6},
    "[5 | 9.75] loss=2.5": {"#": 5, "loss": 2.5},
    " Minibatch[ 101- 200]: loss = 7.8 * 64": {"Minibatch": 200, "loss": 7.8},
    "Epoch 5 | valid: acc=0.5 | train: loss=2.5": {"Epoch": 5, "acc": 0.5, "loss": 2.5},
    "Train: 1/6 (16%) [   8/100 (8%)]  Loss: 6.9": {
        "Train epoch": 1,
        "Train epoch of": 6,
        "batch": 8,
        "batch of": 100,
        "Loss": 6.9,
    },
    "step 5 [1;31mloss 8.58[0m": {"step": 5, "loss": 8.58},
    "step 5 loss 8.5×10^2": {"step": 5, "loss": 850.0},
    "step 1_000/10_000 loss 8'580.2": {"step": 1000, "step of": 10_000, "loss": 8580.2},
    "step 5 loss 8.58D+01 lr 1.0D-04": {"step": 5, "loss": 85.8, "lr": 1e-4},
    "step 5 loss −8.58 lr 1e−4": {"step": 5, "loss": -8.58, "lr": 1e-4},
    "INFO:tensorflow:Saving dict for global step 9: global_step = 9, loss = 38.1": {
        "step": 9,
        "global_step": 9,
        "validation loss": 38.1,
    },
    "INFO:gluonts.trainer:Epoch[3] Evaluation metric 'epoch_loss'=5.6": {"Epoch": 3, "epoch_loss": 5.6},
    "Norm: 25.7, NNZs: 4, Bias: 3.5, T: 150, Avg. loss: 0.05": {
        "weight norm": 25.7,
        "NNZs": 4,
        "Bias": 3.5,
        "T": 150,
        "Avg. loss": 0.05,
    },
}


@pytest.mark.parametrize("line", LINES)
def test_pairs_of_a_line(line: str) -> None:
    found, due = pairs(line), LINES[line]
    assert found.keys() == due.keys()
    assert all(found[name] == due[name] or (found[name] != found[name] and due[name] != due[name]) for name in due)


def test_what_a_reader_does_with_the_pairs_of_a_line_concerns_no_other_reader() -> None:
    first = pairs("step 3 loss 2.5")
    first["loss"] = 9.0
    del first["step"]
    assert pairs("step 3 loss 2.5") == {"step": 3, "loss": 2.5}
