"""The meaning of a column name that is no known alias, by its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache

from rmetric.importers.base import CACHED, FieldMap, plain, words_of
from rmetric.importers.step_times import is_step_rate, seconds_in
from rmetric.measurements import LOSSES


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VALIDATION_WORDS = _words(
    "val vali vld valid validate validated validating validation eval evaluated evaluation dev heldout cv"
)
TEST_WORDS = _words("test tested testing predict prediction")
TRAINING_WORDS = _words("train trained training tr trn")
DATA_WORDS = VALIDATION_WORDS | TEST_WORDS | TRAINING_WORDS
SHORT_WORDS = {"va": "validation", "te": "test"}
"""Words for data that may as well be a part of a model, as a text encoder, unless the training has one as well."""
_SPLITS = {
    **dict.fromkeys(("learn", "train", "training", "trn", "tr"), "training_loss"),
    **dict.fromkeys(("val", "vali", "vld", "valid", "validation", "eval", "dev", "test"), "validation_loss"),
    **dict.fromkeys(SHORT_WORDS, "validation_loss"),
}
"""Names of data that a number may have instead of one of its own → our loss."""
WHOLE_WORDS = _words("total all overall full whole joint combined sum vae elbo")
"""Words of a loss that others are parts of."""
ADVERSARIAL_WORDS = _words("g d gen dis disc generator discriminator adv adversarial gan")
"""Words of losses of networks that play against each other: one is the other's gain, and their sum tells nothing."""
_OF_POLICIES, _OF_CRITICS = _words("policy surrogate pg pi actor"), _words("value vf critic")
_USUAL = (
    VALIDATION_WORDS
    | TRAINING_WORDS
    | _words("loss losses total mean avg average overall lm ce nll step iter batch epoch value running current global")
    | _words("is with the minibatch mini token word words log metrics model bce")
)
_IMPROVED = _words("improve improved improvement decrease decreased")
"""Words behind ``loss`` of one that is the lowest by now: a sequence of these only falls, without the evaluations that
were worse."""
_NO_LOSS = _words(
    "best lowest scale scaler scaling ppl weight coef coefficient min max std var num time change diff delta"
    " target threshold exp count every interval ema aux multiplier factor"
)

_QUALITIES = _words("psnr ssim")
"""Of images: an evaluation's are better the higher they are, whatever it calls them; what is trained on is a loss."""
_LIKE_A_LOSS = _words("logloss mlogloss xent crossentropy smoothl1 mse rmse bpb bpc bpd nelbo")
_TOGETHER_LIKE_A_LOSS = tuple(
    map(
        _words,
        (
            *("cross entropy", "smooth l1", "mean squared error", "neg elbo", "negative elbo"),
            *("neg log lik", "neg log likelihood", "negative log likelihood", "neg loglik", "neg mll"),
        ),
    )
)
_CROSS_ENTROPIES = _words("ce bce")
_KINDS = _CROSS_ENTROPIES | {"nll"}
"""Words of a loss that is named after its formula."""
_DISTANCES = _words("l1 l2")
"""Of the training or validation data: ``train's l2``."""
_OF_TIME = _words("batch step iter")
"""What a cost that is the time of it is of: ``batch_cost``."""
_NO_SHORT_LOSS = _words("r rate lr inf norm max min step")
"""What an L beside it makes no loss, as in ``l_pix``, the loss of pixels."""
_NUMBERS = re.compile(r"(?<![A-Za-z])\d+")
_COPY = re.compile(r"loss[:/](?:sum|mean)$", re.IGNORECASE)
USUAL, COMPONENT, LIKE_A_LOSS, BOUND, PERPLEXITY, OF_DATA, OF_TESTS = 100, 200, 300, 330, 350, 390, 400
"""Ranks, after those of the aliases: a name of usual words alone, the loss of a part, what stands for a loss in a log
that has none by name, a bound that is the negative of one, the exponential of one, a number that is named after its
data alone (``learn: 0.5  test: 0.6``), and a test loss, which is a validation loss where there is no other."""
AGAIN = "again"
"""Last word of the name of a loss that is told once more beside another one, and counts where there is no other."""
_PERPLEXITIES = _words("ppl perplexity")

