"""A real browser for pages: Debian's chromium, driven by playwright. Without either, these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra 'dev')")
    if CHROMIUM is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file in a window of its own; at the end nothing may have been requested or complained about."""
    contexts, requests, complaints = [], [], []

    def opened(path: Path, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert {url for url in requests if not url.startswith(("file:", "data:"))} == set()
    assert complaints == []


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., Path]:
    """Writes a log of a run that learns; its loss is ``worse`` from ``since`` on."""

    def written(name: str, *, records: int = 400, worse: float = 0.0, since: int = 300, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        step = np.arange(records)
        loss = 2.0 + 2.0 * np.exp(-step / 80) + 0.01 * rng.standard_normal(records) + worse * (step >= since)
        path = tmp_path / name
        lines = [
            orjson.dumps(
                {"step": int(at), "loss": float(value), "grad_norm": float(norm), "lr": 1e-3}
                | ({"val_loss": float(value) + 0.1} if at % 20 == 0 else {})
            )
            for at, value, norm in zip(step, loss, 1.0 + 0.1 * rng.random(records), strict=True)
        ]
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    return written
