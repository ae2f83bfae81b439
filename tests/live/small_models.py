"""A tiny model and a tiny tokenizer of its own, saved as transformers saves them. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from rmetric.live.models import tiny_model

WORDS = ["the", "sea", "was", "grey", "and", "quiet", "when", "boat", "came", "in", "rope", "bread", "rain", "bell"]
PROSE = " ".join(WORDS) + " .\n"
END = "<end>"
VOCABULARY = len(WORDS) + 3


def word_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """One token a word; ``eos_token=END`` and the like as given."""
    words = {word: index for index, word in enumerate(["<unknown>", END, *WORDS, "."])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unknown>", **special)


def save_model(folder: Path, *, vocabulary: int = 32, **special: str) -> Path:
    """A folder with ``model.safetensors``, ``config.json`` and a tokenizer."""
    tiny_model("tiny-llama", seed=3, vocabulary=vocabulary).save_pretrained(folder)
    word_tokenizer(**special).save_pretrained(folder)
    return folder
