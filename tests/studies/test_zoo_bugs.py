"""Bugs on kinds of the zoo: each can have most of them, says no to the others, and is left clean."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'live'")

from rmetric.errors import UserError
from rmetric.faults import make_fault, parse_fault
from rmetric.faults.bugs import BUGS, BUGS_2
from studies.zoo.kinds.cnn_images import CnnSgd
from studies.zoo.training import KindRun
from tests.live.faults.common import same_bits, trained

REFUSED = {
    "NO_CLIPPING", "DROPOUT_STATE", "DROPOUT_STATE:dropout=on", "DROPOUT_TOO_HIGH", "TOKENIZER_MISMATCH",
    "EMBEDDING_CORRUPTED",
}  # fmt: skip
"""Bugs that a convolutional network without dropout, clipping and tokens cannot have."""


def _run() -> KindRun:
    return trained(KindRun(CnnSgd(), seed=0, steps=20), 2)


def test_the_list_has_at_least_22_bugs_and_each_once() -> None:
    names = {parse_fault(bug).name for bug in BUGS}
    assert len({*BUGS, *BUGS_2}) == len(BUGS) + len(BUGS_2)
    assert len(names) >= 22
    assert {name for name in names if make_fault(name).simulated} == {"LARGE_LR"}


@pytest.mark.parametrize("bug", [*BUGS, *BUGS_2])
def test_a_kind_has_a_bug_or_says_no_and_goes_on_as_if_nothing_had_been(bug: str) -> None:
    run = _run()
    if bug in REFUSED:
        with pytest.raises(UserError), parse_fault(bug).inject(run):
            pass
        assert same_bits(run.state_dict(), _run().state_dict())
    else:
        with parse_fault(bug).inject(run):
            trained(run, 2)
        assert not any(run.hooks.values())
        heir = KindRun(CnnSgd(), seed=0, steps=20).load_state_dict(run.state_dict())
        assert same_bits(trained(run, 1).state_dict(), trained(heir, 1).state_dict())
