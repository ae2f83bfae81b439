"""A small transformer in plain torch, whose step takes milliseconds on one thread."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.corpus import BYTES


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a transformer; the default has some 45,000 parameters."""

    width: int = 32
    layers: int = 2
    heads: int = 4
    vocabulary: int = BYTES
    context: int = 96
    """Longest sequence, tokens."""
    dropout: float = 0.0
    causal: bool = True
    """Whether a token sees only those before it."""


class Attention(nn.Module):
    """Self-attention of several heads."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.into, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Mix of the tokens; (rows, tokens, width) to the same."""
        query, key, value = self.into(hidden).unflatten(-1, (3, self.size.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.size.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=self.size.causal
        )
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Sequential):
    """The two layers that follow the attention."""

    def __init__(self, size: Size) -> None:
        super().__init__(
            nn.Linear(size.width, 4 * size.width), nn.GELU(approximate="tanh"), nn.Linear(4 * size.width, size.width)
        )


class Block(nn.Module):
    """Attention and feed-forward, each behind a normalisation and beside a residual path, as in GPT-2."""

    def __init__(self, size: Size, feed_forward: nn.Module | None = None) -> None:
        super().__init__()
        self.before, self.attention = nn.LayerNorm(size.width), Attention(size)
        self.between, self.feed_forward = nn.LayerNorm(size.width), feed_forward or FeedForward(size)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """The next layer's input; (rows, tokens, width) to the same."""
        hidden = hidden + self.dropout(self.attention(self.before(hidden)))
        return hidden + self.dropout(self.feed_forward(self.between(hidden)))


class Transformer(nn.Module):
    """Tokens in, logits of a token at each place out; GPT-2 if causal, BERT if not."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.last, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, size.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.05)

    def features(self, ids: Tensor) -> Tensor:
        """Output of the last layer, (rows, tokens, width), of ids, (rows, tokens)."""
        places = torch.arange(ids.shape[1], device=ids.device)
        out: Tensor = self.last(self.blocks(self.tokens(ids) + self.places(places)))
        return out

    def forward(self, ids: Tensor) -> Tensor:
        """Logits, (rows, tokens, vocabulary)."""
        logits: Tensor = self.head(self.features(ids))
        return logits
