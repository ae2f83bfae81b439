"""Load a checkpoint of the Trainer of transformers into a training that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmetric.errors import UserError

ADAPTER = "adapter_model.safetensors"


def load_checkpoint(folder: Path, model: nn.Module, optimizer: Any) -> None:
    """Load weights and optimizer state; the schedule keeps its place, as the Trainer's count of steps does.

    Supported: ``model.safetensors``, in one file or several, an adapter of PEFT, and ``optimizer.pt``. Not: checkpoints
    of DeepSpeed and of FSDP. Raises :class:`UserError` where weights or optimizer state are missing
    (``save_only_model``).
    """
    if not (folder / "optimizer.pt").exists():
        raise UserError(f"{folder} has no optimizer.pt; leave save_only_model off, or give GoBack(every=50)")
    _load_weights(folder, model)
    saved = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
    optimizer.load_state_dict({"state": saved["state"], "param_groups": optimizer.state_dict()["param_groups"]})


def _load_weights(folder: Path, model: nn.Module) -> None:
    from safetensors.torch import load_file

    if (folder / ADAPTER).exists():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(folder / ADAPTER))
        return
    files = sorted(folder.glob("model*.safetensors"))
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    if not tensors:
        raise UserError(f"{folder} has no model.safetensors; give GoBack(every=50), which keeps copies in memory")
    model.load_state_dict(tensors, strict=False)  # tied weights are saved once
