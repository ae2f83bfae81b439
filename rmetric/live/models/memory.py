"""Memory that a training run needs, estimated before anything is loaded, and what would fit if it is too much.

``python -m rmetric.live.models.memory`` prints what fits on the two cards of the paper, as in ``docs/models.md``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal

from tabulate import tabulate

from rmetric.cli import Parser, real_training, script, whole_number
from rmetric.errors import UserError
from rmetric.live.models.shapes import SHAPES, Shape

if TYPE_CHECKING:
    import torch

GIB = 2**30
FP32_BYTES = 4
HEADROOM = 0.10
"""Share of the free memory that is left alone: fragmentation, workspaces of the matrix library."""
LORA_RANK = 16
"""Rank of the adapters of every LoRA run here."""
ADAMW_BYTES = 8
"""Bytes of FP32 state a trainable parameter: two moments."""
SMALLEST_LENGTH = 64
CARDS = {"T4": (14.7, "float16"), "L4": (22.0, "bfloat16")}
"""GiB that PyTorch reports as the whole of the card (sold as 16 and 24 GB), and the type in which it computes."""
Choice = bool | Literal["auto"]


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Memory of one training run at its peak, in GiB."""

    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    casts_gib: float
    """16-bit copies of trained weights, which autocast makes in the forward pass and the backward pass needs."""
    activations_gib: float
    """Activations that the forward pass keeps for the backward pass, without the logits."""
    logits_gib: float
    """Logits, their FP32 copy, their logarithm of softmax and its gradient."""
    update_gib: float
    """Passing values of the optimizer's step."""

    @property
    def total_gib(self) -> float:
        """Sum; what a pass through the model keeps is gone when the optimizer steps, so the larger of both counts."""
        passing = max(self.casts_gib + self.activations_gib + self.logits_gib, self.update_gib)
        return self.weights_gib + self.gradients_gib + self.optimizer_gib + passing


