"""The meaning of a column name that is no known alias, by its words."""

from __future__ import annotations

from functools import lru_cache

from rmetric.importers.base import FieldMap, plain


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VALIDATION_WORDS = _words("val valid validate validating validation eval evaluation dev heldout")
TEST_WORDS = _words("test testing predict prediction")
TRAINING_WORDS = _words("train training tr")
_USUAL = (
    VALIDATION_WORDS
    | TRAINING_WORDS
    | _words("loss losses total mean avg average overall lm ce nll step iter batch epoch value running current global")
    | _words("is the minibatch token log metrics model")
)
_NO_LOSS = _words(
    "scale scaler scaling ppl weight coef coefficient best min max lowest std var time change diff"
) | _words("improvement target threshold exp count every interval ema aux")

USUAL, COMPONENT = 100, 200
"""Ranks, after those of the aliases: a name of usual words alone, and the loss of a part."""

STEP_WORDS = _words("step steps iter iters iteration iterations it update updates")
BATCH_WORDS = _words("batch batches batch_id batch_idx batch_index minibatch")
LONGEST_COUNTER = 32
EPOCH_WORDS = _words("epoch ep epochs")
RUN_NAMES = _words("run run_id run_name run_number seed random_seed trial trial_id trial_name trial_number") | _words(
    "experiment experiment_id experiment_name exp_name job job_id job_name config model variant name id"
)
"""Columns that may name the run of a row; whether one does, its rows tell (:mod:`rmetric.importers.run_column`)."""


@lru_cache(4096)
def _is_epoch(name: str) -> bool:
    words = plain(name).split("_")
    return words[-1] in EPOCH_WORDS and TRAINING_WORDS.issuperset(words[:-1])  # "Train Epoch"


def names_epoch(name: str) -> bool:
    """Whether a name of theirs is the epoch's."""
    return len(name) <= LONGEST_COUNTER and _is_epoch(name)


def names_counter(name: str, fields: FieldMap) -> bool:
    """Whether a name of theirs counts steps, batches or epochs."""
    is_step = any(ours == "step" for ours, _ in fields.targets(name))
    return is_step or names_epoch(name) or plain(name) in STEP_WORDS | BATCH_WORDS


def meanings(name: str, fields: FieldMap) -> tuple[tuple[str, int], ...]:
    """Our names that a name of theirs may stand for, each with a rank, the lowest first choice.

    >>> [meanings(name, FieldMap({})) for name in ("train/box_loss", "Val loss is", "test loss")]
    [(('training_loss', 201),), (('validation_loss', 101),), ()]
    """
    found = fields.targets(name)
    if found or name in fields.taken:
        return found
    words = plain(name).split("_")
    guess = _guess(words)
    if guess is None or guess[0] in fields.explicit:
        return ()
    return (guess,)


def _guess(words: list[str]) -> tuple[str, int] | None:
    present = set(words)
    if present & {"loss", "losses", "nll"} and not present & _NO_LOSS and not present & TEST_WORDS:
        unusual = [word for word in words if word not in _USUAL and not word.isdecimal()]
        rank = (COMPONENT if unusual else USUAL) + len(unusual or words[2:])
        return ("validation_loss" if present & VALIDATION_WORDS else "training_loss"), rank
    if words[0] == "lr" or words[:2] == ["learning", "rate"]:
        return "learning_rate", USUAL + len(words)
    if words == ["norm"] or {"grad", "norm"} <= present or {"gradient", "norm"} <= present:
        return ("grad_norm", USUAL + len(words)) if not present & {"clip", "clipped", "max", "param"} else None
    return None
