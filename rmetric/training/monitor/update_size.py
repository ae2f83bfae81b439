"""How far the optimizer moved the parameters in its last step."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

ENTRIES = 16_384
"""Entries that are watched by default: the RMS of so many is known to about 1 %."""


class UpdateSize:
    """Root mean square of parameter changes from one call to the next, over a fixed sample of the entries.

    .. math:: RMS = \\sqrt{\\frac{1}{n} \\sum_i (w_{t,i} - w_{t-1,i})^2}

    Parameters
    ----------
    model
        Its trainable parameters.
    entries
        About how many are watched, spread evenly over all tensors in proportion to their sizes; ``None``: all.

    **Deviation:** the change is measured on the parameters and not worked out from the optimizer's state. That is the
    same number for AdamW (a test compares them), needs no knowledge of the optimizer, contains clipping and weight
    decay, and also shows an update that was computed wrongly, which the state does not.
    """

    def __init__(self, model: nn.Module, entries: int | None = ENTRIES) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        total = sum(parameter.numel() for parameter in self._parameters)
        self._stride = 1 if entries is None else max(1, math.ceil(total / max(entries, 1)))
        self._views: list[Tensor] = []
        self._places: list[int] = []
        self._before: Tensor | None = None

    @torch.no_grad()
    def measure(self) -> Tensor | None:
        """The RMS since the call before, a scalar on the device; ``None`` in the first call."""
        now = torch.cat(self._sample())
        before, self._before = self._before, now
        if before is None:
            return None
        before = before.to(now.device)
        return torch.linalg.vector_norm(now - before) / math.sqrt(len(now))

    def _sample(self) -> list[Tensor]:
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places:  # the first call, or the model was moved
            self._views = [_flat(parameter)[:: self._stride] for parameter in self._parameters]
            whole = all(parameter.is_contiguous() for parameter in self._parameters)
            self._places = places if whole else []  # a view of what is not contiguous is a copy, and grows old
        home = self._views[0].device
        same = all(view.device == home and view.dtype == torch.float32 for view in self._views)
        return self._views if same else [view.to(home, torch.float32, non_blocking=True) for view in self._views]

    def state_dict(self) -> dict[str, Tensor | None]:
        """The sample of the call before, so that a resumed run knows its first update."""
        return {"before": None if self._before is None else self._before.detach().to("cpu", copy=True)}

    def load_state_dict(self, state: dict[str, Tensor | None]) -> None:
        """Go on from a state."""
        self._before = state["before"]


def _flat(parameter: Tensor) -> Tensor:
    """All entries of a parameter (of a sharded one, of this process's part) in one dimension, sharing its memory."""
    data = parameter.detach()
    data = data.to_local() if hasattr(data, "to_local") else data
    return data.reshape(-1)