def lora_parameters(layers: int, hidden: int, feed_forward: int) -> int:
    """Parameters of adapters on all linear layers: rank · layers · (4 · 2 · hidden + 3 · (hidden + feed_forward)).

    An upper bound for grouped-query attention, whose key and value projections are narrower.
    """
    return LORA_RANK * layers * (8 * hidden + 3 * (hidden + feed_forward))


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """One way of training one model: what its memory depends on."""

    name: str
    parameters: int
    """Parameters of the model itself, without adapters."""
    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    dtype: torch.dtype
    """Type in which the matrix products compute."""
    rows: int = 4
    """Sequences in one pass: the paper's batch. A run that splits its batch into micro-batches needs fewer."""
    length: int = 256
    """Tokens in a sequence; 256–512 in the paper."""
    lora: bool = False
    gradient_checkpointing: bool = False

    def estimate(self) -> MemoryEstimate:
        """Peak memory: weights + gradients + optimizer + max(casts + activations + logits, update).

        With E bytes a value of ``dtype``, T parameters that are trained, F that LoRA freezes, and N = rows · length
        tokens a step::

            weights      F · E  +  T · 4
            gradients    T · 4
            optimizer    T · 8 (AdamW)
            update       T · 4
            casts        T · E if E < 4, else 0
            a token's layer  a = 42 · hidden + 17 · feed_forward if E = 4,  36 · hidden + 9 · feed_forward if E = 2
            activations  N · layers · a;  with gradient checkpointing N · (layers · 4 · hidden + a)
            logits       N · vocabulary · 12 if E = 4, · 16 if E = 2

        Trained weights, gradients and moments are FP32, frozen weights are ``dtype``, and ``dtype`` is what autocast
        computes in. Attention is taken as fused (``scaled_dot_product_attention``): its scores are not kept. Measured
        peaks lie within a factor of 1.5 of it (``docs/models.md``); no loaded library is counted.

        **Source:** bytes of weights, gradients and states: Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054, section
        3.1. Activations a layer and full recomputation: Korthikanti et al. 2022, arXiv 2205.05198, equations 1–2 and
        section 5.

        **Deviation:** Korthikanti et al. count 34 · hidden bytes a token and layer without attention scores, for a
        fused GPT layer with feed_forward = 4 · hidden and 16-bit values throughout. transformers' layers keep about
        twice that, because norms and the residual stream stay in FP32 and each element-wise step keeps its input. The
        coefficients here lie between the bytes that autograd was measured to keep for Llama, Qwen 2, Qwen 3, GPT-2 and
        LFM2, trained in full and with LoRA: 28–48 · hidden + 16–20 · feed_forward in FP32, 26–41 · hidden + 8–10 ·
        feed_forward with BF16. Not counted: attention with dropout on a CPU, which keeps its scores.

        >>> import torch
        >>> shape = dict.fromkeys(("layers", "hidden", "feed_forward", "vocabulary", "rows", "length"), 1)
        >>> full = TrainingPlan(name="", parameters=10**9, dtype=torch.float32, **shape).estimate()
        >>> round(full.total_gib * 2**30 / 10**9)
        20
        """
        adapters = lora_parameters(self.layers, self.hidden, self.feed_forward)
        trained, frozen = (adapters, self.parameters) if self.lora else (self.parameters, 0)
        size = self.dtype.itemsize
        mixed = size < FP32_BYTES
        layer = (36 * self.hidden + 9 * self.feed_forward) if mixed else (42 * self.hidden + 17 * self.feed_forward)
        inputs = self.layers * FP32_BYTES * self.hidden
        kept = inputs + layer if self.gradient_checkpointing else self.layers * layer
        tokens = self.rows * self.length
        return MemoryEstimate(
            weights_gib=(frozen * size + trained * FP32_BYTES) / GIB,
            gradients_gib=trained * FP32_BYTES / GIB,
            optimizer_gib=trained * ADAMW_BYTES / GIB,
            casts_gib=trained * size * mixed / GIB,
            activations_gib=tokens * kept / GIB,
            logits_gib=tokens * self.vocabulary * (16 if mixed else 12) / GIB,
            update_gib=trained * FP32_BYTES / GIB,
        )

    def fits(self, available_gib: float) -> bool:
        """True if the estimate leaves :data:`HEADROOM` of the free memory."""
        return self.estimate().total_gib <= available_gib * (1 - HEADROOM)

    @property
    def manner(self) -> str:
        return ("LoRA" if self.lora else "in full") + (", checkpointed" if self.gradient_checkpointing else "")


def plan_of(shape: Shape, dtype: torch.dtype, *, rows: int = 4, length: int = 256) -> TrainingPlan:
    """Training a published shape in full."""
    return TrainingPlan(
        name=shape.hub_name,
        parameters=shape.parameters,
        layers=shape.layers,
        hidden=shape.hidden,
        feed_forward=shape.feed_forward,
        vocabulary=shape.vocabulary,
        dtype=dtype,
        rows=rows,
        length=length,
    )


def choose_plan(plan: TrainingPlan, available_gib: float, *, lora: Choice = "auto") -> TrainingPlan:
    """The first that fits of in full, checkpointed, LoRA, and both; ``lora`` says which of these are allowed.

    Raises :class:`~rmetric.errors.UserError` through :func:`check_fits` when none of those that are allowed fits.
    """
    adapters = (False, True) if lora == "auto" else (bool(lora),)
    allowed = [
        replace(plan, lora=with_adapters, gradient_checkpointing=checkpointed)
        for with_adapters, checkpointed in product(adapters, (False, True))
    ]
    chosen = next((option for option in allowed if option.fits(available_gib)), allowed[-1])
    check_fits(chosen, available_gib)
    return chosen


def check_fits(plan: TrainingPlan, available_gib: float) -> MemoryEstimate:
    """The estimate of a plan; raises :class:`~rmetric.errors.UserError` when it does not fit, naming what would."""
    estimate = plan.estimate()
    if plan.fits(available_gib):
        return estimate
    raise UserError(
        f"training {plan.name} {plan.manner}, {plan.rows} × {plan.length} tokens in a pass, needs about "
        f"{estimate.total_gib:.1f} GiB, and {available_gib:.1f} GiB are free ({HEADROOM:.0%} of that are kept spare); "
        f"what would fit: {'; '.join(_what_fits(plan, available_gib)) or 'a tiny model (--model tiny-llama)'}"
    )


