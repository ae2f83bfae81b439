"""Texts and sequences of the zoo: what is shown, what is to be said, and a recurrence against its formula."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rmetric.live.corpus import BYTES, standard_library  # noqa: E402
from studies.zoo.kinds.denoiser_mixture import GAPS, spoilt  # noqa: E402
from studies.zoo.kinds.denoiser_mixture import MOST as MARKS  # noqa: E402
from studies.zoo.kinds.gru_reverse import IGNORED, PADDING, GruReverse  # noqa: E402
from studies.zoo.kinds.mined_negatives import DOCUMENTS, ROUND, MinedNegatives, documents, questions  # noqa: E402
from studies.zoo.kinds.number_words import words_of  # noqa: E402
from studies.zoo.kinds.state_space import Recurrence  # noqa: E402
from studies.zoo.text import next_bytes  # noqa: E402
from studies.zoo.training import KindRun  # noqa: E402


def test_the_recurrence_is_that_of_its_formula_one_token_after_the_other() -> None:
    torch.manual_seed(0)
    layer, hidden = Recurrence(6), torch.randn(2, 9, 6)
    decay = layer.log_decay.exp()
    value, gate = layer.into(hidden).chunk(2, dim=-1)
    state, out = torch.zeros(2, 6), []
    for token in range(9):
        state = (-decay).exp() * state + value[:, token] * decay.clamp(max=1.0).sqrt()
        out.append(layer.out(state * gate[:, token].sigmoid()))
    torch.testing.assert_close(layer(hidden), torch.stack(out, dim=1))


def test_labels_are_the_next_bytes_and_held_out_passages_are_of_the_end() -> None:
    rng = np.random.default_rng(0)
    batch = next_bytes(rng, 3, 12, held_out=False)
    assert batch.inputs.shape == (3, 12)
    assert torch.equal(batch.inputs[:, 1:], batch.labels[:, :-1])
    held_out = bytes(next_bytes(rng, 3, 12, held_out=True).inputs[0].tolist())
    assert held_out in standard_library().held_out.tobytes()


def test_a_sequence_is_said_backwards_and_padding_does_not_count() -> None:
    batch = GruReverse().batch(np.random.default_rng(0), 1)
    for ids, labels in zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True):
        said = [label for label in labels if label != IGNORED]
        assert said == [symbol for symbol in reversed(ids) if symbol != PADDING]
        assert 3 <= len(said) <= 8


def test_numbers_in_words() -> None:
    said = {number: " ".join(words_of(number)) for number in (0, 15, 40, 99, 700, 4217, 9000)}
    assert said == {
        0: "zero",
        15: "fifteen",
        40: "forty",
        99: "ninety nine",
        700: "seven hundred",
        4217: "four thousand two hundred seventeen",
        9000: "nine thousand",
    }


@pytest.mark.parametrize("way", range(len(GAPS)))
def test_what_is_shown_and_what_is_missing_are_the_passage(way: int) -> None:
    passage = np.arange(48)
    tokens, begins = spoilt(np.random.default_rng(0), passage, way)
    shown, missing = tokens[1:begins].tolist(), tokens[begins:].tolist()
    assert tokens[0] == BYTES + MARKS + way
    assert len(missing) == GAPS[way][0] * (1 + GAPS[way][1])
    for gap in range(GAPS[way][0]):
        place, begin = shown.index(BYTES + gap), missing.index(BYTES + gap) + 1
        shown[place : place + 1] = missing[begin : begin + GAPS[way][1]]
    assert shown == passage.tolist()


def test_a_document_is_never_its_own_negative_and_is_asked_for_by_its_words() -> None:
    run = KindRun(MinedNegatives(), 0, 400)
    about = np.arange(DOCUMENTS)
    asked = questions(np.random.default_rng(0), about)
    assert bool((asked[:, :, None] == documents()[:, None]).any(2).all())
    at_random = run.beside["wrong"].tensors["nearest"].clone()
    for _ in range(ROUND + 1):
        run.train_step()
    mined = run.beside["wrong"].tensors["nearest"]
    assert not torch.equal(mined, at_random)
    for nearest in (at_random, mined):
        assert not bool((nearest == torch.from_numpy(about)[:, None]).any())
