"""The beginning of a step: random states and buffers as its first forward pass found them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class StepStart:
    """Remembers what a forward pass consumes or changes, so that a step can be computed a second time.

    At the first forward pass of a step in training mode: the random states of torch (CPU, and each CUDA device of the
    model), NumPy and Python; and all buffers, such as the running statistics of batch normalisation. A transformer has
    hardly any; which of them change cannot be asked, for batch normalisation does not count its changes as torch's
    other operations do.

    Parameters
    ----------
    model
        Gets one forward pre-hook. Drawing random numbers between the first forward pass of a step and its last backward
        pass is fine; a forward pass in training mode *between* steps, with gradients enabled, passes for the beginning
        of the next one and must be avoided.

    **Deviation:** buffers that are replaced rather than changed in place are not put back.
    """

    def __init__(self, model: nn.Module) -> None:
        tensors = [*model.parameters(), *model.buffers()]
        self._devices = sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
        self._buffers = list(model.buffers())
        self._copies: list[Tensor] = []
        self._random: tuple[Any, ...] | None = None
        self._handle = model.register_forward_pre_hook(self._begin)

    @property
    def known(self) -> bool:
        """Whether the beginning of the step that is being done was seen."""
        return self._random is not None

    def _begin(self, module: nn.Module, _: Any) -> None:
        if self._random is None and module.training and torch.is_grad_enabled():
            of_devices = [torch.cuda.get_rng_state(index) for index in self._devices]
            of_libraries = np.random.get_state(), random.getstate()  # noqa: NPY002 - the user's generator
            self._random = (torch.get_rng_state(), of_devices, *of_libraries)
            self._copies = [buffer.detach().clone() for buffer in self._buffers]

    @torch.no_grad()
    def go_back(self) -> None:
        """Let the next forward pass find what the first one of this step found."""
        if self._random is None:
            raise RuntimeError("the beginning of this step was not seen: no forward pass of the model in training mode")
        of_cpu, of_devices, of_numpy, of_python = self._random
        torch.set_rng_state(of_cpu)
        for index, state in zip(self._devices, of_devices, strict=True):
            torch.cuda.set_rng_state(state, index)
        np.random.set_state(of_numpy)  # noqa: NPY002 - the user's generator
        random.setstate(of_python)
        for buffer, copy in zip(self._buffers, self._copies, strict=True):
            buffer.copy_(copy)

    def end_step(self) -> None:
        """The step is done; the next forward pass begins another one."""
        self._random, self._copies = None, []

    def close(self) -> None:
        """Give back the hook. May be called twice."""
        self._handle.remove()
        self.end_step()
        self._buffers = []
