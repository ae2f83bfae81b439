"""How much an update changes the parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.tensors import flat, on_cpu, stride_over

ENTRIES = 16_384
"""Entries whose update is measured by default: the RMS of so many is known to about 1 %."""


class UpdateSize:
    """Root mean square of parameter changes from one call to the next, over a fixed sample of the entries.

    .. math:: RMS = \\sqrt{\\frac{1}{n} \\sum_i (w_{t,i} - w_{t-1,i})^2}

    About so many ``entries`` are watched (``None``: all), spread evenly over all tensors in proportion to their sizes.
    Where the parameters change, the change is that of the old ones once more, then of the new ones.

    **Deviation:** the change is measured on the parameters and not worked out from the optimizer's state. That is the
    same number for AdamW (a test compares them), needs no knowledge of the optimizer, contains clipping and weight
    decay, and also shows an update that was computed wrongly, which the state does not. Of sharded parameters it is
    that of this process's shards: nothing is exchanged for it.
    """

    def __init__(self, parameters: ModelParameters, entries: int | None = ENTRIES) -> None:
        self._source, self._entries = parameters, entries
        self._before: Tensor | None = None
        self._highest_rate, self._rate = 0.0, math.inf
        self._choose()

    def _choose(self) -> None:
        self._version = self._source.version
        self._parameters = self._source.present
        kinds = {parameter.dtype for parameter in self._parameters}
        self._resolution = min((torch.finfo(kind).eps for kind in kinds), default=0.0)
        self._stride = stride_over(self._parameters, self._entries)
        self._views: list[Tensor] = []
        self._alike = False
        self._places: list[int] = []

    def may_be_rounded_away(self, rate: float) -> bool:
        """Whether an update at this learning rate may leave every weight as it was, though one was made.

        So where the rate still falls, and has done so from its highest by more than the weights' type resolves: even an
        update that was once as large as its weight is then less than the distance to the next number. At a rate that
        stays as low the training has stopped. Ask once a record.
        """
        before, self._rate = self._rate, rate
        if rate > self._highest_rate:  # not NaN
            self._highest_rate = rate
        return 0.0 < rate < min(before, self._resolution * self._highest_rate)

    def begin(self) -> None:
        """Let the next :meth:`measure` say what has changed from now on."""
        if self._version != self._source.version:
            self._choose()
        self._before = torch.cat(self._sample())

    def forget(self) -> None:
        """Let the next :meth:`measure` have nothing to say: no update leads to it."""
        self._before = None

    def measure(self) -> Tensor | None:
        """The RMS since the call before, a scalar on the device; ``None`` where that is not known.

        So in the first call, after :meth:`forget`, after a resize, and where this process has no entries.
        """
        now = torch.cat(self._sample())
        before, self._before = self._before, now
        if self._version != self._source.version:
            self.begin()
        if before is None or len(before) != len(now):  # a vocabulary that has grown has more rows in the same tensor
            return None
        if not len(now):  # all that is trained lies in other processes
            return None
        change = before.to(now.device).sub_(now)  # nobody needs the numbers before any more
        rms: Tensor = torch.linalg.vector_norm(change).div_(math.sqrt(len(now)))
        return rms

    def _sample(self) -> list[Tensor]:
        places = [parameter.data_ptr() for parameter in self._parameters]
        if places != self._places:  # the first call, or the model was moved
            self._views = [flat(parameter)[:: self._stride] for parameter in self._parameters]
            whole = all(parameter.is_contiguous() for parameter in self._parameters)
            self._places = places if whole else []  # a view of what is not contiguous is a copy, and grows old
            forms = {(view.device, view.dtype) for view in self._views}
            self._alike = len(forms) == 1 and self._views[0].dtype == torch.float32
        if self._alike:
            return self._views
        home = self._views[0].device
        return [view.to(home, torch.float32, non_blocking=True) for view in self._views]

    def state_dict(self) -> dict[str, Any]:
        """The sample of the call before, so that a resumed run knows its first update, and rates."""
        return {"before": on_cpu(self._before), "highest_rate": self._highest_rate, "rate": self._rate}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, the parameters of which :class:`ModelParameters` has taken up."""
        self._choose()
        self._highest_rate = state.get("highest_rate", 0.0)  # an older checkpoint has none
        self._rate = state.get("rate", math.inf)
        before = state["before"]
        entries = sum(map(len, self._sample()))
        # of other parameters than those, or of another sample, the first change is not known
        self._before = before.clone() if before is not None and len(before) == entries else None
