"""POST of a message to a web address: as JSON with all there is, or as the ``{"text": …}`` that chats take."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from rmetric import __version__
from rmetric.errors import UserError
from rmetric.watch.notify.outbox import Message, RefusedError, TryAgainError

TIMEOUT_S = 10.0
"""Longest silence of the server."""
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which a later attempt may succeed."""
FROM_ENVIRONMENT = "env:"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for a refusal: the message goes where the user said, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class Webhook:
    """One web address. No message and no error of this class holds more of it than the host.

    Parameters
    ----------
    address
        ``https://…`` or ``http://…``, or ``env:NAME`` for an environment variable that holds it.
    text_only
        Send ``{"text": …}`` alone, escaped as Slack asks, in place of all there is.

    Raises
    ------
    UserError
        If it is no such address; the message does not repeat it.
    """

    def __init__(self, address: str, *, text_only: bool = False) -> None:
        self._address = _resolved(address)
        self._text_only = text_only
        self.name = f"webhook at {urlsplit(self._address).hostname}"

    def deliver(self, message: Message) -> None:
        content = {"text": _escaped(message["text"])} if self._text_only else dict(message)
        headers = {"Content-Type": "application/json", "User-Agent": f"rmetric/{__version__}"}
        body = json.dumps(content, allow_nan=False).encode()
        try:
            with _OPENER.open(urllib.request.Request(self._address, body, headers), timeout=TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            status = f"the server answers {error.code} {http.client.responses.get(error.code, '')}".rstrip()
            error.close()
            raise (TryAgainError if error.code in AGAIN else RefusedError)(status) from None
        except urllib.error.URLError as error:
            raise TryAgainError(_reason(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise TryAgainError(_reason(error)) from None


def _reason(error: object) -> str:
    """What went wrong, without what the error was told: that may be the address."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    named = getattr(error, "strerror", None)
    return str(named) if isinstance(named, str) and "://" not in named else type(error).__name__


def _escaped(text: str) -> str:
    """Text without the marks by which a chat calls everybody or makes a link.

    >>> _escaped("run <!channel>")
    'run &lt;!channel&gt;'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _resolved(address: str) -> str:
    if address.startswith(FROM_ENVIRONMENT):
        name = address.removeprefix(FROM_ENVIRONMENT)
        if name not in os.environ:
            raise UserError(f"the environment has no {name}; set it to the address of the webhook")
        address = os.environ[name].strip()
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or not address.isascii() or any(character.isspace() for character in address):
        raise UserError("a webhook must be an address such as https://host/path, or env:NAME")
    if parts.username is not None:
        raise UserError("a webhook's address must hold no user and password; put a token into its path")
    return address
