"""The output of every version is the kept one: a change that forgets to raise its version fails here."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from tests.golden import FILE, NAMES, TRAINED, entry_of, kept_entries, problem


@pytest.mark.parametrize("name", NAMES)
def test_the_output_is_that_of_the_version(name: str) -> None:
    if name == TRAINED:
        pytest.importorskip("torch")
    now, kept = json.loads(json.dumps(entry_of(name))), kept_entries().get(name)
    if kept is not None and now.get("text") != kept.get("text"):
        pytest.skip(f"was kept with the {kept['text']}, and this is the {now['text']}")
    assert not (said := problem(name, now, kept)), said


def test_every_kept_output_is_still_made() -> None:
    assert set(json.loads(FILE.read_text(encoding="utf-8"))) == {*NAMES}


def test_a_forgotten_version_is_named() -> None:
    kept = kept_entries()["loss_spike"]
    now = deepcopy(kept)
    now["output"]["real"][2] *= 1.0 + 1e-6
    assert "loss_spike has changed (real). If that is meant, raise the detector's `version`" in problem(
        "loss_spike", now, kept
    )
    now["version"][0] += 1
    assert "is new: python -m tests.golden --update" in problem("loss_spike", now, kept)
