"""``rmetric watch PATH``: follow logs that grow, say what goes wrong, and notify somebody."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmetric.cli import positive_number
from rmetric.commands.logs import FOUND, UNUSABLE, add_format, reading
from rmetric.diagnosis.finding import SEVERITIES

if TYPE_CHECKING:
    from rmetric.watch import News, Watcher
    from rmetric.watch.notify import Gate, Outbox

EPILOG = """\
examples:
  rmetric watch run.jsonl
  rmetric watch output_dir/ --slack env:SLACK_WEBHOOK --cooldown 1800
  rmetric watch logs/ --exec "notify-send rmetric" --webhook https://example.org/hooks/training

PATH need not be there yet, and may be rotated or cut. What its logs hold when the watch begins is printed, not sent.
The command of --exec finds RMETRIC_TEXT, RMETRIC_RUN, RMETRIC_STEP, RMETRIC_NAME, RMETRIC_SEVERITY, RMETRIC_LOG and
RMETRIC_EVENT in its environment, and all there is as JSON on its standard input. Ctrl-C ends the watch: a last look,
a summary, and some seconds for messages that are under way; a second one waits for neither.
Exit status: 0 nothing found, 1 findings, 2 no findings in a log of which more than a tenth cannot be used.
"""


def add_parser(commands: Any, summary: str) -> None:
    p = commands.add_parser("watch", help=summary, description=f"Watch {summary}.", epilog=EPILOG, examples=True)
    p.add_argument("path", metavar="PATH", help="a log, or a folder into which runs write")
    add_format(p)
    p.add_argument(
        "--interval", type=positive_number, default=1.0, metavar="S", help="seconds between two checks for new records"
    )
    p.add_argument(
        "--silent-after", type=positive_number, metavar="S",
        help="seconds without a record after which a run is silent (default: 10 usual intervals, at least 60 s)",
    )  # fmt: skip
    told = p.add_argument_group("notifications")
    told.add_argument(
        "--exec",
        action="append",
        default=[],
        metavar="COMMAND",
        help="run COMMAND for each notification, without a shell",
    )
    told.add_argument(
        "--webhook",
        action="append",
        default=[],
        metavar="URL",
        help="POST each notification as JSON to URL, or to the URL in the environment variable NAME: env:NAME",
    )
    told.add_argument("--slack", action="append", default=[], metavar="URL", help='POST {"text": …} to URL or env:NAME')
    told.add_argument(
        "--tell", choices=SEVERITIES, default="warning", metavar="SEVERITY",
        help="lowest severity that is sent: note, warning or error",
    )  # fmt: skip
    told.add_argument(
        "--cooldown", type=positive_number, default=600.0, metavar="S",
        help="seconds for which repeats of a finding of the same run are not sent",
    )  # fmt: skip
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Watch until Ctrl-C or a signal to end, then sum up."""
    from rmetric.importers.find import refuse_empty
    from rmetric.watch import Watcher
    from rmetric.watch.notify import GRACE_S, Gate, close_all

    refuse_empty([args.path])
    path, outboxes = Path(args.path), _outboxes(args)
    gate = Gate(args.cooldown, args.tell)
    teller = _Teller(outboxes, gate)
    watcher = Watcher(path, teller.tell, interval_s=args.interval, silent_after_s=args.silent_after, **reading(args))

    def after_look() -> None:
        teller.send_due()
        teller.remark(watcher.remarks)

    try:
        watcher.look(time.monotonic())
        seen = f"runs so far: {len(watcher.runs)}" if path.exists() else "not there yet"
        print(f"watching {path} ({seen}); Ctrl-C ends", flush=True)
        for problem in watcher.problems[:1]:
            print(f"note: {problem}; it is looked at again as it grows", file=sys.stderr, flush=True)
        watcher.watch(after_look)
    except KeyboardInterrupt:
        grace_s = GRACE_S
        try:
            watcher.look_at_all_there_is(time.monotonic())
            after_look()
        except KeyboardInterrupt:  # a second one waits no more
            grace_s = 0.0
        print(_summary(watcher), flush=True)
        with suppress(KeyboardInterrupt):
            close_all(outboxes, grace_s)
    print(_deliveries(gate, outboxes), end="")
    return _status(watcher)


class _Teller:
    """Prints what a watch finds, and sends what the gate admits."""

    def __init__(self, outboxes: Sequence[Outbox], gate: Gate) -> None:
        self._outboxes, self._gate = outboxes, gate
        self._remarked = set[str]()

    def tell(self, news: News, is_old: bool) -> None:
        """Print news; send them unless the log was there with them before the watch began."""
        print(f"{time.strftime('%H:%M:%S')}  {news.text}", flush=True)
        text = None if is_old else self._gate.admit(news, time.monotonic())
        if text is not None:
            self._send(news, text)

    def send_due(self) -> None:
        """Send what was withheld for a cooldown that is over."""
        for news, text in self._gate.due(time.monotonic()):
            self._send(news, text)

    def remark(self, remarks: Iterable[str]) -> None:
        """Print those that were not printed before."""
        for remark in remarks:
            if remark not in self._remarked:
                print(f"note: {remark}", file=sys.stderr, flush=True)
                self._remarked.add(remark)

    def _send(self, news: News, text: str) -> None:
        for outbox in self._outboxes:
            outbox.put(news.to_dict() | {"text": text})


def _outboxes(args: argparse.Namespace) -> list[Outbox]:
    from rmetric.watch.notify import Command, Outbox, Webhook

    channels: list[Any] = [Command(line) for line in args.exec]
    channels += [Webhook(address) for address in args.webhook]
    channels += [Webhook(address, text_only=True) for address in args.slack]
    return [Outbox(channel, _complain) for channel in channels]


def _complain(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def _summary(watcher: Watcher) -> str:
    lines = ["", *(run.diagnosis.in_brief for run in watcher.runs), *watcher.unread]
    if not watcher.runs:
        lines += [f"no records were seen{''.join(f'; {problem}' for problem in watcher.problems[:3])}"]
    return "\n".join(lines)


def _status(watcher: Watcher) -> int:
    diagnoses = [run.diagnosis for run in watcher.runs]
    if any(diagnosis.findings for diagnosis in diagnoses):
        return FOUND
    return UNUSABLE if watcher.unread or any(diagnosis.largely_unread for diagnosis in diagnoses) else 0


def _deliveries(gate: Gate, outboxes: list[Outbox]) -> str:
    lines = []
    for outbox in outboxes:
        lost = f", {outbox.given_up} not" if outbox.given_up else ""
        lines.append(f"{outbox.channel.name}: {outbox.delivered} delivered{lost}")
    if gate.withheld:
        lines.append(f"{gate.withheld} more of the same were not sent (--cooldown)")
    return "".join(f"{line}\n" for line in lines)