_REWARD_WORDS = _words("reward rewards rew rewmean return returns ret")
_OF_REWARDS = _words(
    "ep episode episodes episodic mean avg average undiscounted env runners rollout eval evaluation train charts critic"
    " score objective rlhf total cumulative sum running rolling moving environment"
)
"""Words beside one of these that leave it the reward of an episode: ``AverageEpRet``, ``rollout/ep_rew_mean``."""

_NORMS_IN_ONE = _words("gradnorm gnorm")
_BEFORE_CLIPPING = _words("pre preclip before unclipped raw")
_AFTER_CLIPPING = _words("after post postclip clipped")
_NO_WHOLE_NORM = _words("clip clipped max param")
"""Words of a norm at which gradients are clipped, or of something else, where none tells that it is before clipping."""
_OF_NORMS = (
    _BEFORE_CLIPPING
    | TRAINING_WORDS
    | _words("total global all grad gradient norm clip clipping opt optim optimizer model metrics l2")
)
"""Words beside which the norm is that of all gradients, and not of one layer."""
_OF_SETTINGS = _words("config cfg args hparams hyperparameters params settings options init initial")
"""Words before a learning rate or a norm that is a setting."""
_OTHER_NORM, _CLIPPED_NORM = 30, 60
"""What the rank of a norm of a part, and of one after clipping, has more."""
MAGNITUDE = re.compile(r"(?<!\S)(\|{1,2}|‖)(?:g|grad|∇)\1$")
"""A gradient norm, in the end of a text."""

STEP_WORDS = _words("step steps iter iters itr iteration iterations it update updates up timestep timesteps nupdates")
_OF_STEPS = _words(
    "completed finished done train training learning learner global current cur "
    "optimizer opt gradient grad progress n i total num env"
)
"""Words beside one of these that leave it a counter of the steps of the training: ``completed step``, ``step_i``."""
BATCH_WORDS = _words("batch batches batch_id batch_idx batch_index minibatch minibatches")
_OF_RATES = _words("x actor train training trainer optim optimizer opt current cur new is param group base metrics")
LONGEST_COUNTER = 32
_SOURCE_FILE = re.compile(r"\.(?:py|pyx|c|h|cc|cpp|cxx|hpp|cu|cuh|rs|go|java|kt|scala|jl)$", re.IGNORECASE)
"""The end of what stands before the number of a line of code; loggers of JavaScript do not write that."""
LINE_NUMBER = "#"
"""Name of a whole number that stands alone before the rest of a line."""
TOTAL = " of"
"""Ending of the name under which a row holds the number up to which a counter of its counts (``batch of``)."""
_OF_EPOCHS = TRAINING_WORDS | _words("in starting fine tune finetune tuning pretrain pretraining warmup")
"""Words beside one of epochs that leave it a counter of the training: ``Train Epoch``, ``In epoch``."""
EPOCH_WORDS = _words("epoch ep epochs round rounds episode episodes generation")
COUNTER_WORDS = STEP_WORDS | EPOCH_WORDS | BATCH_WORDS
FOLD_NAMES = _words("fold fold_id fold_idx k_fold kfold")
RUN_NAMES = (
    FOLD_NAMES
    | _words("run run_id run_name run_number seed random_seed trial trial_id trial_name trial_number")
    | _words("experiment experiment_id experiment_name exp_name job job_id job_name config model variant name id")
)
"""Columns that may name the run of a row; whether one does, its rows tell (:mod:`rmetric.importers.run_column`)."""


def _has(name: str, words: Set[str]) -> bool:
    """Whether one of the words stands in a name."""
    return not words.isdisjoint(words_of(name))


