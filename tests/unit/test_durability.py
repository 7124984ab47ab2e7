"""What an acknowledgement is worth: what is waited for, which answers are enough, which servers can do it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from redis.exceptions import ReadOnlyError, ResponseError

from stepwell.client.address import promised
from stepwell.core.errors import StoreUnfit, UsageError
from stepwell.store.async_link import AsyncLink
from stepwell.store.check import ServerFacts
from stepwell.store.durability import (
    MODES,
    RELAXED,
    WAIT_MS,
    Durability,
    parse_durability,
    require_durable,
    slow_mode,
)
from stepwell.store.link import Link, NotDurable
from stepwell.store.scripts import Scripts

AOF = Durability("aof")
TWO = Durability("replicated", 2)
SCRIPT, SEND, READ = ["EVALSHA", "sha", 0], ["XADD", "k", "*", "a", "b"], ["HGETALL", "k"]


@pytest.mark.parametrize(
    ("text", "replicas", "expected"),
    [
        ("relaxed", None, RELAXED),
        ("aof", None, AOF),
        ("replicated", None, Durability("replicated", 1)),
        ("replicated", 2, TWO),
        ("replicated:2", None, TWO),
        ("replicated:2", 2, TWO),
    ],
)
def test_a_mode_is_read_from_text(text, replicas, expected):
    assert parse_durability(text, replicas) == expected
    assert parse_durability(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "replicas"),
    [("always", None), ("", None), ("aof:1", None), ("replicated:0", None), ("replicated", 0), ("aof", 1),
     ("replicated:2", 3), ("relaxed ", None)],
)  # fmt: skip
def test_what_is_no_mode_is_refused_with_words(text, replicas):
    with pytest.raises(UsageError):
        parse_durability(text, replicas)


def test_only_what_writes_is_waited_for_and_relaxed_waits_for_nothing():
    for durability, wait in ((AOF, ["WAITAOF", 1, 0, WAIT_MS]), (TWO, ["WAIT", 2, WAIT_MS])):
        assert durability.wait_for([READ, SCRIPT]) == wait
        assert durability.wait_for([SEND]) == wait
        assert durability.wait_for([READ, ["TIME"], ["SCRIPT", "LOAD", "x"]]) is None
    assert RELAXED.wait_for([SCRIPT, SEND]) is None


@pytest.mark.parametrize(
    ("durability", "answer", "enough"),
    [
        (AOF, [1, 0], True),
        (AOF, [1, 3], True),
        (AOF, [0, 3], False),
        (AOF, [], False),
        (AOF, b"OK", False),
        (AOF, ResponseError("WAITAOF cannot be used when appendonly is disabled"), False),
        (TWO, 2, True),
        (TWO, 3, True),
        (TWO, 1, False),
        (TWO, 0, False),
        (TWO, None, False),
        (TWO, ResponseError("WAIT cannot be used with replica instances"), False),
    ],
)
def test_the_numbers_of_the_answer_are_compared(durability, answer, enough):
    assert (durability.shortfall(answer) == "") is enough


GOOD = ServerFacts("redis://h:1", version=(7, 2, 4), aof_enabled=True, appendfsync="always", replicas=2)


@pytest.mark.parametrize(
    ("durability", "changes", "word"),
    [
        (AOF, {"version": (7, 0, 15)}, "WAITAOF"),
        (AOF, {"aof_enabled": False}, "appendonly yes"),
        (AOF, {"appendfsync": "no"}, "appendfsync always"),
        (TWO, {"replicas": 1}, "has 1 replicas connected, not 2"),
    ],
)
def test_a_server_that_can_not_keep_the_promise_is_refused_with_what_to_change(durability, changes, word):
    facts = cast("dict[str, Any]", {name: getattr(GOOD, name) for name in ServerFacts.__slots__})
    with pytest.raises(StoreUnfit, match=word):
        require_durable(durability, ServerFacts(**(facts | changes)))


def test_a_server_that_can_keep_it_or_does_not_tell_is_taken():
    silent = ServerFacts("redis://h:1")
    valkey = ServerFacts("redis://h:1", name="valkey", version=(8, 1), aof_enabled=True, appendfsync="everysec")
    for durability in (RELAXED, AOF, TWO):
        require_durable(durability, GOOD)
        require_durable(durability, silent)
    require_durable(AOF, valkey)
    assert "appendfsync always" in slow_mode(AOF, valkey)
    assert slow_mode(AOF, GOOD) == slow_mode(RELAXED, valkey) == ""


class Wire:
    """A client whose one connection answers what a test has laid ready."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.sent = b""
        self.closed = 0
        self.connection_pool = self

    def get_connection_kwargs(self) -> dict[str, object]:
        return {}

    def get_connection(self) -> Wire:
        return self

    def release(self, connection: object) -> None:
        pass

    def disconnect(self) -> None:
        self.closed += 1

    def send_packed_command(self, command: list[bytes]) -> None:
        self.sent += b"".join(command)

    def read_response(self, *, disconnect_on_error: bool) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class AsyncWire(Wire):
    async def get_connection(self) -> AsyncWire:  # type: ignore[override]
        return self

    async def release(self, connection: object) -> None:  # type: ignore[override]
        pass

    async def disconnect(self, nowait: bool) -> None:  # type: ignore[override]
        self.closed += 1

    async def send_packed_command(self, command: list[bytes]) -> None:  # type: ignore[override]
        super().send_packed_command(command)

    async def read_response(self, *, disconnect_on_error: bool) -> object:
        return super().read_response(disconnect_on_error=disconnect_on_error)


