"""One worker's contribution to the sum of the gradients, changed on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def changed_payload(parameter: nn.Parameter, change: Callable[[Tensor], None]) -> Iterator[None]:
    """Let every backward pass hand on a changed gradient of a parameter, as long as the context lasts.

    ``change`` gets a copy of what the pass has made, before it is added to ``.grad``, and may change it in place: what
    a worker sends. Hooks that are put on the parameter later see the changed one. Under ``DistributedDataParallel``,
    entered in one process after the model was wrapped or before, it changes what that process sends: DDP fills its
    buckets from ``.grad``.
    """

    def hook(gradient: Tensor) -> Tensor:
        sent = gradient.clone()
        change(sent)
        return sent

    handle = parameter.register_hook(hook)
    try:
        yield
    finally:
        handle.remove()
