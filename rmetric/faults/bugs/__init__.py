"""Bugs that people really make, in a family a file: all of them are brought upon live runs alone."""

from rmetric.faults.bugs.base import Bug
from rmetric.faults.bugs.gradients import (
    AccumulationNotDivided,
    GradientClippedTooLow,
    GradientSign,
    MissingZeroGrad,
    NoClipping,
    StaleGradients,
)
from rmetric.faults.bugs.optimizer import (
    MomentumWrong,
    OptimizerStateLost,
    ParametersNotInOptimizer,
    WeightDecayTooLarge,
)

BUGS = (
    "MISSING_ZERO_GRAD",
    "OPTIMIZER_STATE_LOST",
    "PARAMETERS_NOT_IN_OPTIMIZER",
    "WEIGHT_DECAY_TOO_LARGE",
    "MOMENTUM_WRONG",
    "GRADIENT_SIGN",
    "STALE_GRADIENTS",
    "ACCUMULATION_NOT_DIVIDED",
    "GRADIENT_CLIPPED_TOO_LOW",
    "NO_CLIPPING",
    "LARGE_LR:factor=10",
    "LARGE_LR:factor=100",
)
"""Bugs of the benchmark as :func:`rmetric.faults.parse_fault` reads them, in the order of tables."""

__all__ = [
    "BUGS",
    "AccumulationNotDivided",
    "Bug",
    "GradientClippedTooLow",
    "GradientSign",
    "MissingZeroGrad",
    "MomentumWrong",
    "NoClipping",
    "OptimizerStateLost",
    "ParametersNotInOptimizer",
    "StaleGradients",
    "WeightDecayTooLarge",
]
