"""Architecture profiles of the study: the model and the cluster that trains it, as the simulator needs them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rmetric.registry import Registry

ARCHITECTURES: Registry[Architecture] = Registry("architecture")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One model on one small cluster."""

    name: str
    """Name on the command line and in file names."""
    model_type: str
    """Name in the logs, as the authors write it."""
    parameters_b: float
    """Number of parameters, in 10^9."""
    layers: int
    vocabulary: int
    """Vocabulary size; ln(vocabulary) is the loss of an untrained model, in nats."""
    experts: int = 0
    """Experts a layer; 0 for a dense model."""
    peak_learning_rate: float = 3e-4
    irreducible_loss: float = 1.7
    """Loss in nats that the power law approaches; an assumption of the simulator."""
    workers: int = 8
    """Data-parallel workers, one accelerator each, as in the paper."""
    step_time_s: float = 5.0
    """Mean seconds a step, as in the paper."""
    native_faults: tuple[str, ...] = ()
    """Faults of the 720-run matrix that only this architecture has."""
    source: str = ""

    @property
    def initial_loss(self) -> float:
        """Loss of the untrained model, in nats."""
        return math.log(self.vocabulary)


for _profile in (
    Architecture(
        name="llama-3-8b",
        model_type="Llama-3-8B",
        parameters_b=8.03,
        layers=32,
        vocabulary=128_256,
        peak_learning_rate=3e-4,
        irreducible_loss=1.75,
        native_faults=("GQA_MISMATCH", "RMS_NORM_ERROR"),
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models, arXiv 2407.21783, Table 3",
    ),
    Architecture(
        name="mistral-7b",
        model_type="Mistral-7B",
        parameters_b=7.24,
        layers=32,
        vocabulary=32_000,
        irreducible_loss=1.70,
        native_faults=("GQA_MISMATCH", "LOW_PRECISION_ATTENTION"),
        source="Jiang et al. 2023, Mistral 7B, arXiv 2310.06825, Table 1; learning rate not published, taken as 3e-4",
    ),
    Architecture(
        name="gpt-4-moe",
        model_type="GPT-4-MoE",
        parameters_b=46.7,
        layers=32,
        vocabulary=32_000,
        experts=8,
        peak_learning_rate=2e-4,
        irreducible_loss=1.60,
        native_faults=("EXPERT_FAILURE", "ROUTER_IMBALANCE"),
        source="GPT-4's shape is not published; the public proxy is Mixtral 8x7B, Jiang et al. 2024, arXiv 2401.04088, "
        "Table 1; learning rate an assumption",
    ),
):
    ARCHITECTURES.add(_profile.name, _profile)
