"""Short real trainings that are healthy, or end in a known state: a network on handwritten digits, in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from rmetric.measurements import Observation
from rmetric.records import Observations
from studies.zoo.data import digits

STEPS, LOG_EVERY, EVAL_EVERY, BATCH = 600, 5, 20, 64
CLASSES, HELD_OUT = 10, 400


@dataclass
class Training:
    """One training while it runs; hooks of :data:`TRAININGS` change what they like."""

    seed: int
    network: nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    loss_factor: float = 1.0
    """Factor of the loss that is differentiated; the loss that is logged is without it."""
    logs_nan_as_zero: bool = False
    """True for an old Trainer, which logs a loss that is not finite as 0."""

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        torch.manual_seed(self.seed)
        images = digits()
        x, y = images.inputs.flatten(1), images.labels
        order = torch.randperm(len(x), generator=self.generator)
        x, y = x[order], y[order]
        self.held_out, self.examples = (x[:HELD_OUT], y[:HELD_OUT]), (x[HELD_OUT:], y[HELD_OUT:])
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)

    def batch(self) -> tuple[Tensor, Tensor]:
        x, y = self.examples
        rows = torch.randint(len(x), (min(BATCH, len(x)),), generator=self.generator)
        return x[rows], y[rows]

    def random_labels(self, share: float = 1.0) -> None:
        """Give a share of the examples labels at random, for good."""
        x, y = self.examples
        drawn = torch.randint(CLASSES, y.shape, generator=self.generator)
        self.examples = (x, torch.where(torch.rand(len(y), generator=self.generator) < share, drawn, y))


Hook = Callable[[Training, int], None]
"""Called before each step, from 1 on."""


def healthy(training: Training, step: int) -> None:
    """Leave it as it is."""


def healthy_sgd(training: Training, step: int) -> None:
    if step == 1:
        training.optimizer = torch.optim.SGD(training.network.parameters(), lr=0.05, momentum=0.9)


def healthy_dropout(training: Training, step: int) -> None:
    if step == 1:
        layers = list(training.network.children())
        training.network = nn.Sequential(*layers[:2], nn.Dropout(0.5), layers[2])


def no_rate(training: Training, step: int) -> None:
    training.optimizer.param_groups[0]["lr"] = 0.0


def labels_drawn_anew(training: Training, step: int) -> None:
    training.random_labels()


def few_examples(training: Training, step: int) -> None:
    """Train on 64 examples, a fifth of them with labels at random."""
    if step == 1:
        x, y = training.examples
        training.examples = (x[:64], y[:64])
        training.random_labels(0.2)


def scale_doubles(training: Training, step: int) -> None:
    """Double the factor of the loss every 40 steps, and never take it out of the gradients."""
    training.loss_factor = 2.0 ** (step // 40)


def nan_as_zero(training: Training, step: int) -> None:
    """Lose the weights to NaN halfway, under a Trainer that logs it as 0."""
    training.logs_nan_as_zero = True
    if step == STEPS // 2:
        with torch.no_grad():
            next(training.network.parameters()).fill_(math.nan)


def dead_units(training: Training, step: int) -> None:
    """Push all hidden units to where their gradient is exactly 0, and train them alone."""
    if step == STEPS // 2:
        first, _, last = training.network.children()
        last.requires_grad_(False)
        with torch.no_grad():
            first.bias.fill_(-1e4)  # type: ignore[operator, union-attr]


def rate_times_1000(training: Training, step: int) -> None:
    """Raise the learning rate a thousandfold at two thirds, for good."""
    if step == 2 * STEPS // 3:
        training.optimizer.param_groups[0]["lr"] *= 1000.0


def labels_corrupted(training: Training, step: int) -> None:
    """Give half of the examples labels at random at two thirds, for good."""
    if step == 2 * STEPS // 3:
        training.random_labels(0.5)


def validation_halved(training: Training, step: int) -> None:
    """Halve the inputs of the validation at two thirds, for good, as another normalisation does."""
    if step == 2 * STEPS // 3:
        x, y = training.held_out
        training.held_out = (0.5 * x, y)


TRAININGS: dict[str, tuple[Hook, str]] = {
    "healthy, Adam": (healthy, ""),
    "healthy, SGD": (healthy_sgd, ""),
    "healthy, dropout": (healthy_dropout, ""),
    "learning rate of 0": (no_rate, "NEVER_LEARNS"),
    "labels drawn anew in each step": (labels_drawn_anew, "NEVER_LEARNS"),
    "weights lost to NaN, logged as 0": (nan_as_zero, "DEAD"),
    "hidden units dead": (dead_units, "DEAD"),
    "64 examples, a fifth mislabelled": (few_examples, "OVERFITS"),
    "loss scale doubles for ever": (scale_doubles, "GRADIENT_GROWS"),
    "learning rate × 1,000 at two thirds": (rate_times_1000, "WORSE_LEVEL"),
    "half of the labels corrupted at two thirds": (labels_corrupted, "WORSE_LEVEL"),
    "validation inputs halved at two thirds": (validation_halved, "WORSE_VALIDATION"),
}
"""Title → what is done, and the state in which it ends (none: it is healthy)."""


def train(hook: Hook, seed: int, steps: int = STEPS) -> Observations:
    """Train, and return the records: mean loss and largest gradient norm of each five steps, validation losses."""
    training = Training(seed)
    records, losses, norms = [], [], []
    for step in range(1, steps + 1):
        hook(training, step)
        loss, norm = _step(training)
        losses.append(0.0 if training.logs_nan_as_zero and not math.isfinite(loss) else loss)
        norms.append(norm)
        if step % LOG_EVERY == 0:
            evaluated = step % EVAL_EVERY == 0
            validation = _evaluate(training) if evaluated else None
            records.append(
                Observation(
                    step,
                    training_loss=sum(losses) / len(losses),
                    validation_loss=validation,
                    grad_norm=max(norms) if all(map(math.isfinite, norms)) else math.inf,
                    uniform_gap=sum(losses) / len(losses) - math.log(CLASSES),
                    evaluated=evaluated,
                )
            )
            losses, norms = [], []
    return Observations.of(records)


def _step(training: Training) -> tuple[float, float]:
    """Loss and gradient norm of the next step."""
    x, y = training.batch()
    training.network.train()
    loss = nn.functional.cross_entropy(training.network(x), y)
    training.optimizer.zero_grad()
    (training.loss_factor * loss).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in training.network.parameters() if p.grad is not None])
    training.optimizer.step()
    return float(loss.detach()), float(norm.detach())


@torch.no_grad()
def _evaluate(training: Training) -> float:
    x, y = training.held_out
    training.network.eval()
    return float(nn.functional.cross_entropy(training.network(x), y))
