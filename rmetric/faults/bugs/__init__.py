"""Bugs that people really make, in a family a file: all of them are brought upon live runs alone."""

from rmetric.faults.bugs.base import Bug
from rmetric.faults.bugs.data import NanBatch, SameBatchForEver, ShufflingOff, WorkersShareSeed, WrongNormalisation
from rmetric.faults.bugs.gradients import (
    AccumulationNotDivided,
    GradientClippedTooLow,
    GradientSign,
    MissingZeroGrad,
    NoClipping,
    StaleGradients,
)
from rmetric.faults.bugs.graph import DetachedPart, HalfFrozen
from rmetric.faults.bugs.labels import LabelMapShift, LabelsMisaligned
from rmetric.faults.bugs.loss import LossOverPadding
from rmetric.faults.bugs.modes import DropoutState, EvalModeInTraining, NormStatisticsFrozen
from rmetric.faults.bugs.optimizer import (
    MomentumWrong,
    OptimizerStateLost,
    ParametersNotInOptimizer,
    WeightDecayTooLarge,
)
from rmetric.faults.bugs.schedule import LearningRateZero, ScheduleSteppedTwice
from rmetric.faults.bugs.weights import Bf16Weights, LayerReinitialised, StaleWeights, WeightsRot, WorkersDrift

BUGS_OF_PARTS = (
    "DROPOUT_STATE",
    "DROPOUT_STATE:dropout=on",
    "EVAL_MODE_IN_TRAINING",
    "NORM_STATISTICS_FROZEN",
    "NORM_STATISTICS_FROZEN:statistics=stale",
)
"""Those that only models with dropout or batch norm can have."""

BUGS = (
    "MISSING_ZERO_GRAD",
    "GRADIENT_SIGN",
    "STALE_GRADIENTS",
    "ACCUMULATION_NOT_DIVIDED",
    "GRADIENT_CLIPPED_TOO_LOW",
    "NO_CLIPPING",
    "OPTIMIZER_STATE_LOST",
    "PARAMETERS_NOT_IN_OPTIMIZER",
    "WEIGHT_DECAY_TOO_LARGE",
    "MOMENTUM_WRONG",
    "LARGE_LR:factor=10",
    "LARGE_LR:factor=100",
    "LEARNING_RATE_ZERO",
    "SCHEDULE_STEPPED_TWICE",
    "LAYER_REINITIALISED",
    "WEIGHTS_ROT",
    "BF16_WEIGHTS",
    "STALE_WEIGHTS",
    "HALF_FROZEN",
    "DETACHED_PART",
    "NAN_BATCH",
    "SAME_BATCH_FOR_EVER",
    "WORKERS_SHARE_SEED",
    "WRONG_NORMALISATION",
    "SHUFFLING_OFF",
    "LABEL_MAP_SHIFT",
    "LABELS_MISALIGNED",
    "LOSS_OVER_PADDING",
    *BUGS_OF_PARTS,
)
"""Bugs of the benchmark as :func:`rmetric.faults.parse_fault` reads them, at medium severity, in the order of tables.

A kind of training gets those that it can have: to the others :meth:`Fault.inject` says no. ``WORKERS_DRIFT`` needs
several processes and is left out.
"""

__all__ = [
    "BUGS",
    "BUGS_OF_PARTS",
    "AccumulationNotDivided",
    "Bf16Weights",
    "Bug",
    "DetachedPart",
    "DropoutState",
    "EvalModeInTraining",
    "GradientClippedTooLow",
    "GradientSign",
    "HalfFrozen",
    "LabelMapShift",
    "LabelsMisaligned",
    "LayerReinitialised",
    "LearningRateZero",
    "LossOverPadding",
    "MissingZeroGrad",
    "MomentumWrong",
    "NanBatch",
    "NoClipping",
    "NormStatisticsFrozen",
    "OptimizerStateLost",
    "ParametersNotInOptimizer",
    "SameBatchForEver",
    "ScheduleSteppedTwice",
    "ShufflingOff",
    "StaleGradients",
    "StaleWeights",
    "WeightDecayTooLarge",
    "WeightsRot",
    "WorkersDrift",
    "WorkersShareSeed",
    "WrongNormalisation",
]