@lru_cache(CACHED)
def _is_epoch(name: str) -> bool:
    words = words_of(name)
    return words[-1] in EPOCH_WORDS and _OF_EPOCHS.issuperset(words[:-1])


def names_epoch(name: str) -> bool:
    """Whether a name of theirs is the epoch's.

    >>> [names_epoch(name) for name in ("Train Epoch", "In epoch", "Starting epoch", "epoch time")]
    [True, True, True, False]
    """
    return len(name) <= LONGEST_COUNTER and _is_epoch(name)


@lru_cache(CACHED)
def _is_step(name: str) -> bool:
    words = words_of(name.partition("/")[0] if "/max" in name else name)  # "global_step/max_steps"
    return len(STEP_WORDS.intersection(words)) == 1 and (STEP_WORDS | _OF_STEPS).issuperset(words)


def names_step(name: str, fields: FieldMap) -> bool:
    """Whether a name of theirs is that of a counter of steps, as an alias or by its words.

    >>> [names_step(name, FieldMap({})) for name in ("step_i", "Learning iteration", "global_step/max_steps")]
    [True, True, True]
    """
    return any(ours == "step" for ours, _ in fields.targets(name)) or (len(name) <= LONGEST_COUNTER and _is_step(name))


def may_measure(name: str, fields: FieldMap) -> bool:
    """Whether a name of theirs is no counter, none up to which one counts, and no source file with its line.

    >>> [may_measure(name, FieldMap({})) for name in ("objective", "steps_done", "batch of", "#", "train.py")]
    [True, False, False, False, False]
    """
    is_place = name == LINE_NUMBER or name.endswith(TOTAL) or _SOURCE_FILE.search(name)
    return not is_place and not names_counter(name, fields)


def names_counter(name: str, fields: FieldMap) -> bool:
    """Whether a name of theirs counts steps, batches or epochs."""
    return names_step(name, fields) or names_epoch(name) or plain(name) in BATCH_WORDS


@lru_cache(CACHED)
def measures_loss(name: str) -> bool:
    """Whether a name is that of a loss, or of what stands for one."""
    words = {*words_of(name)}
    return any("loss" in word for word in words) or _is_like_a_loss(words) or _is_bound(words)


def _is_like_a_loss(words: Set[str]) -> bool:
    is_cost = "cost" in words and words - {"cost"} <= _USUAL - _OF_TIME  # of the training, and not "cost_usd"
    is_short = "l" in words and len(words) == 2 and not words & _NO_SHORT_LOSS and all(map(str.isalpha, words))
    is_cross_entropy = bool(words & _CROSS_ENTROPIES) and words <= _USUAL
    data = words & (VALIDATION_WORDS | TRAINING_WORDS)
    is_distance = bool(words & _DISTANCES and data) and all(len(word) == 1 for word in words - _DISTANCES - data)
    is_named = not words.isdisjoint(_LIKE_A_LOSS) or any(those <= words for those in _TOGETHER_LIKE_A_LOSS)
    return is_cost or is_short or is_cross_entropy or is_distance or is_named


def _is_bound(words: Set[str]) -> bool:
    """Whether it is an evidence lower bound, which is to rise; one with its sign turned is like a loss."""
    return "elbo" in words and "loss" not in words and not _is_like_a_loss(words)


def _is_rate(words: Sequence[str]) -> bool:
    """Whether it is the learning rate of an optimizer: ``optim/LR (group 0)``, ``optim0_lr0``."""
    bare = {word.rstrip("0123456789") for word in words} - {""}
    return any(rate <= bare and bare - rate <= _OF_RATES for rate in ({"lr"}, {"learning", "rate"}))


def ends_in_loss(name: str) -> bool:
    """Whether the last part of a name with slashes or dots is a loss without the name of a part.

    >>> [ends_in_loss(name) for name in ("learner.stats.total_loss", "learner.stats.policy_loss", "loss")]
    [True, False, False]
    """
    start, _, last = name.replace(".", "/").rpartition("/")
    words = {*words_of(last)}
    return bool(start) and "loss" in words and words <= _USUAL


