"""The exception for mistakes that the user can correct."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input; its message is one line that says what to do. Scripts print it as ``error: …`` and exit with 2."""
