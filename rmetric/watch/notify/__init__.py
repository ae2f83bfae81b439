"""Tell somebody: a command, a webhook, a chat; nothing here ever holds up the watch."""

from rmetric.watch.notify.command import Command
from rmetric.watch.notify.gate import Gate
from rmetric.watch.notify.outbox import GRACE_S, Outbox, close_all
from rmetric.watch.notify.webhook import Webhook

__all__ = ["GRACE_S", "Command", "Gate", "Outbox", "Webhook", "close_all"]
