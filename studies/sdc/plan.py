"""Parts of a campaign: settings of the training, and single injections."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from rmetric.errors import UserError

Stage = Literal["forward", "backward", "memory", "payload"]
Target = Literal[
    "output", "input_gradient", "weight_gradient", "weight", "gradient", "exp_avg", "exp_avg_sq", "payload"
]
STAGE_OF: dict[Target, Stage] = {
    "output": "forward",
    "input_gradient": "backward",
    "weight_gradient": "backward",
    "weight": "memory",
    "gradient": "memory",
    "exp_avg": "memory",
    "exp_avg_sq": "memory",
    "payload": "payload",
}
"""Target → stage. ``output``: a product of the forward pass; ``input_gradient``, ``weight_gradient``: a product of
the backward pass; ``weight``, ``exp_avg``, ``exp_avg_sq`` lie in memory before the forward pass, ``gradient`` after all
backward passes; ``payload``: one worker's gradient before it is added to the others'."""
STAGES: tuple[Stage, ...] = get_args(Stage)
DTYPES = ("float32", "bfloat16", "float16")
"""Types of the forward and backward pass; weights, gradients and optimizer stay in float32."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the healthy run, and the time for which one with a flip is watched."""

    model: str = "tiny-llama"
    """One of the tiny models; attention is computed by two matrix products (``eager``), so that both can be hit."""
    seed: int = 0
    """Seed of the weights and of the batches."""
    dtype: str = "float32"
    """One of :data:`DTYPES`; not float32: autocast, for float16 with a gradient scaler."""
    rows: int = 6
    """Sequences a step."""
    length: int = 32
    """Tokens a sequence."""
    workers: int = 3
    """Equal parts of a batch, one forward and backward pass each."""
    learning_rate: float = 1e-3
    """After 20 steps of warm-up."""
    window: int = 60
    """Steps from a flip to the end of its run, the faulty step included."""
    judge_every: int = 5
    """Steps between held-out losses."""
    eval_every: int = 20
    """Steps between validation losses, which detectors see."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UserError(f"a campaign has no dtype {self.dtype!r}; choose one of {', '.join(DTYPES)}")
        if min(self.window, self.judge_every, self.eval_every, self.rows, self.length, self.workers) < 1:
            raise UserError("rows, length, workers, window, judge_every and eval_every are at least 1")
        if self.rows % self.workers:
            raise UserError(f"{self.rows} rows cannot be shared by {self.workers} workers; choose a multiple")


@dataclass(frozen=True, kw_only=True)
class Injection:
    """One flip of one bit of one number."""

    step: int
    """The faulty step, from 2."""
    stage: Stage
    target: Target
    """The kind of number that is hit; decides the stage."""
    kernel: str
    """Kernel that the number belongs to: ``query``, ``scores``, ``mlp``, …; see :mod:`studies.sdc.products`."""
    tensor: str
    """Name of the module whose product is hit; of the parameter, for a weight gradient and outside the passes."""
    layer: int | None = None
    """Decoder layer; none: embedding, last norm, output layer."""
    worker: int | None = None
    """Worker whose pass or payload is hit; none in memory."""
    call: int | None = None
    """Number of the product among those of its pass, from 0; none outside the passes."""
    element: int = 0
    """Position in the flattened tensor."""
    bit: int = 30
    """Position in the tensor's own type, 0 is the lowest of the mantissa."""
    recurs: float = 0.0
    """Probability of the same flip in each later step; 0: transient."""

    def __post_init__(self) -> None:
        if STAGE_OF.get(self.target) != self.stage:
            known = ", ".join(f"{target} ({stage})" for target, stage in STAGE_OF.items())
            raise UserError(f"an injection has no target {self.target!r} in stage {self.stage!r}; choose of {known}")
        for name, there in (("worker", self.stage != "memory"), ("call", self.stage in ("forward", "backward"))):
            if (getattr(self, name) is not None) != there:
                raise UserError(f"an injection in stage {self.stage} {'needs a' if there else 'has no'} {name}")
        if self.step < 2 or not 0.0 <= self.recurs <= 1.0 or self.element < 0 or self.bit < 0:
            raise UserError("an injection needs step ≥ 2, element ≥ 0, bit ≥ 0 and recurs from 0 to 1")

    def fields(self) -> dict[str, Any]:
        """Name → value, without what the injection does not have."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def transient(self) -> bool:
        """True if the step would be right if it were computed once more from the same memory."""
        return self.recurs == 0.0 and self.target not in ("weight", "exp_avg", "exp_avg_sq")