def is_perplexity(name: str) -> bool:
    """Whether what a name stands for is the exponential of a loss."""
    return not measures_loss(name) and _has(name, _PERPLEXITIES)


def is_bound(name: str) -> bool:
    """Whether what a name stands for is a bound that is to rise, the negative of a loss.

    >>> [is_bound(name) for name in ("Average ELBO", "neg_elbo", "elbo_loss")]
    [True, False, False]
    """
    return _is_bound({*words_of(name)})


def names_training(name: str) -> bool:
    """Whether a name says that its number is of the training data."""
    return _has(name, TRAINING_WORDS)


def apart_from_numbers(name: str) -> str:
    """A name without the numbers that tell it from others like it.

    >>> apart_from_numbers("valid_0's loss") == apart_from_numbers("valid_1's loss"), apart_from_numbers("loss[12]")
    (True, 'loss[#]')
    """
    return _NUMBERS.sub("#", name)


def is_copy(name: str, others: Iterable[str]) -> bool:
    """Whether a loss is named as the very same as another one, summed or averaged over something, or scaled.

    >>> [is_copy(name, ["kl_loss"]) for name in ("loss:sum", "loss_scaled", "scaled_kl_loss", "scaled_bbox_loss")]
    [True, True, True, False]
    """
    words = words_of(name)
    rest = tuple(word for word in words if word != "scaled")
    is_scaled = rest != words and (DATA_WORDS | WHOLE_WORDS | {"loss"} >= {*rest} or rest in map(words_of, others))
    return is_scaled or _COPY.search(name) is not None


def is_bonus(name: str) -> bool:
    """Whether a loss is named after the entropy of a policy, which is wanted, and no part of what is to fall.

    >>> [is_bonus(name) for name in ("Mean entropy loss", "cross_entropy_loss")]
    [True, False]
    """
    words = words_of(name)
    return "entropy" in words and "cross" not in words


def is_of_a_policy(name: str) -> bool:
    """Whether a loss is named after a policy."""
    return _has(name, _OF_POLICIES)


def is_of_an_agent(name: str) -> bool:
    """Whether a loss is named after a policy or what judges it."""
    return is_of_a_policy(name) or _has(name, _OF_CRITICS)


def is_whole(name: str) -> bool:
    """Whether a loss is named as one that others are parts of.

    >>> [is_whole(name) for name in ("all_loss", "full_loss_metric", "box_loss")]
    [True, True, False]
    """
    return _has(name, WHOLE_WORDS)


def is_of_a_kind(name: str) -> bool:
    """Whether a loss is named after its formula, as the only one of a log may be, or one of several parts.

    >>> [is_of_a_kind(name) for name in ("loss/ce", "nll_loss", "avg_loss")]
    [True, True, False]
    """
    return _has(name, _KINDS)


def formula_of(name: str) -> frozenset[str]:
    """The words of a name that tell how it is computed; none of one that is said to be a loss, which may be a part.

    >>> [sorted(formula_of(name)) for name in ("valid_0's l2", "rmse_e_val", "l_pix", "mse_loss")]
    [['l2'], ['rmse'], [], []]
    """
    words = frozenset(words_of(name))
    return frozenset() if words & {"loss", "nll"} else words & (_LIKE_A_LOSS | _DISTANCES | _CROSS_ENTROPIES)


def is_adversarial(name: str) -> bool:
    """Whether a loss is named after one of two networks that play against each other.

    >>> [is_adversarial(name) for name in ("G_loss", "dloss", "Loss Discriminator", "dfl_loss")]
    [True, True, True, False]
    """
    words = {word.removesuffix("loss") for word in words_of(name)}
    return not ADVERSARIAL_WORDS.isdisjoint(words)


