"""A small transformer that writes tokens: the policy of three agents, with a head for values if one is asked for."""

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, vocabulary, length, width=32, value=False):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 2, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        self.value = nn.Linear(width, 1) if value else None
        nn.init.normal_(self.tokens.weight, std=0.3)
        nn.init.normal_(self.places.weight, std=0.3)

    def forward(self, x):
        length = x.shape[1]
        h = self.tokens(x) + self.places.weight[:length]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        for block in self.blocks:
            h = block(h, src_mask=mask)
        h = self.norm(h)
        return self.head(h) if self.value is None else (self.head(h), self.value(h).squeeze(-1))

    @torch.no_grad()
    def sample(self, x, more):
        for _ in range(more):
            x = torch.cat([x, torch.multinomial(self(x)[:, -1].softmax(-1), 1)], 1)
        return x

    def log_probs(self, x):
        """Of each token but the first, given those before it."""
        return self(x[:, :-1]).log_softmax(-1).gather(2, x[:, 1:, None]).squeeze(2)
