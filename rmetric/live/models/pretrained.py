"""Real models, ready to train: from the hub, a folder, a GGUF file, or the shape of a published one.

Weights are read from safetensors or GGUF only, and no code of a model's own is ever run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers import logging as transformers_logging
from transformers.pytorch_utils import Conv1D
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from rmetric.errors import UserError
from rmetric.live.models.files import ModelFiles, find_model
from rmetric.live.models.memory import (
    LORA_RANK,
    Choice,
    TrainingPlan,
    available_memory_gib,
    choose_plan,
    is_out_of_memory,
    out_of_memory_in_one_line,
)
from rmetric.live.models.shapes import Shape

BF16_CAPABILITY = (8, 0)
"""First CUDA compute capability with BF16 in hardware; a T4 has 7.5."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model ready to train, and how it is to be trained."""

    model: nn.Module
    """transformers' model, or peft's around it under LoRA; on its device, in training mode."""
    tokenizer: PreTrainedTokenizerBase | None
    """Tokenizer with a padding token; None for random weights of a shape: such a model is trained on bytes."""
    description: dict[str, object]
    """Entries for the log: name, revision, architecture, parameters, how it is trained. No path, no token."""
    vocabulary: int
    """Rows of the embedding; ln(vocabulary) is the loss of a model that knows nothing."""
    compute_dtype: torch.dtype
    device: torch.device

    def autocast(self) -> torch.autocast:
        """Context for the forward pass; does nothing in FP32."""
        mixed = self.compute_dtype != torch.float32
        return torch.autocast(self.device.type, dtype=self.compute_dtype if mixed else None, enabled=mixed)


def load_pretrained(
    name: str,
    *,
    device: torch.device | str = "cpu",
    lora: Choice = "auto",
    rows: int = 4,
    length: int = 256,
    seed: int = 0,
) -> Loaded:
    """Load a causal language model for training with AdamW, after asking whether it fits.

    Trained weights are FP32 and autocast computes in :func:`compute_dtype`; weights that LoRA freezes are kept in it.
    Where it does not fit otherwise, only the input of each layer is kept (gradient checkpointing).

    **Source:** LoRA: Hu et al. 2021, arXiv 2106.09685; on all linear layers: Dettmers et al. 2023, arXiv 2305.14314.

    Parameters
    ----------
    lora
        Train adapters of rank 16 on all linear layers instead of the weights; ``"auto"``: when training in full does
        not fit.
    rows, length
        Sequences in one pass through the model and tokens in a sequence, for the estimate of memory.
    seed
        Of random weights and of adapters; the global random state is left as it is.

    Raises
    ------
    UserError
        One line: not found, gated, no network, pickled weights only, damaged files, a tokenizer without padding and
        end-of-text token, a device that is not there, too little memory, a missing optional package.
    """
    device = _known_device(device)
    compute = compute_dtype(device)
    files = find_model(name)
    with _one_line(files.name):
        config = _config(files)
        base = _plan(files.name, config, compute, rows=rows, length=length)
    plan = choose_plan(base, available_memory_gib(device), lora=lora)
    tokenizer = _tokenizer(files, config)
    with out_of_memory_in_one_line(f"loading {files.name}"):
        with _one_line(files.name):
            weights: Any = _weights(files, config, compute if plan.lora else torch.float32, device, seed)
        model = prepare(weights.to(device), plan, seed)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        description=describe(model, files, plan),
        vocabulary=plan.vocabulary,
        compute_dtype=compute,
        device=device,
    )