def meanings(name: str, fields: FieldMap) -> tuple[tuple[str, int], ...]:
    """Our names that a name of theirs may stand for, each with a rank, the lowest first choice.

    >>> [meanings(name, FieldMap({})) for name in ("train/box_loss", "Val loss is", "test loss")]
    [(('training_loss', 201),), (('validation_loss', 101),), (('validation_loss', 500),)]
    """
    found = fields.targets(name)
    if found or name in fields.taken or _SOURCE_FILE.search(name):
        return found
    words = _apart(words_of(name))
    by_words = _loss(words) or _learning_rate(words) or _reward(words)
    guess = _step_time(name) or by_words or _gradient_norm(name, words) or _of_last_part(name)
    return () if guess is None or guess[0] in fields.explicit else (guess,)


def _of_last_part(name: str) -> tuple[str, int] | None:
    """A learning rate or a gradient norm by the last part of a name with slashes or dots, which is no setting.

    >>> [_of_last_part(name) for name in ("learner.stats.cur_lr", "learner.stats.gnorm", "config.lr", "a.loss")]
    [('learning_rate', 232), ('grad_norm', 131), None, None]
    """
    start, _, last = name.replace(".", "/").rpartition("/")
    if not start or _has(start, _OF_SETTINGS):
        return None
    words = words_of(last)
    if _is_rate(words):
        return "learning_rate", COMPONENT + _OTHER_NORM + len(words)
    found = _gradient_norm(last, words)
    return None if found is None else (found[0], found[1] + _OTHER_NORM)


def _step_time(name: str) -> tuple[str, int] | None:
    """A step time in its unit; a rate of steps stands for one where there is no such one."""
    if seconds_in(name) is not None:
        return "step_time_s", USUAL
    return ("step_time_s", USUAL + 1) if is_step_rate(name) else None


def _apart(words: Sequence[str]) -> tuple[str, ...]:
    """The words; ``valloss`` and ``closs`` as two."""
    is_glued = {word for word in words if word.endswith("loss") and word != "loss"} - _LIKE_A_LOSS
    return tuple(part for word in words for part in ((word[:-4], "loss") if word in is_glued else (word,)))


def loss_of_data(name: str, fields: FieldMap) -> str | None:
    """Our loss that a number may be which is named after its data alone; ``None`` for any other name.

    >>> [loss_of_data(name, FieldMap({})) for name in ("learn", "test", "train_time")]
    ['training_loss', 'validation_loss', None]
    """
    ours = _SPLITS.get(plain(name))
    return None if name in fields.taken or ours in fields.explicit else ours


def losses_of_data(names: Iterable[str], fields: FieldMap) -> dict[str, str]:
    """Names that stand for a loss by their data alone → our loss.

    Those of two letters do so only beside names of other data: a mere ``tr`` is the radius of a trust region.

    >>> losses_of_data(["tr", "va"], FieldMap({})), losses_of_data(["tr"], FieldMap({}))
    ({'tr': 'training_loss', 'va': 'validation_loss'}, {})
    """
    named = {name: ours for name in names if (ours := loss_of_data(name, fields))}
    are_both = len({*named.values()}) > 1
    return named if are_both else {name: ours for name, ours in named.items() if len(plain(name)) > 2}


def spelled_out(names: Iterable[str]) -> dict[str, str]:
    """Names with ``va`` or ``te`` → the same with the word that it stands for, where a log tells of the training, too.

    It does with a loss of the training, or with anything that it tells of both.

    >>> spelled_out(["tr_acc", "va_acc", "va_loss"]), spelled_out(["train_loss", "te_loss"]), spelled_out(["va_loss"])
    ({'va_acc': 'validation acc', 'va_loss': 'validation loss'}, {'te_loss': 'test loss'}, {})
    """
    words = {name: _apart(words_of(name)) for name in names}
    short = {
        name: those for name, those in words.items() if DATA_WORDS.isdisjoint(those) and SHORT_WORDS.keys() & those
    }
    measured = {_without(SHORT_WORDS.keys(), those) for those in short.values()}
    trains = any(
        measures_loss(name) or _without(TRAINING_WORDS, those) in measured
        for name, those in words.items()
        if not TRAINING_WORDS.isdisjoint(those)
    )
    spelled = {name: " ".join(SHORT_WORDS.get(word, word) for word in those) for name, those in short.items()}
    return spelled if trains else {}


