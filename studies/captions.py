"""Sentences that several captions share: which runs, which protocol, which interval."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import MAX_UNDEFINED

PAPER_F1, PAPER_LEAD = 0.973, 255
"""What the paper reports: F1 in simulation, and the mean lead in steps."""
PAPER = "Paper protocol: an alert anywhere in a failed run is a true positive, in any other run a false positive."
STRICT = (
    "Strict protocol: only an alert episode that begins between the fault's onset and the failure warns; each one that "
    "begins in healthy training is a false alarm."
)
BOTH = f"{PAPER} {STRICT}"


def runs(ev: Evaluator, chosen_R: NDArray[np.bool_] | None = None) -> str:
    """Number of runs of each kind, of those left out, and whether they are the committed sample."""
    chosen = np.ones(len(ev.timeline), bool) if chosen_R is None else chosen_R
    truths = [truth for truth, kept in zip(ev.timeline.truths, chosen, strict=True) if kept]
    kinds = Counter(truth.kind for truth in truths)
    counted = kinds["failed"] + kinds["recovered"] + kinds["clean"]
    text = (
        f"{counted:,} runs: {kinds['failed']} failed, {kinds['recovered']} recovered, {kinds['clean']} clean; left "
        f"out: {kinds['censored']} censored, {kinds['incomplete']} incomplete."
    )
    no_onset = int((ev.timeline.failed & np.isnan(ev.timeline.onset) & chosen).sum())
    if no_onset:
        text += f" {no_onset} failed without a known onset: left out of strict only."
    return text + (" Committed sample, not the full study." if ev.study.note else "")


def facts(ev: Evaluator) -> dict[str, str]:
    """Parameters that most captions have: runs, those of the score half, interval."""
    return {
        "runs": runs(ev),
        "score_half": f"Score half: {runs(ev, ev.halves.score)}",
        "interval": bootstrap(ev.draws),
        "traced": traced(ev),
    }


def traced(ev: Evaluator) -> str:
    """Say on which runs weights and thresholds are fitted, if not on all of the fit half."""
    if ev.traced.all():
        return ""
    return (
        f"Weights and thresholds that are fitted here are fitted on {int((ev.traced & ev.halves.fit).sum()):,} runs of "
        "the fit half: those of evenly spaced groups of one seed."
    )


def by_study(texts: Mapping[str, str]) -> str:
    """Join what is said of several studies: once if it is the same for all, else of each with its name.

    >>> by_study({"simulated": "12 runs.", "real": "16 runs."}), by_study({"simulated": "Same.", "real": "Same."})
    ('Simulated: 12 runs. Real: 16 runs.', 'Same.')
    """
    if len({*texts.values()}) == 1:
        return next(iter(texts.values()))
    return " ".join(f"{heading(study)}: {text}" for study, text in texts.items() if text)


def each_by_study(sentences: Mapping[str, Sequence[str]]) -> list[str]:
    """Each sentence of several studies once, with their names where not all have it.

    >>> each_by_study({"simulated": ["Both."], "real": ["Both.", "More."]})
    ['Both.', 'Real: More.']
    """
    known = dict.fromkeys(sentence for each in sentences.values() for sentence in each)
    return [
        by_study({study: sentence if sentence in each else "" for study, each in sentences.items()})
        for sentence in known
    ]


def heading(study: str) -> str:
    """The name of a study at the beginning of a sentence."""
    return study[:1].upper() + study[1:]


def bootstrap(draws: int) -> str:
    """Say what stands in brackets, made of so many resamples."""
    return (
        f"In brackets: 95 % bootstrap interval over runs ({draws:,} resamples; exact where all of them agree; none "
        f"where the score is undefined in more than {100 * MAX_UNDEFINED:g} % of them)."
    )


def unmeasured(ev: Evaluator) -> list[str]:
    """Notes on detectors some of whose measurements are missing in some logs, and one on those that have none."""
    notes = []
    for name, detector in ev.detectors.items():
        lacking = ev.lacking(name)
        nowhere = [signal for signal, runs in lacking.items() if runs == len(ev.study.runs)]
        somewhere = [
            f"{signal}, which {runs:,} of {len(ev.study.runs):,} logs do not have"
            for signal, runs in lacking.items()
            if signal not in nowhere
        ]
        if nowhere:
            notes.append(f"{detector.title} reads {', '.join(nowhere)}, which no log has.")
        if somewhere:
            notes.append(f"{detector.title} reads {'; '.join(somewhere)}.")
    if ev.skipped:
        titles = ", ".join(DETECTORS[name].title for name in ev.skipped)
        notes.append(f"Left out, for no log has anything that they read: {titles}.")
    return notes


def short_title(title: str) -> str:
    """Title of a detector without its published threshold or setting.

    >>> short_title("ZClip (z > 2.5)"), short_title("update RMS > 2 × mean"), short_title("R-Metric (robust)")
    ('ZClip', 'update RMS', 'R-Metric (robust)')
    """
    return re.sub(r" \([^)]*\d[^)]*\)$| > .*", "", title)
