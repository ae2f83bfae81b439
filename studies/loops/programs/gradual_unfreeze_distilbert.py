"""A tiny DistilBERT, pretrained for a moment as a masked language model, then fine-tuned as a classifier.
The head comes first, then layer after layer joins by add_param_group, each with a smaller learning rate."""

from typing import Any

import torch
from torch.nn import functional
from transformers import DistilBertConfig, DistilBertForMaskedLM, DistilBertForSequenceClassification

import rmetric

VOC, LEN, CLASSES, MASK, CLS = 40, 14, 4, 1, 2


class Corpus:
    """Words come in phrases of two; a class prefers some of the phrases, and ten percent of labels are random."""

    def __init__(self, g):
        self.g = g
        self.phrases = torch.randint(3, VOC, (50, 2), generator=g)
        self.like = torch.softmax(1.3 * torch.randn(CLASSES, 50, generator=g), -1)

    def draw(self, n):
        y = torch.randint(CLASSES, (n,), generator=self.g)
        which = torch.multinomial(self.like[y], (LEN - 1) // 2 + 1, replacement=True, generator=self.g)
        words = self.phrases[which].flatten(1)[:, : LEN - 1]
        noise = torch.rand(n, generator=self.g) < 0.1
        y = torch.where(noise, torch.randint(CLASSES, (n,), generator=self.g), y)
        return torch.cat([torch.full((n, 1), CLS), words], 1), y


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    corpus = Corpus(torch.Generator().manual_seed(seed))
    cfg = DistilBertConfig(
        vocab_size=VOC,
        max_position_embeddings=LEN,
        n_layers=2,
        n_heads=2,
        dim=32,
        hidden_dim=64,
        dropout=0.05,
        attention_dropout=0.05,
        seq_classif_dropout=0.1,
    )
    cfg.num_labels = CLASSES
    lm = DistilBertForMaskedLM(cfg)
    pre = torch.optim.AdamW(lm.parameters(), lr=2e-3)
    for _ in range(150):  # not watched
        ids, _y = corpus.draw(24)
        hide = torch.rand(ids.shape) < 0.2
        hide[:, 0] = False
        out = lm(input_ids=ids.masked_fill(hide, MASK), labels=ids.masked_fill(~hide, -100))
        pre.zero_grad()
        out.loss.backward()
        pre.step()

    model = DistilBertForSequenceClassification(cfg)
    model.distilbert.load_state_dict(lm.distilbert.state_dict())
    model.distilbert.requires_grad_(False)
    top = 2e-3
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=top, weight_decay=0.01)
    body = model.distilbert
    stages = [(0.10, body.transformer.layer[1]), (0.20, body.transformer.layer[0]), (0.30, body.embeddings)]
    waiting = [(int(share * steps), module, top / 2.5 ** (k + 1)) for k, (share, module) in enumerate(stages)]
    val = corpus.draw(300)
    with rmetric.TrainingMonitor(model, opt, **watch) as monitor:
        for step in range(steps):
            while waiting and step >= waiting[0][0]:
                _, module, lr = waiting.pop(0)
                module.requires_grad_(True)
                opt.add_param_group({"params": list(module.parameters()), "lr": lr})
            if step == int(0.8 * steps):
                for g in opt.param_groups:
                    g["lr"] *= 0.2
            ids, y = corpus.draw(24)
            loss = functional.cross_entropy(model(input_ids=ids).logits, y)
            loss.backward()
            monitor.step(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            if step % max(1, steps // 10) == 0 or step == steps - 1:
                model.eval()
                with torch.no_grad():
                    z = model(input_ids=val[0]).logits
                    v = functional.cross_entropy(z, val[1]).item()
                model.train()
                monitor.validation(v)