def call(durability: Durability, commands: list[list[str | int]], *answers: object, linked: str = "sync") -> Wire:
    """Sends commands through a link; the wire afterwards. The raw replies are on it as `replies`."""
    if linked == "sync":
        wire = Wire(*answers)
        wire.replies = Link(wire, None, None, durability).call(commands)  # type: ignore
    else:
        wire = AsyncWire(*answers)
        wire.replies = asyncio.run(AsyncLink(wire, Scripts(), durability).call(commands))  # type: ignore
    return wire


@pytest.mark.parametrize("linked", ["sync", "async"])
def test_a_batch_ends_with_one_wait_whose_answer_is_no_reply(linked):
    wire = call(AOF, [SCRIPT, READ, SEND], b"OK", [], b"1-1", [1, 0], linked=linked)
    assert wire.replies == [b"OK", [], b"1-1"]
    assert wire.sent.count(b"WAITAOF") == 1
    assert wire.sent.rindex(b"WAITAOF") > wire.sent.rindex(b"XADD")


@pytest.mark.parametrize("linked", ["sync", "async"])
def test_reads_and_relaxed_links_wait_for_nothing(linked):
    assert b"WAIT" not in call(AOF, [READ], [], linked=linked).sent
    assert b"WAIT" not in call(RELAXED, [SCRIPT, SEND], b"OK", b"1-1", linked=linked).sent


@pytest.mark.parametrize("linked", ["sync", "async"])
def test_a_batch_that_is_not_safe_in_time_is_not_acknowledged(linked):
    with pytest.raises(NotDurable, match="1 of 2 replicas"):
        call(TWO, [SCRIPT], b"OK", 1, linked=linked)
    with pytest.raises(NotDurable, match="not on the disk"):
        call(AOF, [SCRIPT], b"OK", [0, 0], linked=linked)


@pytest.mark.parametrize("linked", ["sync", "async"])
def test_where_nothing_was_written_its_refusals_are_the_answer(linked):
    refusal, odd = ReadOnlyError("You can't write"), ResponseError("WAIT cannot be used with replica instances")
    with pytest.raises(Exception, match="READONLY"):
        call(TWO, [SCRIPT], refusal, odd, linked=linked)


def test_every_mode_has_its_name():
    assert [str(Durability(mode, 3)) for mode in MODES] == ["relaxed", "aof", "replicated:3"]


def test_who_says_nothing_follows_the_environment_and_else_the_namespace():
    assert promised(environment={}) is None
    assert promised(environment={"STEPWELL_DURABILITY": "aof"}) == AOF
    assert promised("replicated:2", environment={"STEPWELL_DURABILITY": "aof"}) == TWO
    assert promised(replicas=2, environment={}) == TWO
    with pytest.raises(UsageError, match="replicas"):
        promised(replicas=2, environment={"STEPWELL_DURABILITY": "aof"})
