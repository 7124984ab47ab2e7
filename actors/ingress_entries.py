"""Entries of the ingress: what they ask for, in the same terms as a client's requests; garbage gets a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from stepwell.client.commanding import signal_data
from stepwell.client.starting import Start, input_hash, prepare
from stepwell.core import codec
from stepwell.core.errors import PayloadError, StepwellError, UsageError
from stepwell.core.formats import entry_format
from stepwell.core.names import check_execution_id, check_name
from stepwell.core.tracing import bounded_state, read_traceparent
from stepwell.store.ingress import IngressEntry

__all__ = ["Asked", "NotTaken", "ToCommand", "ToStart", "read_ingress"]

VERBS: Final = ("signal", "cancel", "retry")
NAME_BYTES_MAX: Final = 1000
# What JSON escapes may add to a payload of the allowed size.
JSON_BYTES_MAX: Final = 2 * codec.PAYLOAD_BYTES_MAX


class NotTaken(StepwellError):
    """An entry that asks for nothing that can be done; the message says why."""


class ToStart(msgspec.Struct):
    """Start an execution."""

    entry_id: str
    start: Start


class ToCommand(msgspec.Struct):
    """Send a command to an execution."""

    entry_id: str
    verb: str
    execution_id: str
    command_id: str
    data: bytes


Asked: TypeAlias = ToStart | ToCommand


def read_ingress(entry: IngressEntry) -> Asked:
    """What an entry asks for, if its format is one that we read.

    Ids that it does not give derive from its own: taken in twice it has its effect once.

    Raises:
        NotTaken: fields are missing, malformed or too large; the message says which.
    """
    fields = entry.fields
    if entry_format(fields) is None:
        raise NotTaken(f"field 'v' of the entry is no format: {fields['v'][:20]!r}")
    verb = _text(fields, "type")
    derived = f"in-{entry.entry_id}"
    try:
        if verb == "start":
            return ToStart(entry.entry_id, _start(fields, derived))
        if verb in VERBS:
            execution_id = check_execution_id(_text(fields, "execution"))
            data = signal_data(_text(fields, "name"), _json(fields, "payload", None)) if verb == "signal" else b"{}"
            return ToCommand(entry.entry_id, verb, execution_id, derived, data)
    except (UsageError, PayloadError) as error:
        raise NotTaken(str(error)) from error
    raise NotTaken(f"no entry is of type {verb[:40]!r}; there are start, {', '.join(VERBS)}")


def _start(fields: Mapping[str, bytes], derived: str) -> Start:
    given = _text(fields, "id") if "id" in fields else None
    flow = check_name("flow", _text(fields, "flow"))
    value = _json(fields, "input", {})
    if value is not None and not isinstance(value, dict):
        raise NotTaken(
            f"the input of flow {flow} must be a JSON object with the names of its parameters,"
            f" got {type(value).__name__}"
        )
    attributes = _json(fields, "attributes", None)
    if attributes is not None and not isinstance(attributes, dict):
        raise NotTaken(f"the attributes must be a JSON object, got {type(attributes).__name__}")
    started = prepare(flow, value, given, lambda: derived, attributes)
    input_hash(started.flow, started.input)
    trace = fields.get("traceparent", b"").decode(errors="replace")
    if read_traceparent(trace) is None:
        return started
    state = fields.get("tracestate", b"")
    return replace(started, trace=trace, trace_state=bounded_state(state.decode(errors="replace")))


def _text(fields: Mapping[str, bytes], name: str) -> str:
    raw = fields.get(name)
    if not raw:
        raise NotTaken(f"the entry has no field {name!r}")
    if len(raw) > NAME_BYTES_MAX:
        raise NotTaken(f"field {name!r} of the entry is too long: {len(raw):,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise NotTaken(f"field {name!r} of the entry is no text") from error


def _json(fields: Mapping[str, bytes], name: str, default: object) -> object:
    raw = fields.get(name)
    if raw is None:
        return default
    if len(raw) > JSON_BYTES_MAX:
        raise NotTaken(
            f"field {name!r} of the entry is too large: {len(raw):,} bytes; store it elsewhere and pass a reference"
        )
    try:
        return codec.decode_plain(raw)
    except codec.UNREADABLE as error:
        raise NotTaken(f"field {name!r} of the entry is not JSON: {error}") from error
