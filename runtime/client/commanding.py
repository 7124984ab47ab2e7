"""Commands to an execution: sent to its owner's inbox, answered by whoever applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import Conversation, ask, watch
from stepwell.client.repeats import Repeats
from stepwell.client.waiting import deadline_of, no_such
from stepwell.core import codec
from stepwell.core.clock import Clock
from stepwell.core.errors import CommandRefused
from stepwell.core.names import check_execution_id, check_name
from stepwell.core.records import decode_outcome
from stepwell.store import queries
from stepwell.store.inbox import COMMAND_FORMAT

__all__ = ["CommandResult", "Verb", "command", "entry_fields", "signal_data"]

Verb = Literal["cancel", "retry", "signal"]

# A worker that nobody has heard of may be starting; one can't wait for it as for one that lives.
NO_WORKER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command that was not refused.

    Attributes:
        applied: True, or None while it waits in the inbox; it is not lost then.
        status: the execution's status when it was applied, or else when it was sent.
        note: what a person should know about it; may be empty.
    """

    applied: bool | None
    status: str
    note: str = ""


def signal_data(name: str, payload: object) -> bytes:
    """A signal's data in the inbox: its name and its payload, which is JSON. Raises InvalidName or PayloadError."""
    checked = check_name("signal", name)
    raw = codec.encode(payload, f"the payload of signal {checked}")
    return msgspec.json.encode({"name": checked, "payload": msgspec.Raw(raw)})


def entry_fields(
    verb: str, execution_id: str, command_id: str, data: bytes, now_ms: int
) -> tuple[tuple[str, str | bytes | int], ...]:
    """A command as it lies in an inbox."""
    return (
        ("type", verb),
        ("execution", execution_id),
        ("command", command_id),
        ("data", data),
        ("at", now_ms),
        ("v", COMMAND_FORMAT),
    )


def command(
    view: NamespaceView,
    clock: Clock,
    verb: Verb,
    execution_id: str,
    command_id: str,
    timeout: float | None,
    data: bytes = b"{}",
) -> Conversation[CommandResult]:
    """Send a command and wait for its outcome, at most `timeout` seconds.

    Whatever is repeated on the way carries the same id, so it has its effect once. Raises UnknownExecution,
    CommandRefused.
    """
    check_execution_id(execution_id)
    deadline = deadline_of(clock, timeout)
    facts = yield from view.recent()
    keys = facts.keys
    (head,) = yield from ask(queries.heads(keys, [execution_id], ["status"]))
    if "status" not in head:
        raise no_such(execution_id)
    partition = keys.partition_of(execution_id)
    fields = entry_fields(verb, execution_id, command_id, data, view.now_ms(facts))
    yield from ask(queries.send(keys, partition, fields), Repeats(within=max(0.0, deadline - clock.monotonic())))
    if not facts.workers:
        deadline = min(deadline, clock.monotonic() + NO_WORKER_SECONDS)
    outcome = yield from watch(
        keys.command_done(partition, command_id),
        queries.outcome(keys, partition, command_id),
        lambda recorded: recorded is not None,
        clock,
        deadline,
    )
    if outcome is None:
        note = "no worker is running" if not facts.workers else "no worker has applied it yet"
        status = head["status"].decode("utf-8", "replace")
        return CommandResult(None, status, f"{note}; the {verb} waits in the inbox")
    return _judged(verb, execution_id, outcome.outcome)


def _judged(verb: Verb, execution_id: str, recorded: bytes) -> CommandResult:
    try:
        outcome = decode_outcome(recorded)
    except codec.UNREADABLE:
        return CommandResult(True, "", "it has an outcome that this version can't read")
    if not outcome.applied:
        raise CommandRefused(outcome.reason or f"{verb} of {execution_id} refused")
    return CommandResult(True, outcome.status, outcome.reason)
