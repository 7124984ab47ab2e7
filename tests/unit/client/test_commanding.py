"""Commands: sent once as far as anybody can tell, answered, refused, or waiting for a worker."""

from __future__ import annotations

import msgspec
import pytest

from stepwell.client import CommandResult
from stepwell.client.moves import Listen
from stepwell.core.errors import CommandRefused, InvalidName, PayloadError, UnknownExecution
from stepwell.store.link import StoreRefused


@pytest.fixture
def started(world):
    world.worker(checkout={"n": True})
    world.start()
    return world


def send(world, verb="cancel", *args, timeout=10.0):
    return world.run(getattr(world.talk, verb)("e1", *args, timeout))


def test_a_command_that_is_applied_tells_the_status_after_it(started):
    started.later(2, lambda: started.answer(applied=True, status="cancelled"))
    assert send(started) == CommandResult(True, "cancelled")
    assert started.clock.monotonic() == 2


def test_the_inbox_entry_has_all_that_an_owner_needs(started):
    started.later(1, lambda: started.answer(applied=True))
    send(started, "signal", "approval", {"by": "me"})
    entry = {name.decode(): value for name, value in started.inbox()[-1].items()}
    assert msgspec.json.decode(entry.pop("data")) == {"name": "approval", "payload": {"by": "me"}}
    assert int(entry.pop("at")) > 1_600_000_000_000
    assert entry == {"type": b"signal", "execution": b"e1", "command": b"id1", "v": b"1"}


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_refusal_is_raised_with_its_reason(started, verb):
    started.later(1, lambda: started.answer(applied=False, reason=f"{verb} of e1 refused: it has ended"))
    with pytest.raises(CommandRefused, match=f"{verb} of e1 refused: it has ended"):
        send(started, verb)
    assert started.inbox()[-1][b"type"] == verb.encode()


def test_what_an_applied_command_adds_is_told(started):
    started.later(1, lambda: started.answer(applied=True, status="cancelled", reason="it was cancelled before"))
    assert send(started).note == "it was cancelled before"


@pytest.mark.pain(11)
def test_a_failover_is_waited_for_within_the_commands_time(started):
    readonly = StoreRefused("You can't write against a read only replica.", "READONLY")
    ask, refuses = started._ask, [readonly] * 3

    def ask_or_refuse(commands, call):
        if refuses and commands[0][0] == "XADD":
            raise refuses.pop()
        return ask(commands, call)

    started._ask = ask_or_refuse
    started.later(2, lambda: started.answer(applied=True))
    assert send(started).applied
    refuses += [readonly] * 99
    before = started.clock.monotonic()
    with pytest.raises(StoreRefused, match="READONLY"):
        send(started, timeout=0.5)
    assert started.clock.monotonic() - before == pytest.approx(0.5)


@pytest.mark.parametrize("lost", ["XADD", "HMGET"])
def test_a_command_whose_reply_is_lost_is_repeated_under_the_same_id(started, lost):
    started.lose_reply_of(lost)
    started.later(1, lambda: started.answer(applied=True))
    assert send(started).applied
    commands = {entry[b"command"] for entry in started.inbox() if b"command" in entry}
    assert (commands, started.lost) == ({b"id1"}, [])


def test_an_outcome_that_was_recorded_before_the_subscription_is_found(started):
    original = started._carry_out

    def race(move):
        if isinstance(move, Listen):
            started.answer(applied=True)
        return original(move)

    started._carry_out = race
    assert send(started).applied
    assert started.clock.monotonic() == 0


def test_a_command_that_nobody_applied_in_time_is_accepted_and_said_so(started):
    assert send(started, timeout=3) == CommandResult(
        None, "queued", "no worker has applied it yet; the cancel waits in the inbox"
    )
    assert started.clock.monotonic() == 3
    assert started.inbox()[-1][b"type"] == b"cancel"


def test_without_a_worker_nobody_waits_for_long(world):
    world.start()
    assert send(world) == CommandResult(None, "queued", "no worker is running; the cancel waits in the inbox")
    assert world.clock.monotonic() <= 1


def test_a_worker_that_is_just_starting_may_still_answer(world):
    world.start()
    world.later(0.5, lambda: world.answer(applied=True))
    assert send(world).applied


def test_a_command_to_nobody_is_an_error_and_leaves_nothing(started):
    for verb, *more in (("cancel",), ("retry",), ("signal", "go", 1)):
        with pytest.raises(UnknownExecution, match="no execution 'e9'"):
            started.run(getattr(started.talk, verb)("e9", *more, 10.0))
    assert [entry for key in range(4) for entry in started.redis.xrange(started.keys.inbox(key))][1:] == []


def test_a_signal_that_can_not_be_recorded_is_refused_before_it_is_sent(started):
    with pytest.raises(InvalidName, match="signal name"):
        send(started, "signal", "no name!", None)
    with pytest.raises(PayloadError, match="payload of signal go"):
        send(started, "signal", "go", object())
    with pytest.raises(PayloadError, match="too large"):
        send(started, "signal", "go", "x" * (1 << 20))
    assert len(started.inbox()) == 1


def test_an_outcome_of_another_version_is_not_taken_for_a_refusal(started):
    def odd():
        command_id = started.inbox()[-1][b"command"].decode()
        partition = started.keys.partition_of("e1")
        started.redis.hset(started.keys.cmd(partition, command_id), mapping={"outcome": b"[]", "at": 1})
        started.publish(started.keys.command_done(partition, command_id))

    started.later(1, odd)
    assert "can't read" in send(started).note
