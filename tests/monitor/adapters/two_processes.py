"""A Trainer in each of two processes; see :mod:`tests.live.processes`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments

from rmetric.monitor.adapters import RMetricCallback
from tests.live.processes import main
from tests.monitor.adapters.reference import CLIP, LEARNING_RATE, small_model, stacked, tokens


def trainer(folder: Path, rank: int) -> dict[str, Any]:
    """Four steps of two micro-batches each; returns what the Trainer itself saw."""
    # Accelerate wants all of these, though the processes have found each other by now.
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", **address}
    arguments = TrainingArguments(
        output_dir=str(folder / "out"), max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        max_grad_norm=CLIP, learning_rate=LEARNING_RATE, lr_scheduler_type="constant", logging_steps=1, report_to=[],
        disable_tqdm=True, use_cpu=True, save_strategy="no", ddp_backend="gloo",
    )  # fmt: skip
    callback = RMetricCallback(log=folder / "run.jsonl", hardware=False)
    watched = Trainer(small_model(), arguments, data_collator=stacked, train_dataset=tokens(40), callbacks=[callback])
    watched.train()
    return {"grad_norm": [entry["grad_norm"] for entry in watched.state.log_history if "grad_norm" in entry]}


if __name__ == "__main__":
    main({"trainer": trainer})