def _without(some: Set[str], words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in some)


def means_loss(name: str, fields: FieldMap) -> bool:
    """Whether a name of theirs may stand for the training or the validation loss."""
    return any(ours in LOSSES for ours, _ in meanings(name, fields))


def _loss(words: tuple[str, ...]) -> tuple[str, int] | None:
    """A loss by its words, or what is like one, or a perplexity; of the data that it names."""
    present = set(words)
    ours = "validation_loss" if present & (VALIDATION_WORDS | TEST_WORDS) else "training_loss"
    of_tests = OF_TESTS if present & TEST_WORDS and not present & VALIDATION_WORDS else 0
    if ours == "validation_loss" and present & _QUALITIES:
        return None
    behind = words[words.index("loss") :] if "loss" in present else ()
    may_be_one = not present & _NO_LOSS and _IMPROVED.isdisjoint(behind)
    if present & {"loss", "losses", "nll"} and may_be_one:
        unusual = [word for word in words if word not in _USUAL and not word.isdecimal() and word not in TEST_WORDS]
        if words[-2:] == ("value", "loss"):
            unusual.append("value")  # that of a critic
        kind = LIKE_A_LOSS if AGAIN in present else COMPONENT if unusual else USUAL
        return ours, of_tests + kind + len(unusual or words[2:])
    if _is_like_a_loss(present) and may_be_one:
        return ours, of_tests + LIKE_A_LOSS + len(words)
    if _is_bound(present) and may_be_one:
        return ours, of_tests + BOUND + len(words)
    if present & _PERPLEXITIES and present - _PERPLEXITIES <= _USUAL | TEST_WORDS:
        return ours, of_tests + PERPLEXITY + len(words)
    return None


def _learning_rate(words: tuple[str, ...]) -> tuple[str, int] | None:
    begin = words[words[0] in TRAINING_WORDS :]
    is_one = begin[:1] == ("lr",) or begin[:2] == ("learning", "rate") or _is_rate(words)
    return ("learning_rate", USUAL + len(words)) if is_one else None


def _reward(words: tuple[str, ...]) -> tuple[str, int] | None:
    others = {word for word in words if word not in _REWARD_WORDS and not word.isdecimal()}  # "mean 100 episode reward"
    is_one = not _REWARD_WORDS.isdisjoint(words) and others <= _OF_REWARDS
    return ("reward", USUAL + len(words)) if is_one else None


def _gradient_norm(name: str, words: tuple[str, ...]) -> tuple[str, int] | None:
    """A gradient norm: that of all gradients before clipping, else another one of theirs.

    >>> [_gradient_norm(name, words_of(name)) for name in ("clip/grad_norm_before", "clip_grad_norm", "|g|")]
    [('grad_norm', 104), None, ('grad_norm', 101)]
    """
    present, rank = set(words), USUAL + len(words)
    if words in (("norm",), ("grad",)) or MAGNITUDE.fullmatch(name):
        return "grad_norm", rank
    is_glued = bool(present & _NORMS_IN_ONE)
    if not (is_glued or {"grad", "norm"} <= present or {"gradient", "norm"} <= present):
        return None
    if present <= _OF_NORMS | _NORMS_IN_ONE and (present & _BEFORE_CLIPPING or not present & _NO_WHOLE_NORM):
        return "grad_norm", rank
    if present & _NO_WHOLE_NORM or is_glued:
        return None
    return "grad_norm", rank + (_CLIPPED_NORM if present & _AFTER_CLIPPING else _OTHER_NORM)
