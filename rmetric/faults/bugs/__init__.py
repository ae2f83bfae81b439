"""Bugs that people really make, in a family a file: all of them are brought upon live runs alone."""

from rmetric.faults.bugs import data, gradients, graph, labels, loss, modes, optimizer, schedule, weights
from rmetric.faults.bugs.base import Bug

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

BUGS_2 = (
    "FEW_BATCHES",
    "INPUTS_ZEROED",
    "TARGET_LEAKS",
    "TOKENIZER_MISMATCH",
    "LABELS_WRAPPED",
    "LOSS_SUMMED",
    "GRADIENTS_SCALED",
    "SCHEDULE_RESTARTED",
    "DROPOUT_TOO_HIGH",
    "AVERAGE_NOT_TAKEN_OUT",
    "EMBEDDING_CORRUPTED",
)
"""The same, thought of by somebody who did not know what the monitor looks at."""

SETS_OF_BUGS = {"bugs": BUGS, "bugs_2": BUGS_2}
"""By the name of the set in which their runs are recorded."""

__all__ = [
    "BUGS",
    "BUGS_2",
    "BUGS_OF_PARTS",
    "SETS_OF_BUGS",
    "Bug",
    "data",
    "gradients",
    "graph",
    "labels",
    "loss",
    "modes",
    "optimizer",
    "schedule",
    "weights",
]
