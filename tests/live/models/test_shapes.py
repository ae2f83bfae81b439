"""The built-in shapes are those of the published models: built without memory, their parameters are counted."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from rmetric.errors import UserError
from rmetric.live.models.pretrained import config_of_shape
from rmetric.live.models.shapes import SHAPES, shape_named

PUBLISHED = {"qwen2.5-3b": 3.09e9, "llama-3.2-1b": 1.23e9, "gpt2-large": 774e6, "qwen3-0.6b": 0.6e9, "lfm2-700m": 742e6}
"""What reports and model cards print, to their last digit."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_parameters_of_the_published_model(name: str) -> None:
    shape = SHAPES[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of_shape(shape))
    assert sum(item.numel() for item in model.parameters()) == shape.parameters
    assert shape.parameters == pytest.approx(PUBLISHED[name], rel=0.01)
    text = model.config.get_text_config()
    assert (text.num_hidden_layers, text.hidden_size, text.vocab_size) == (shape.layers, shape.hidden, shape.vocabulary)


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-3B", "qwen2.5-3b", "QWEN2.5-3B"])
def test_a_shape_is_found_under_the_name_of_the_hub(name: str) -> None:
    assert shape_named(name).hub_name == "Qwen/Qwen2.5-3B"


def test_an_unknown_shape_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"did you mean 'qwen3-0\.6b'"):
        shape_named("Qwen/Qwen3-0.5B")
