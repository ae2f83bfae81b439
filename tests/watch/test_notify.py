"""Telling somebody: what is sent, to whom, how often, and that nothing holds up the watch."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.watch import News
from rmetric.watch.notify import Command, Gate, Outbox, Webhook, close_all
from rmetric.watch.notify.outbox import Message, RefusedError, TryAgainError
from rmetric.watch.watched_log import WatchedLog
from rmetric.watch.watched_run import Silence
from tests.watch.conftest import Server, Watch, append, eventually, losses

Begin = Callable[..., Watch]
Serve = Callable[..., Server]
SECRET = "T0KEN-of-somebody"


def news(kind: str = "silent", run: str = "a", step: int = 7) -> News:
    return News(kind=kind, run=run, log="a.jsonl", step=step, sentence="no new record")  # type: ignore[arg-type]


def script(folder: Path, text: str) -> Path:
    path = folder / "tell.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# --- the command, from the log to the receiver


@pytest.mark.slow
def test_a_finding_reaches_webhook_chat_and_command(watch: Begin, serve: Serve, tmp_path: Path) -> None:
    hook, chat, told = serve(200), serve(200), tmp_path / "told"
    tell = script(tmp_path, f'cat > "{told}.json"; printf "%s|%s" "$RMETRIC_RUN" "$RMETRIC_SEVERITY" > "{told}"')
    log = tmp_path / "logs" / "run$(touch owned);`id`.jsonl"
    log.parent.mkdir()
    log.write_text(losses(0, 100))
    watched = watch(
        str(log), "--webhook", f"{hook.address}/x?token={SECRET}", "--slack", "env:CHAT", "--exec", str(tell),
        CHAT=f"{chat.address}/{SECRET}",
    )  # fmt: skip
    append(log, losses(100, 110, "NaN"))
    eventually(lambda: hook.bodies and chat.bodies and told.exists() and told.read_text(), "three messages")
    assert watched.end() == 1
    (body,) = hook.bodies
    assert (body["event"], body["severity"], body["step"]) == ("finding", "error", 100)
    assert body["causes"] and body["advice"]
    assert list(chat.bodies[0]) == ["text"]
    assert told.read_text() == f"{log.stem}|error"
    assert json.loads(Path(f"{told}.json").read_text())["run"] == log.stem
    assert not list(tmp_path.rglob("owned"))
    assert SECRET not in watched.output
    assert watched.output.count("1 delivered") == 3


def test_what_was_there_before_the_watch_is_printed_and_not_sent(watch: Begin, serve: Serve, tmp_path: Path) -> None:
    server = serve(200)
    (tmp_path / "old.jsonl").write_text(losses(0, 100) + losses(100, 105, "NaN"))
    watched = watch(str(tmp_path), "--webhook", server.address)
    watched.wait_for("old: error")
    (tmp_path / "new.jsonl").write_text(losses(0, 100) + losses(100, 105, "NaN"))
    eventually(lambda: server.bodies, "the new one")
    watched.end()
    assert [body["run"] for body in server.bodies] == ["new"]


@pytest.mark.long
def test_a_hanging_server_never_holds_up_the_watch(watch: Begin, serve: Serve, tmp_path: Path) -> None:
    server, log = serve(0), tmp_path / "run.jsonl"
    watched = watch(str(log), "--webhook", f"{server.address}/{SECRET}", "--silent-after", "0.3", "--cooldown", "0.01")
    log.write_text(losses(0, 10))
    watched.wait_for("SILENT")
    eventually(lambda: server.bodies, "the first message")
    for step in (10, 20, 30):
        append(log, losses(step, step + 10))
        watched.wait_for("SILENT", times=step // 10 + 1)
    assert watched.end() == 0
    assert "0 delivered" in watched.output
    assert SECRET not in watched.output


@pytest.mark.slow
def test_the_summary_comes_before_the_wait_for_what_is_under_way(watch: Begin, tmp_path: Path) -> None:
    begun, released, log = tmp_path / "begun", tmp_path / "released", tmp_path / "run.jsonl"
    tell = script(tmp_path, f'touch "{begun}"; while [ ! -e "{released}" ]; do sleep 0.05; done; exit 3')
    log.write_text(losses(0, 100))
    watched = watch(str(log), "--exec", str(tell))
    append(log, losses(100, 110, "NaN"))
    eventually(begun.exists, "the message to be under way")
    watched.interrupt()
    watched.wait_for("110 records")
    released.touch()
    assert watched.ended() == 1
    assert "not delivered (exit status 3)" in watched.output  # the command was still waited for


@pytest.mark.slow
def test_a_second_ctrl_c_waits_for_nothing_and_loses_no_summary(watch: Begin, serve: Serve, tmp_path: Path) -> None:
    server, log = serve(0), tmp_path / "run.jsonl"
    log.write_text(losses(0, 100))
    watched = watch(str(log), "--webhook", server.address)
    append(log, losses(100, 110, "NaN"))
    eventually(lambda: server.bodies, "the message to be under way")
    watched.interrupt()
    watched.wait_for("110 records")
    assert watched.end() == 1
    assert "0 delivered, 1 not" in watched.output


@pytest.mark.parametrize(
    "options",
    [
        ["--webhook", f"ftp://host/{SECRET}"],
        ["--webhook", f"https://somebody:{SECRET}@host/"],
        ["--slack", f"https://host:{SECRET}/"],
        ["--webhook", "env:NOT_SET_ANYWHERE"],
        ["--exec", "no-such-program-anywhere --x"],
        ["--exec", "'"],
        ["--format", "unheard-of"],
    ],
)
def test_bad_options_are_one_line_without_secrets(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rmetric.commands import main

    assert main(["watch", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert SECRET not in error


# --- its parts


def deliver_all(channel: Any, messages: int = 1, **options: Any) -> tuple[Outbox, list[str]]:
    """An outbox that has been handed some messages and has dealt with them."""
    complaints: list[str] = []
    outbox = Outbox(channel, complaints.append, first_wait_s=0.01, **options)
    for number in range(messages):
        outbox.put(news(step=number).to_dict())
    eventually(lambda: outbox.delivered + outbox.given_up >= messages, "all messages")
    close_all([outbox])
    return outbox, complaints


def test_a_server_that_fails_first_is_tried_again(serve: Serve) -> None:
    server = serve(503, 429, 200)
    outbox, complaints = deliver_all(Webhook(f"{server.address}/{SECRET}"))
    assert (outbox.delivered, len(server.bodies), complaints) == (1, 3, [])


def test_a_server_that_always_fails_is_given_up(serve: Serve) -> None:
    server = serve(500)
    outbox, complaints = deliver_all(Webhook(f"{server.address}/{SECRET}"), attempts=4)
    assert (outbox.given_up, len(server.bodies)) == (1, 4)
    assert complaints == [
        "webhook at 127.0.0.1: a message was not delivered (the server answers 500 Internal Server Error, 4 attempts)"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("status", [302, 401, 404])
def test_a_refusal_is_not_tried_again(status: int, serve: Serve) -> None:
    server = serve(status)
    outbox, complaints = deliver_all(Webhook(f"{server.address}/{SECRET}"))
    assert (outbox.given_up, len(server.bodies), len(complaints)) == (1, 1, 1)
    assert str(status) in complaints[0]
    assert SECRET not in complaints[0]


@pytest.mark.slow
def test_nobody_listens(serve: Serve) -> None:
    server = serve(200)
    server.close()
    outbox, complaints = deliver_all(Webhook(f"{server.address}/{SECRET}"), attempts=2)
    assert outbox.given_up == 1
    assert complaints == ["webhook at 127.0.0.1: a message was not delivered (Connection refused, 2 attempts)"]


def test_the_queue_is_bounded_and_the_oldest_are_given_up(serve: Serve) -> None:
    server, complaints = serve(0), []
    outbox = Outbox(Webhook(server.address), complaints.append, capacity=3)
    outbox.put(news().to_dict())
    eventually(lambda: server.bodies, "the first one to be under way")
    for step in range(10):
        outbox.put(news(step=step).to_dict())
    close_all([outbox], grace_s=0.0)
    assert (outbox.delivered, outbox.given_up) == (0, 11)
    assert complaints == ["webhook at 127.0.0.1: too many messages wait; the oldest are given up"]


def test_the_end_is_told_to_all_before_any_is_waited_for() -> None:
    class Last:
        name = "last"

        def deliver(self, message: Message) -> None:
            pass

    class First(Last):
        def deliver(self, message: Message) -> None:
            last._thread.join()
            was_left.append(first._closing.is_set())

    was_left: list[bool] = []

    last = Outbox(Last(), lambda _: None)
    first = Outbox(First(), lambda _: None)
    first.put(news().to_dict())
    close_all([first, last])
    assert was_left == [False]


def test_each_message_counts_once_when_the_end_interrupts_a_wait() -> None:
    class Failing:
        name = "failing"
        attempts = 0

        def deliver(self, message: Message) -> None:
            self.attempts += 1
            raise TryAgainError("no")

    channel = Failing()
    outbox = Outbox(channel, lambda _: None, first_wait_s=60.0)
    outbox.put(news(step=1).to_dict())
    eventually(lambda: channel.attempts, "the first attempt")
    outbox.put(news(step=2).to_dict())
    close_all([outbox], grace_s=0.0)
    outbox._thread.join(5.0)
    assert (outbox.delivered, outbox.given_up, channel.attempts) == (0, 2, 2)


@pytest.mark.parametrize("line", ["no-such-program -x", ""])
def test_a_program_that_is_not_there_is_named(line: str) -> None:
    with pytest.raises(UserError, match=f"there is no program '{line.partition(' ')[0]}'; give its path"):
        Command(line)


def test_a_command_that_fails_or_hangs(tmp_path: Path) -> None:
    assert deliver_all(Command(str(script(tmp_path, "exit 3"))))[1] == [
        "command tell.sh: a message was not delivered (exit status 3)"
    ]
    with pytest.raises(RefusedError, match="was ended"):
        Command("sleep 600", timeout_s=0.1).deliver(news().to_dict())


def test_what_a_command_reads_is_a_line_of_json_a_message(tmp_path: Path) -> None:
    outbox, _ = deliver_all(Command(f"tee -a {tmp_path / 'alerts.jsonl'}"), messages=3)
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    assert outbox.delivered == len([json.loads(line) for line in lines]) == 3


def test_a_command_that_does_not_read_its_input() -> None:
    outbox, complaints = deliver_all(Command("true"), messages=5)
    assert (outbox.delivered, complaints) == (5, [])


def test_a_chat_cannot_be_made_to_call_everybody(serve: Serve) -> None:
    server = serve(200)
    channel = Webhook(server.address, text_only=True)
    deliver_all(channel)
    channel.deliver(news(run="<!channel> & co").to_dict())
    assert "&lt;!channel&gt; &amp; co" in server.bodies[-1]["text"]


# --- what is sent at all


def test_more_of_the_same_waits_for_the_cooldown_and_is_counted() -> None:
    gate = Gate(cooldown_s=100.0)
    assert gate.admit(news(), 0.0) == news().text
    assert [gate.admit(news(), now) for now in (10.0, 99.0)] == [None, None]
    assert gate.admit(news(run="b"), 20.0) == news(run="b").text
    assert gate.admit(news(), 101.0) == f"{news().text} (2 more like it since the last message)"
    assert gate.withheld == 2


def test_what_is_too_mild_is_not_sent_but_the_end_of_a_silence_is() -> None:
    gate = Gate()
    assert gate.admit(news("goes on"), 0.0) is None
    assert gate.admit(news("ended"), 0.0) is None
    assert gate.admit(news("silent"), 1.0)
    assert gate.admit(news("goes on"), 2.0)
    assert Gate(least="error").admit(news("silent"), 0.0) is None


def test_the_end_of_a_silence_is_told_within_the_cooldown_of_the_one_before() -> None:
    gate = Gate(cooldown_s=600.0)
    kinds = ("silent", "goes on", "silent", "goes on", "goes on", "silent")
    times = (0.0, 300.0, 650.0, 700.0, 710.0, 720.0)
    sent = [gate.admit(news(kind), now) is not None for kind, now in zip(kinds, times, strict=True)]
    assert sent == [True, True, True, True, False, False]


def test_what_was_withheld_is_sent_when_the_cooldown_ends_if_it_still_holds() -> None:
    gate = Gate(cooldown_s=100.0)
    for run in ("dead", "alive"):
        for now, kind in enumerate(("silent", "goes on", "silent")):
            gate.admit(news(kind, run), float(now))
    gate.admit(news("goes on", "alive"), 50.0)
    assert gate.due(99.0) == []
    assert [(item.run, text) for item, text in gate.due(100.0)] == [("dead", news(run="dead").text)]
    assert gate.due(101.0) == []
    assert gate.withheld == 1


def test_a_run_that_goes_on_in_its_next_checkpoint_is_no_longer_silent(tmp_path: Path) -> None:
    first, second = (tmp_path / folder / "trainer_state.jsonl" for folder in ("checkpoint-10", "checkpoint-20"))
    log, gate, sent = WatchedLog(first, silent_after_s=10.0), Gate(), []
    for now, path, steps in ((0.0, first, 10), (20.0, first, 10), (30.0, second, 20)):
        path.parent.mkdir(exist_ok=True)
        path.write_text(losses(0, steps))
        log.move_to(path)
        sent += [one.name for one in log.poll(now)[1] if gate.admit(one, now)]
    assert sent == ["SILENT", "GOES_ON"]


def test_portions_of_one_look_are_no_interval() -> None:
    silence = Silence()
    for now in (0.0, 0.0, 0.0, 0.0, 300.0, 600.0):
        silence.grew(now)
    assert silence.usual_s is None and not silence.begins(700.0)
    silence.grew(900.0)
    assert silence.usual_s == 300.0
