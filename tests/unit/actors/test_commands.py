"""Inbox entries: whatever anybody writes there is a command, or garbage with a reason; nothing else is raised."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.actors.commands import NoSuchCommand, command_input, read_entry
from stepwell.actors.messages import CommandMail, Doorbell
from stepwell.core.inputs import CancelAsked, RetryAsked, SignalSent
from stepwell.store.inbox import Entry

PLAIN = {"execution": b"e1", "command": b"c1", "data": b"{}", "v": b"1"}
NAMES = st.sampled_from(["type", "execution", "command", "data", "v", "at", "odd"])
VALUES = st.one_of(
    st.binary(max_size=50),
    st.sampled_from(
        [b"start", b"signal", b"cancel", b"retry", b"e1", b"1", b"2", b'{"name":"go"}', b'{"name":1}', b"[]"]
    ),
)


def entry(**fields: bytes) -> Entry:
    return Entry(3, "1-0", {**PLAIN, **fields})


def test_a_start_is_a_doorbell() -> None:
    assert read_entry(Entry(3, "1-0", {"type": b"start", "execution": b"e1"})) == ("e1", Doorbell("1-0"))
    for at, made_at in ((b"1700000000000", 1_700_000_000_000), (b"", 0), (b"-1", 0), (b"1.5", 0), (b"9" * 17, 0)):
        entry = Entry(3, "1-0", {"type": b"start", "execution": b"e1", "at": at})
        assert read_entry(entry) == ("e1", Doorbell("1-0", made_at))


@pytest.mark.parametrize(
    ("kind", "data", "event"),
    [
        (b"cancel", b"{}", CancelAsked(7, "c1")),
        (b"retry", b"", RetryAsked(7, "c1")),
        (b"signal", b'{"name":"go","payload":[1]}', SignalSent(7, "c1", "go", b"[1]")),
        (b"signal", b'{"name":"go"}', SignalSent(7, "c1", "go", b"null")),
    ],
)
def test_each_command_becomes_its_event(kind: bytes, data: bytes, event: object) -> None:
    execution_id, mail = read_entry(entry(type=kind, data=data))
    assert isinstance(mail, CommandMail)
    assert (execution_id, mail.command_id) == ("e1", "c1")
    assert command_input(mail.type, mail.command_id, mail.data, 7) == event


@pytest.mark.pain(31)
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"type": b""}, "no field 'type'"),
        ({"type": b"\xff"}, "'type' of the entry is no text"),
        ({"type": b"fly"}, "no command is of type 'fly'"),
        ({"type": b"cancel", "execution": b"a b"}, "execution id"),
        ({"type": b"cancel", "command": b""}, "no field 'command'"),
        ({"type": b"cancel", "command": b"c" * 129}, "1 to 128 plain characters"),
        ({"type": b"cancel", "command": b"a\nb"}, "1 to 128 plain characters"),
        ({"type": b"cancel", "v": b"02"}, "'v' of the entry is no format"),
        ({"type": b"signal", "data": b"{"}, "signal c1 can't be read"),
        ({"type": b"signal", "data": b'{"name":"not a name"}'}, "signal c1 can't be read"),
    ],
)
def test_what_is_no_command_says_why(fields: dict[str, bytes], says: str) -> None:
    with pytest.raises(NoSuchCommand, match=says):
        read_entry(entry(**fields))


@pytest.mark.pain(31)
@settings(deadline=None, max_examples=300)
@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_entry_is_a_command_or_garbage_with_a_reason(fields: dict[str, bytes]) -> None:
    try:
        execution_id, mail = read_entry(Entry(3, "1-0", fields))
    except NoSuchCommand as error:
        reason = str(error)
    else:
        reason = ""
    if not reason and isinstance(mail, CommandMail):
        assert execution_id
        event = command_input(mail.type, mail.command_id, mail.data, 7)
        assert not isinstance(event, SignalSent) or msgspec.json.decode(event.payload) is not ...
