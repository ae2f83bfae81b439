"""Live runs need torch and transformers."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra 'live'")
pytest.importorskip("transformers", reason="needs the extra 'live'")
