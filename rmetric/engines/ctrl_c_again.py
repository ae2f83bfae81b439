"""Hear Ctrl-C again: imported last by the process that others are forked from, which was started without.

That process then ignores Ctrl-C by itself. Those that are forked from it hear it as any other process does, until they
say otherwise; one that came while it was blocked is dropped.
"""

import signal

_before = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.signal(signal.SIGINT, _before)
