"""Parts of the zoo's kinds against what they claim to compute: the grid's exact cost, a recurrence, texts, sums."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rmetric.live.corpus import standard_library  # noqa: E402
from studies.zoo import gridworld  # noqa: E402
from studies.zoo.kinds.gru_reverse import IGNORED, PADDING, GruReverse  # noqa: E402
from studies.zoo.kinds.number_words import words_of  # noqa: E402
from studies.zoo.kinds.reinforce_grid import ReinforceGrid, played  # noqa: E402
from studies.zoo.kinds.state_space import Recurrence  # noqa: E402
from studies.zoo.pretrained import pretrained  # noqa: E402
from studies.zoo.text import next_bytes  # noqa: E402


def test_the_exact_number_of_steps_to_the_goal_is_the_mean_over_played_episodes() -> None:
    torch.manual_seed(0)
    policy = gridworld.network()
    with torch.no_grad():
        exact = gridworld.expected_steps(policy(gridworld.all_observations()).softmax(-1))
    kind, counts = ReinforceGrid(), []
    for seed in range(100):
        episodes = played(policy, kind.batch(np.random.default_rng(seed), 1))
        down, right = (each.argmax(-1) - (gridworld.SIDE - 1) for each in episodes.inputs.chunk(2, dim=-1))
        counts += ((down != 0) | (right != 0)).sum(0).tolist()
    error = np.std(counts) / np.sqrt(len(counts))
    assert float(exact) == pytest.approx(np.mean(counts), abs=4 * error)
    assert error < 0.1


def test_a_policy_that_never_moves_towards_the_goal_takes_the_whole_horizon_and_a_good_one_less() -> None:
    down, right = (each.argmax(-1) - (gridworld.SIDE - 1) for each in gridworld.all_observations().chunk(2, dim=-1))
    first_down = torch.where(down != 0, (down > 0).long(), 2 + (right > 0).long())
    towards = torch.nn.functional.one_hot(first_down, gridworld.MOVES).float()
    assert 3.3 < float(gridworld.expected_steps(towards)) < 4.2  # 10/3 on average without slips
    assert float(gridworld.expected_steps(towards.flip(-1)[..., [1, 0, 3, 2]])) > 10.0


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


@pytest.mark.slow
def test_pretraining_leaves_random_numbers_and_hands_out_copies() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = pretrained(), pretrained()
    assert torch.equal(before, torch.get_rng_state())
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert not torch.equal(next(first.parameters()), next(second.parameters()))
