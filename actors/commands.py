"""Commands as they come in an inbox: garbage is told from work here, with a reason that a person can read."""

from __future__ import annotations

import sys

import msgspec

from stepwell.actors.messages import CommandMail, Doorbell, Mail
from stepwell.core import codec
from stepwell.core.errors import InvalidName, PayloadError, StepwellError
from stepwell.core.formats import entry_format
from stepwell.core.inputs import CancelAsked, Command, RetryAsked, SignalSent
from stepwell.core.names import check_execution_id, check_name
from stepwell.store.inbox import Entry

COMMAND_ID_CHARACTERS_MAX = 128
FLOW_CHARACTERS_MAX = 100
TIME_DIGITS_MAX = 16


class NoSuchCommand(StepwellError):
    """An inbox entry that is no command this version knows."""


class _SignalData(msgspec.Struct):
    name: str
    payload: msgspec.Raw = msgspec.Raw(b"null")


_decode_signal = msgspec.json.Decoder(_SignalData).decode


def read_entry(entry: Entry) -> tuple[str, Mail]:
    """The execution that an inbox entry is for, and the mail for it. Its format must be one that we read.

    Raises:
        NoSuchCommand: fields are missing or malformed; the message says which.
    """
    kind = _text(entry, "type")
    try:
        execution_id = check_execution_id(_text(entry, "execution"))
    except InvalidName as error:
        raise NoSuchCommand(str(error)) from error
    if entry_format(entry.fields) is None:
        raise NoSuchCommand(f"field 'v' of the entry is no format: {entry.fields['v'][:20]!r}")
    if kind == "start":
        return execution_id, Doorbell(entry.entry_id, _made_at(entry))
    command_id = _text(entry, "command")
    if not command_id.isascii() or not command_id.isprintable() or len(command_id) > COMMAND_ID_CHARACTERS_MAX:
        raise NoSuchCommand(
            f"expected a command id of 1 to {COMMAND_ID_CHARACTERS_MAX} plain characters, got {command_id[:40]!r}"
        )
    data = entry.fields.get("data", b"")
    command_input(kind, command_id, data, 0)
    return execution_id, CommandMail(entry.entry_id, command_id, kind, data)


def flow_of(entry: Entry) -> str:
    """The flow that a doorbell names, for taking turns; '' where it names none that is one."""
    raw = entry.fields.get("flow", b"")
    return sys.intern(raw.decode()) if len(raw) <= FLOW_CHARACTERS_MAX and raw.isascii() else ""


def _made_at(entry: Entry) -> int:
    """When the entry was made (ms); 0 where it tells no such time."""
    raw = entry.fields.get("at", b"")
    return int(raw) if len(raw) <= TIME_DIGITS_MAX and raw.isdigit() else 0


def command_input(kind: str, command_id: str, data: bytes, now: int) -> Command:
    """The core's event for a command; `data` is JSON.

    Raises:
        NoSuchCommand: an unknown type, or data that does not fit it.
    """
    if kind == "cancel":
        return CancelAsked(now, command_id)
    if kind == "retry":
        return RetryAsked(now, command_id)
    if kind == "signal":
        try:
            signal = _decode_signal(data)
            payload = codec.check_foreign(bytes(signal.payload), "its payload")
            return SignalSent(now, command_id, check_name("signal", signal.name), payload)
        except (*codec.UNREADABLE, InvalidName, PayloadError) as error:
            raise NoSuchCommand(f"signal {command_id} can't be read: {error}") from error
    raise NoSuchCommand(f"no command is of type {kind[:40]!r}; there are signal, cancel and retry")


def _text(entry: Entry, name: str) -> str:
    raw = entry.fields.get(name)
    if not raw:
        raise NoSuchCommand(f"the entry has no field {name!r}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise NoSuchCommand(f"field {name!r} of the entry is no text") from error
