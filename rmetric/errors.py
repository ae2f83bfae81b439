"""The one exception that means: the user can mend this."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input; its message is one line that says what to do. Scripts print it as ``error: …`` and exit with 2."""
