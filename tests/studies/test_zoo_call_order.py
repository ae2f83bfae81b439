"""The monitor finds nothing wrong with the way in which the zoo's trainings call it."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("torch")

import studies.zoo.kinds  # noqa: F401 - registers all kinds
from rmetric.monitor import TrainingMonitor
from studies.zoo.training import KINDS, KindRun

UNLIKE = (
    "accumulation_doubling", "ddpg_actor", "dpo_preferences", "dqn_grid", "gan", "gaussian_process", "gpt_accumulated",
    "gradual_unfreezing", "grokking", "grpo_sums", "linear_probe", "lora_finetune", "mlp_lion", "moe_balanced",
    "ngram_fp16", "ppo_reach", "reinforce_grid", "simclr", "softmax_regression", "wgan_penalty", "word2vec",
)  # fmt: skip
"""Kinds that call it in unlike ways: several networks, frozen parts, micro-batches, a gradient scaler, doubles."""


@pytest.mark.slow
@pytest.mark.parametrize("name", UNLIKE)
def test_no_call_is_out_of_order(name: str, caplog: pytest.LogCaptureFixture) -> None:
    run = KindRun(KINDS[name](), 0, 100)
    options = {"hardware": False, "announce": False, "detectors": []}
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        TrainingMonitor(run.model, run.optimizer, **options) as monitor,
    ):
        run.observer = monitor
        for _ in range(16):
            run.train_step()
    assert monitor.step_number == 16
    assert [record.getMessage() for record in caplog.records] == []
