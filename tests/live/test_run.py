"""A live run: forks share every bit, hooks are called in order, a text is trained on that is held out from nobody."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from rmetric.errors import UserError
from rmetric.live.corpus import Corpus, corpus_of, standard_library
from rmetric.live.models import TINY_MODELS, tiny_model
from rmetric.live.run import LiveRunConfig
from tests.live.live import make_live_run, train


@pytest.mark.slow
@pytest.mark.parametrize("model", TINY_MODELS)
def test_a_fork_goes_on_with_the_same_bits(model: str) -> None:
    run = make_live_run(model, workers=2)
    train(run, 3)
    fork = make_live_run(model, seed=0, workers=2).load_state_dict(run.state_dict())
    assert train(run, 3) == train(fork, 3)
    assert run.held_out_loss("judge") == fork.held_out_loss("judge")


@pytest.mark.slow
def test_a_state_is_a_copy() -> None:
    run = make_live_run()
    state = run.state_dict()
    before = {name: value.clone() for name, value in state["model"].items()}
    train(run, 2)
    assert all(torch.equal(before[name], value) for name, value in state["model"].items())


def test_micro_batches_add_up_to_the_gradient_of_the_batch() -> None:
    gradients = []
    for workers in (1, 4):
        run = make_live_run(workers=workers)
        seen: list[torch.Tensor] = []
        with run.at(
            "gradients", lambda run=run, seen=seen: seen.extend(p.grad.clone() for p in run.model.parameters())
        ):
            train(run, 1)
        gradients.append(seen)
    for whole, parts in zip(*gradients, strict=True):
        assert torch.allclose(whole, parts, atol=1e-6)


def test_hooks_are_called_in_order_and_given_back() -> None:
    run = make_live_run(workers=2)
    calls: list[str] = []

    def seen(batch):
        calls.append("batch")
        return batch

    with (
        run.at("batch", seen),
        run.at("micro_batch", lambda worker: calls.append(f"worker {worker}")),
        run.at("gradients", lambda: calls.append("gradients")),
        run.at("update", lambda: calls.append("update")),
    ):
        train(run, 1)
    train(run, 1)
    assert calls == ["batch", "worker 0", "worker 1", "gradients", "update"]


def test_a_lost_workers_share_is_not_computed() -> None:
    run = make_live_run(workers=4)
    train(run, 2)
    run.lose_worker(2)
    calls: list[int] = []
    with run.at("micro_batch", calls.append):
        train(run, 1)
    assert calls == [0, 1, 3]
    assert run.worker_lost_step == 2


def test_the_first_step_without_a_finite_loss_is_remembered() -> None:
    run = make_live_run()
    train(run, 1)
    with torch.no_grad():
        next(run.model.parameters()).fill_(math.nan)
    train(run, 2)
    assert run.non_finite_step == 2


def test_draws_depend_on_seed_name_and_step_alone() -> None:
    run, other = make_live_run(), make_live_run()
    train(run, 1)
    train(other, 1)
    other.rng("something else").random(100)
    assert run.rng("flip").random() == other.rng("flip").random()
    assert run.rng("flip").random() != run.rng("flop").random()


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="shared equally"):
        LiveRunConfig(rows=10, workers=4)


def test_what_is_installed_and_tests_are_no_part_of_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"b.py": "b" * 50, "a/c.py": "c" * 50, "a/test/d.py": "d", "site-packages/e/f.py": "f", "g.txt": "g"}
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    corpus = standard_library.__wrapped__()
    assert np.concatenate([corpus.train, corpus.held_out]).tobytes() == b"c" * 50 + b"\n" + b"b" * 50


def test_the_standard_library_is_there_and_says_which_it_is() -> None:
    corpus = standard_library()
    assert corpus.vocabulary == 256 and "Python 3." in corpus.name
    assert 5e6 < len(corpus.train) < 5e7
    assert len(corpus.held_out) == pytest.approx(len(corpus.train) / 19, rel=1e-3)


def test_batches_depend_on_their_arguments_alone() -> None:
    corpus = corpus_of("count", np.arange(2000) % 251, 256)
    assert np.array_equal(corpus.batch(1, 5, 3, 10), corpus.batch(1, 5, 3, 10))
    assert not np.array_equal(corpus.batch(1, 5, 3, 10), corpus.batch(1, 6, 3, 10))
    assert (np.diff(corpus.batch(1, 5, 3, 10)) % 251 == 1).all()  # runs of the text
    assert not np.array_equal(corpus.held_out_batch("a", 3, 10), corpus.held_out_batch("b", 3, 10))


def test_held_out_tokens_are_never_trained_on() -> None:
    corpus = corpus_of("marked", np.r_[np.zeros(950), np.ones(50)].astype(int), 2)
    assert not corpus.train.any() and corpus.held_out.all()


@pytest.mark.parametrize("tokens", [[], [1]])
def test_an_empty_text_is_refused(tokens: list[int]) -> None:
    with pytest.raises(UserError, match="empty text"):
        corpus_of("nothing", np.array(tokens, dtype=int), 256)


def test_a_text_shorter_than_a_sequence_is_refused() -> None:
    with pytest.raises(UserError, match="too short"):
        Corpus("short", np.arange(10), np.arange(10), 256).batch(0, 1, 2, 10)


def test_tiny_models_have_the_shape_that_is_promised() -> None:
    assert sum(p.numel() for p in tiny_model("tiny-llama", seed=0).parameters()) == 131_392
    mistral = tiny_model("tiny-mistral", seed=0)
    assert mistral.config.sliding_window == 16
    assert any("experts" in name for name, _ in tiny_model("tiny-moe", seed=0).named_parameters())


def test_weights_depend_on_the_seed_and_leave_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    a, b, c = (tiny_model("tiny-llama", seed=seed).lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_model_or_shape_is_refused() -> None:
    with pytest.raises(UserError, match="tiny-llama"):
        tiny_model("tiny-gpt", seed=0)
    with pytest.raises(ValueError, match="hiden"):
        tiny_model("tiny-llama", seed=0, hiden=3)