def _what_fits(plan: TrainingPlan, available_gib: float) -> Iterator[str]:
    """Remedies, the least change first, then the known models that fit as asked."""
    for option in (
        replace(plan, gradient_checkpointing=True),
        replace(plan, lora=True),
        replace(plan, lora=True, gradient_checkpointing=True),
    ):
        if option.fits(available_gib):
            yield f"{option.manner}{' (--lora on)' * option.lora}, {option.estimate().total_gib:.1f} GiB"
            break
    smaller = next((option for option in _smaller_batches(plan) if option.fits(available_gib)), None)
    if smaller is not None:
        yield f"{smaller.rows} × {smaller.length} tokens in a pass (--batch, --length), {smaller.manner}"
    known = [
        name
        for name, shape in SHAPES.items()
        if replace(plan_of(shape, plan.dtype, rows=plan.rows, length=plan.length), lora=plan.lora).fits(available_gib)
    ]
    if known:
        yield f"as asked, --model {' or '.join(SHAPES[name].hub_name for name in known)}"


def _smaller_batches(plan: TrainingPlan) -> Iterator[TrainingPlan]:
    """Fewer rows, then also shorter sequences; as planned, then with LoRA; always checkpointed."""
    for lora in sorted({plan.lora, True}):
        rows, length = plan.rows, plan.length
        while rows > 1 or length // 2 >= SMALLEST_LENGTH:
            rows, length = (rows // 2, length) if rows > 1 else (1, length // 2)
            yield replace(plan, rows=rows, length=length, lora=lora, gradient_checkpointing=True)


def available_memory_gib(device: torch.device | str) -> float:
    """Memory that a run on ``device`` can still take, in GiB.

    On a CUDA device what the driver reports as free, and what PyTorch has reserved and does not use; elsewhere the
    machine's available main memory (with ``psutil``; without it, its free pages, which is less).
    """
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return (free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)) / GIB
    try:
        import psutil
    except ImportError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    return psutil.virtual_memory().available / GIB


@contextmanager
def out_of_memory_in_one_line(doing: str) -> Iterator[None]:
    """Turn running out of memory in the block into one :class:`~rmetric.errors.UserError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is one of the latter
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"out of memory while {doing}; take a smaller --batch or --length, --lora on, or a smaller --model"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory ran out; PyTorch has no class of its own for main memory."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        sign in str(error) for sign in ("can't allocate memory", "not enough memory", "out of memory")
    )


def card_table(rows: int = 1, length: int = 256) -> str:
    """A Markdown table of what fits of each known model on the paper's two cards."""
    with real_training():
        import torch

    head = ["model", "parameters", *(f"{card} ({gib} GiB)" for card, (gib, _) in CARDS.items())]
    lines = []
    for shape in map(SHAPES.__getitem__, SHAPES):
        cells = [
            _card_cell(plan_of(shape, getattr(torch, dtype), rows=rows, length=length), available)
            for available, dtype in CARDS.values()
        ]
        lines.append([shape.hub_name, f"{shape.parameters / 1e9:.2f} B", *cells])
    return tabulate(lines, head, tablefmt="pipe", disable_numparse=True)


def _card_cell(plan: TrainingPlan, available_gib: float) -> str:
    try:
        chosen = choose_plan(plan, available_gib)
    except UserError:
        return "does not fit"
    return f"{chosen.manner}, {chosen.estimate().total_gib:.1f} GiB"


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Print :func:`card_table`."""
    parser = Parser("What fits of each known model on a T4 and on an L4.")
    parser.add_argument("--rows", type=whole_number(1), default=1, metavar="N", help="sequences in one pass")
    parser.add_argument("--length", type=whole_number(1), default=256, metavar="TOKENS", help="tokens in a sequence")
    options = parser.parse_args(argv)
    print(card_table(options.rows, options.length))


if __name__ == "__main__":
    sys.exit(main())
