"""Both protocols, clause by clause, with cases counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.evaluation import protocols
from rmetric.evaluation.protocols import PROTOCOLS, Timeline

TENS = np.arange(10, 501, 10)
"""Fifty records, steps 10 to 500."""


def scores_at(steps, *alert_steps):
    """1 at these steps, 0 elsewhere."""
    return np.isin(steps, alert_steps).astype(float)


def strict(runs, *scores, threshold=0.5):
    return Timeline.of(runs).count("strict", np.concatenate(scores), threshold)


def paper(runs, *scores, threshold=0.5):
    return Timeline.of(runs).count("paper", np.concatenate(scores), threshold)


def test_an_episode_between_onset_and_failure_warns_once(make_run):
    counts = strict([make_run(TENS, onset=205, failure=405)], scores_at(TENS, 210, 300, 390))
    assert (counts.tp[0], counts.fp[0], counts.fn[0]) == (1, 0, 0)
    assert counts.lead[0] == 405 - 210
    assert counts.available[0] == 200


def test_an_episode_that_begins_before_the_onset_warns_nobody_even_if_it_lasts_past_it(make_run):
    counts = strict([make_run(TENS, onset=205, failure=405)], scores_at(TENS, *range(150, 405, 10)))
    assert (counts.tp[0], counts.fp[0], counts.fn[0]) == (0, 1, 1)
    assert np.isnan(counts.lead[0])


def test_after_fifty_quiet_steps_a_second_episode_warns(make_run):
    counts = strict([make_run(TENS, onset=205, failure=405)], scores_at(TENS, 150, 160, 220))
    assert (counts.tp[0], counts.fp[0]) == (1, 1)
    too_soon = strict([make_run(TENS, onset=205, failure=405)], scores_at(TENS, 150, 160, 210))
    assert (too_soon.tp[0], too_soon.fp[0], too_soon.fn[0]) == (0, 1, 1)


def test_two_episodes_in_a_control_are_two_false_positives(make_run):
    counts = strict([make_run(TENS)], scores_at(TENS, 50, 60, 300))
    assert (counts.tp[0], counts.fp[0], counts.fn[0]) == (0, 2, 0)
    assert counts.healthy_steps[0] == 500


def test_episodes_during_a_fault_that_heals_are_absorbed(make_run):
    counts = strict([make_run(TENS, onset=205)], scores_at(TENS, 100, 210, 300))
    assert (counts.tp[0], counts.fp[0], counts.fn[0], counts.absorbed[0]) == (0, 1, 0, 2)
    assert counts.healthy_steps[0] == 204


def test_an_alert_at_or_after_the_failure_is_no_warning(make_run):
    counts = strict([make_run(TENS, onset=205, failure=400)], scores_at(TENS, 400, 470))
    assert (counts.tp[0], counts.fp[0], counts.fn[0]) == (0, 0, 1)


def test_an_alert_at_the_onset_is_a_warning(make_run):
    counts = strict([make_run(TENS, onset=210, failure=400)], scores_at(TENS, 210))
    assert (counts.tp[0], counts.lead[0]) == (1, 190)


def test_censored_and_incomplete_runs_are_left_out_with_their_healthy_steps(make_run):
    runs = [make_run(TENS, onset=205, outcome="censored"), make_run(TENS, onset=205, incomplete=True)]
    for counts in (strict(runs, scores_at(TENS, 50), scores_at(TENS, 50)), paper(runs, *[scores_at(TENS, 50)] * 2)):
        assert not counts.counted.any()
        assert counts.tp.sum() + counts.fp.sum() + counts.fn.sum() + counts.healthy_steps.sum() == 0


def test_a_disturbed_fork_of_a_healthy_twin_counts_its_own_steps_alone(make_run):
    group = {"backend": "zoo", "model_type": "cnn", "seed": 1}
    fork = make_run(TENS, disturbance={"type": "stall", "step": 205}, **group)
    for runs in ([fork, make_run(TENS, **group)], [make_run(TENS, **group), fork]):
        counts = strict(runs, *[scores_at(TENS, 100, 300)] * 2)
        mine = runs.index(fork)
        assert (counts.fp[mine], counts.fp[1 - mine]) == (1, 2)
        assert counts.healthy_steps[mine] + counts.healthy_steps[1 - mine] == 500 + 300
    alone = strict([fork], scores_at(TENS, 100, 300))
    assert (alone.fp[0], alone.healthy_steps[0]) == (2, 500)


def test_nan_never_alerts(make_run):
    silent = np.full(len(TENS), np.nan)
    for threshold in (-np.inf, -1.0, 0.5):
        counts = strict([make_run(TENS, onset=205, failure=405)], silent, threshold=threshold)
        assert (counts.tp[0], counts.fp[0], counts.fn[0]) == (0, 0, 1)
        assert paper([make_run(TENS)], silent, threshold=threshold).fp[0] == 0


def test_infinite_scores_exceed_every_threshold(make_run):
    scores = np.where(TENS == 300, np.inf, np.nan)
    assert strict([make_run(TENS, onset=205, failure=405)], scores, threshold=1e308).tp[0] == 1


def test_the_control_of_a_group_carries_the_shared_healthy_steps(make_run):
    same = {"seed": 7, "backend": "torch", "model_type": "tiny"}
    runs = [make_run(TENS, onset=205, failure=405, **same), make_run(TENS, **same), make_run(TENS, onset=305, **same)]
    counts = strict(runs, scores_at(TENS, 50), scores_at(TENS, 50), scores_at(TENS, 50))
    assert counts.healthy_steps.tolist() == [0, 500, 0]
    assert counts.fp.tolist() == [0, 1, 0]
    assert counts.fn.tolist() == [1, 0, 0]


def test_without_a_control_the_latest_onset_carries_them(make_run):
    same = {"seed": 7, "backend": "torch", "model_type": "tiny"}
    runs = [make_run(TENS, onset=205, failure=405, **same), make_run(TENS, onset=305, **same)]
    counts = strict(runs, scores_at(TENS, 50, 60), scores_at(TENS, 50, 250))
    assert counts.healthy_steps.tolist() == [0, 304]
    assert counts.fp.tolist() == [0, 2]


def test_an_unfinished_control_carries_nothing(make_run):
    same = {"seed": 7, "backend": "torch", "model_type": "tiny"}
    runs = [make_run(TENS, incomplete=True, **same), make_run(TENS, onset=305, **same)]
    assert strict(runs, *[scores_at(TENS, 50)] * 2).healthy_steps.tolist() == [0, 304]


def test_runs_that_do_not_share_everything_or_do_not_tell_their_seed_carry_their_own(make_run):
    runs = [
        make_run(TENS, seed=7, backend="torch", model_type="a"),
        make_run(TENS, seed=7, backend="torch", model_type="b"),
        make_run(TENS),
        make_run(TENS),
    ]
    assert strict(runs, *[scores_at(TENS)] * 4).healthy_steps.tolist() == [500] * 4


@pytest.mark.parametrize(("steps", "cadence", "total"), [(range(600), 1, 600), (range(10, 501, 10), 10, 500)])
def test_healthy_steps_of_logs_from_step_0_and_from_the_first_record(make_run, steps, cadence, total):
    runs = [
        make_run(list(steps), log_every_n_steps=cadence),
        make_run(list(steps), onset=205, log_every_n_steps=cadence),
    ]
    assert strict(runs, np.zeros(2 * len(list(steps)))).healthy_steps.tolist() == [total, 205 - (steps[0] == 10)]


def test_a_failure_without_an_onset_is_left_out_of_strict_only(make_run):
    runs = [make_run(TENS, failure=300)]
    assert not strict(runs, scores_at(TENS, 100)).counted[0]
    assert paper(runs, scores_at(TENS, 100)).tp[0] == 1


def test_a_run_without_records(make_run):
    empty = make_run([5], onset=3, failure=5)
    empty.observations.step = np.empty(0, np.int64)
    empty.observations.evaluated = np.empty(0, bool)
    timeline = Timeline.of([make_run(TENS), empty, make_run(TENS, onset=205, failure=405)])
    scores = np.concatenate([scores_at(TENS), scores_at(TENS, 300)])
    assert timeline.count("strict", scores, 0.5).tp.tolist() == [0, 0, 1]
    assert timeline.count("strict", scores, 0.5).fn.tolist() == [0, 1, 0]
    assert timeline.highest(scores).tolist() == [0.0, -np.inf, 1.0]


def test_an_unknown_protocol_is_refused(make_run):
    with pytest.raises(ValueError, match="unknown protocol 'Strict'; known: paper, strict"):
        Timeline.of([make_run(TENS)]).count("Strict", scores_at(TENS, 100), 0.5)


def test_the_paper_protocol_counts_an_alert_anywhere_up_to_the_failure(make_run):
    runs = [
        make_run(TENS, onset=205, failure=400),
        make_run(TENS, onset=205, failure=400),
        make_run(TENS, onset=205, failure=400),
        make_run(TENS, onset=205),
        make_run(TENS),
    ]
    alerts = [(50, 300), (400,), (410,), (300, 400), (10, 200, 400)]
    counts = paper(runs, *(scores_at(TENS, *steps) for steps in alerts))
    assert counts.tp.tolist() == [1, 1, 0, 0, 0]
    assert counts.fp.tolist() == [0, 0, 0, 1, 1]
    assert counts.fn.tolist() == [0, 0, 1, 0, 0]
    assert counts.lead[:2].tolist() == [350, 0]


def test_blocks_of_runs_give_what_all_of_them_give(make_run, monkeypatch):
    rng = np.random.default_rng(0)
    runs = [make_run(TENS[: rng.integers(0, 51)] if case % 5 else TENS, onset=205, failure=405) for case in range(20)]
    scores = rng.uniform(size=sum(len(run.observations) for run in runs))
    scores[::7] = np.nan

    def answers():
        timeline = Timeline.of(runs)
        counts = [timeline.count(protocol, scores, 0.7) for protocol in PROTOCOLS]
        columns = [vars(found) for found in (*counts, timeline.starts(scores))]
        blocks = sum(1 for _ in timeline.blocks())
        return blocks, [timeline.highest(scores), *(value for found in columns for value in found.values())]

    one, whole = answers()
    monkeypatch.setattr(protocols, "BLOCK_RECORDS", 100)
    several, pieces = answers()
    assert one == 1 and several > 5
    for expected, found in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(expected, found)