def compute_dtype(device: torch.device) -> torch.dtype:
    """Type of the matrix products: BF16 on CUDA devices that have it, FP16 on older ones, FP32 elsewhere."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= BF16_CAPABILITY else torch.float16


def prepare(model: Any, plan: TrainingPlan, seed: int) -> nn.Module:
    """Make a model trainable as planned: adapters, checkpointing, no cache of keys and values."""
    model.config.use_cache = False
    with warnings.catch_warnings():
        # Both libraries call names of each other that the next version drops; nothing a user of this can mend.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.|peft\.")
        if plan.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        trainable: nn.Module = _with_adapters(model, seed) if plan.lora else model
    return trainable.train()


def describe(model: nn.Module, files: ModelFiles, plan: TrainingPlan) -> dict[str, object]:
    """Description of a model for the log: JSON values only."""
    parameters = list(model.parameters())
    return {
        "name": files.name,
        "revision": files.revision,
        "architecture": type(_base(model)).__name__,
        "parameters": plan.parameters,
        "trainable_parameters": sum(item.numel() for item in parameters if item.requires_grad),
        "vocabulary": plan.vocabulary,
        "dtype": str(plan.dtype).removeprefix("torch."),
        "lora": plan.lora,
        "lora_rank": LORA_RANK if plan.lora else None,
        "gradient_checkpointing": plan.gradient_checkpointing,
        "estimated_memory_gib": round(plan.estimate().total_gib, 2),
    }


def _base(model: Any) -> nn.Module:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _known_device(device: torch.device | str) -> torch.device:
    try:
        known = torch.device(device)
    except RuntimeError:
        raise UserError(f"unknown device {device!r}; choose cpu, cuda or cuda:0") from None
    if known.type == "cuda" and (known.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {device} is not there ({torch.cuda.device_count()} CUDA devices); choose cpu")
    return known


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn whatever a library says of damaged or foreign files into one :class:`~rmetric.errors.UserError`."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    except Exception as error:  # damaged files make the libraries raise errors of every kind
        if isinstance(error, UserError) or is_out_of_memory(error):
            raise
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{name} needs code of its own, which is never run; choose a model that transformers itself knows"
            ) from error
        reason = " ".join(str(error).split())
        raise UserError(
            f"{name} could not be loaded; its files are damaged, incomplete or of an unknown kind "
            f"({type(error).__name__}: {reason[:200]})"
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)


def _config(files: ModelFiles) -> PretrainedConfig:
    if files.shape is not None:
        return config_of_shape(files.shape)
    if files.gguf is None and files.folder is not None and not (files.folder / "config.json").is_file():
        raise UserError(f"{files.name} has no config.json; give a folder that save_pretrained wrote")
    return AutoConfig.from_pretrained(**files.arguments)


def config_of_shape(shape: Shape) -> PretrainedConfig:
    """Configuration of transformers for a shape, as its publisher's ``config.json`` has it."""
    return AutoConfig.for_model(
        shape.model_type,
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.feed_forward,
        **shape.config,
    )


def _plan(name: str, config: PretrainedConfig, dtype: torch.dtype, *, rows: int, length: int) -> TrainingPlan:
    """Training in full; the parameters are counted in a model without memory."""
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    text: Any = config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * text.hidden_size
    return TrainingPlan(
        name=name,
        parameters=sum(item.numel() for item in skeleton.parameters()),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        feed_forward=inner * (getattr(text, "num_experts_per_tok", None) or 1),
        vocabulary=text.vocab_size,
        dtype=dtype,
        rows=rows,
        length=length,
    )


def _weights(
    files: ModelFiles, config: PretrainedConfig, dtype: torch.dtype, device: torch.device, seed: int
) -> PreTrainedModel:
    return _random(config, dtype, device, seed) if files.shape is not None else _published(files, config, dtype)


def _random(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, seed: int) -> PreTrainedModel:
    """Random weights, drawn on the device itself: billions of them take long on a CPU."""
    with _seeded(seed), torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def _published(files: ModelFiles, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        **files.arguments,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # reported, and refused below
    )
    model, report = loaded
    absent = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    if absent:
        raise UserError(
            f"{len(absent)} weights of {files.name} are missing or of another shape than its config.json says "
            f"(such as {absent[0]}); fetch it again or choose another"
        )
    return model


def _tokenizer(files: ModelFiles, config: PretrainedConfig) -> PreTrainedTokenizerBase | None:
    """The model's tokenizer, with a padding token: its own, else its end-of-text token."""
    if files.folder is None:
        return None
    with _one_line(f"the tokenizer of {files.name}"):
        tokenizer = AutoTokenizer.from_pretrained(**files.arguments)
    vocabulary = config.get_text_config().vocab_size
    if len(tokenizer) > vocabulary:
        raise UserError(
            f"the tokenizer of {files.name} has {len(tokenizer)} tokens and the model only {vocabulary}; "
            "they do not belong together"
        )
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise UserError(
                f"the tokenizer of {files.name} has neither a padding nor an end-of-text token; "
                'set "pad_token" in its tokenizer_config.json'
            )
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _with_adapters(model: Any, seed: int) -> nn.Module:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise UserError("LoRA needs the package peft: pip install 'rmetric[hub]'") from None
    transposed = any(isinstance(layer, Conv1D) for layer in model.modules())
    adapters = LoraConfig(
        r=LORA_RANK,
        lora_alpha=2 * LORA_RANK,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        fan_in_fan_out=transposed,  # GPT-2 keeps its weights the other way round
    )
    with _seeded(seed):
        return get_peft_model(model, adapters)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """One random state of its own, on the CPU and on every CUDA device."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
