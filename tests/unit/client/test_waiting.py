"""Waiting for results: every end, every way to miss a message, and no polling."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell.client.moves import Ask, Hear, Listen
from stepwell.core.advice import NO_WORKER
from stepwell.core.errors import ExecutionCancelled, ExecutionFailed, InvalidName, UnknownExecution, UsageError
from stepwell.core.records import FailedStep
from stepwell.store.link import LinkDown
from stepwell.store.memory import INFO
from stepwell.store.replies import Broken


def result(world, timeout=None, execution_id="e1"):
    world.moves.clear()
    world.sent.clear()
    return world.run(world.talk.result(execution_id, timeout))


def test_an_execution_that_has_ended_is_read_once_without_subscribing(world):
    world.start()
    world.put(status="completed", result=b'{"total": 3}')
    assert result(world) == {"total": 3}
    assert [type(move) for move in world.moves] == [Ask]


def test_a_flow_that_returned_nothing_gives_none(world):
    world.start()
    world.put(status="completed", result=b"null")
    assert result(world) is None


def test_a_message_ends_the_wait_at_once(world):
    world.start()
    world.later(3.3, lambda: world.put(status="completed", result=b"1"))
    assert result(world, timeout=60) == 1
    assert world.clock.monotonic() == 3.3


def test_nothing_is_polled_while_it_waits(world):
    world.start()
    world.later(3600, lambda: world.put(status="completed", result=b"1"))
    assert result(world) == 1
    # Once before and once after subscribing, once for the message, and every 5 s in case one was lost.
    assert world.sent == ["HMGET"] * len(world.sent)
    assert len(world.sent) <= 3 + 3600 / 5
    assert world.kinds(Listen) == 1


def test_an_end_between_the_first_look_and_the_subscription_is_not_missed(world):
    world.start()
    world.moves.clear()
    conversation = world.talk.result("e1", None)
    original = world._carry_out

    def race(move):
        if isinstance(move, Listen):
            world.put(status="completed", result=b"1")
        return original(move)

    world._carry_out = race
    assert world.run(conversation) == 1
    assert world.kinds(Hear) == 0


def test_a_lost_message_costs_five_seconds_at_most(world):
    world.start()
    world.later(7, lambda: world.put(status="completed", result=b"1", told=False))
    assert result(world) == 1
    assert world.clock.monotonic() == 10


def test_a_broken_subscription_is_made_again(world):
    world.start()
    world.later(2, lambda: world.go_away(0.5))
    world.later(4, lambda: world.put(status="completed", result=b"1"))
    assert result(world) == 1
    assert world.kinds(Listen) >= 2
    assert world.clock.monotonic() == 4


def test_an_end_while_redis_was_away_is_seen_when_it_is_back(world):
    world.start()
    world.later(2, lambda: world.go_away(30))
    world.later(3, lambda: world.put(status="completed", result=b"1"))
    assert result(world) == 1
    assert 32 <= world.clock.monotonic() <= 33


def test_a_long_outage_ends_the_wait_with_the_reason(world):
    world.start()
    world.later(2, lambda: world.go_away(10**6))
    with pytest.raises(LinkDown):
        result(world)
    assert 62 <= world.clock.monotonic() <= 63


def test_short_outages_do_not_add_up(world):
    world.start()
    for n in range(10):
        world.later(40 * n + 1, lambda: world.go_away(20))
    world.later(500, lambda: world.put(status="completed", result=b"1"))
    assert result(world) == 1


def test_a_timeout_holds_while_redis_is_away(world):
    world.start()
    world.later(2, lambda: world.go_away(10**6))
    with pytest.raises(TimeoutError, match="within 10 s: it is queued, and Redis can't be reached now"):
        result(world, timeout=10)
    assert world.clock.monotonic() < 12


def test_a_failure_carries_the_whole_terminal_error(world):
    world.start()
    world.later(1, lambda: world.fail(attempts=5, failed_step=FailedStep("charge", "t0", 5)))
    with pytest.raises(ExecutionFailed, match="e1 failed: ValueError: no") as caught:
        result(world)
    error = caught.value.error
    assert (error["attempts"], error["open"]) == (5, {})
    assert error["failed_step"] == {"path": "charge", "token": "t0", "attempts": 5}


def test_an_error_that_can_not_be_read_is_still_a_failure(world):
    world.start()
    world.put(status="error", error=b"garbage")
    with pytest.raises(ExecutionFailed, match="can't be read"):
        result(world)


def test_a_cancelled_execution_has_no_result(world):
    world.start()
    world.later(1, lambda: world.put(status="cancelled"))
    with pytest.raises(ExecutionCancelled, match="e1 was cancelled"):
        result(world)


def test_an_execution_that_was_retried_before_its_end_was_read_is_waited_for(world):
    world.start()

    def failed_and_retried():
        world.fail()
        world.put(status="running")

    world.later(1, failed_and_retried)
    world.later(2, lambda: world.put(status="completed", result=b"1"))
    assert result(world) == 1


def test_an_unknown_execution_is_an_error_at_once(world):
    with pytest.raises(UnknownExecution, match="no execution 'e9'"):
        result(world, execution_id="e9")
    with pytest.raises(InvalidName):
        result(world, execution_id="e 9")
    assert world.clock.monotonic() == 0


def test_a_row_that_redis_lost_and_its_owner_healed_is_waited_for(world):
    world.start()
    world.later(4, lambda: world.redis.delete(world.keys.row("e1")))
    world.later(7, lambda: world.put(status="running"))
    world.later(11, lambda: world.put(status="completed", result=b"1"))
    assert result(world) == 1


def test_a_row_that_stays_away_ends_the_wait(world):
    world.start()
    world.later(4, lambda: world.redis.delete(world.keys.row("e1")))
    with pytest.raises(UnknownExecution, match="vanished"):
        result(world)


def test_a_timeout_says_that_nobody_works(world):
    world.start()
    with pytest.raises(TimeoutError, match="within 2 s: it is queued; no worker is running: start one with"):
        result(world, timeout=2)
    assert world.clock.monotonic() == 2
    world.worker(checkout={})
    with pytest.raises(TimeoutError, match=r"it is queued$"):
        result(world, timeout=2)


def test_a_full_server_is_told_where_it_hides_the_workers(world, monkeypatch):
    world.start()
    full = f"used_memory:{2**23 - 1024}\r\nmaxmemory:{2**23}\r\n".encode()
    answers = {"full": full, "roomy": b"used_memory:4096\r\nmaxmemory:8388608\r\n", "unlimited": b"maxmemory:0\r\n"}
    info = answers["full"]
    call = world.link.call_each
    monkeypatch.setattr(
        world.link, "call_each", lambda commands: [info] if list(commands) == [INFO] else call(commands)
    )
    told = (
        "no worker can be seen, as Redis is full (8.0 of 8.0 MiB) and takes no signs of life of those that run:"
        " raise its maxmemory, or free memory"
    )
    assert world.run(world.talk.why_idle()) == told
    with pytest.raises(TimeoutError) as caught:
        result(world, timeout=2)
    assert str(caught.value) == f"execution e1 has not ended within 2 s: it is queued; {told}"
    for other in ("roomy", "unlimited"):
        info = answers[other]
        assert world.run(world.talk.why_idle()) == NO_WORKER
    info = Broken("NOPERM no permissions")
    assert world.run(world.talk.why_idle()) == NO_WORKER
    world.worker(checkout={})
    assert world.run(world.talk.why_idle()) == ""


@pytest.mark.parametrize("status", ["running", "waiting", "parked"])
def test_a_timeout_says_that_nobody_works_whatever_is_waited_for(world, status):
    world.start()
    world.fail(status=status, type="crashed", message="boom")
    with pytest.raises(TimeoutError, match=f"it is {status}.*; no worker is running: start one"):
        result(world, timeout=2)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("code diverged", r"run code that fits the record .*, then: stepwell retry e1$"),
        ("not deployed here", r"run all workers with its flow: it goes on once the one in charge has it$"),
    ],
)
def test_a_timeout_says_why_an_execution_is_parked_and_what_to_do(world, reason, advice):
    world.worker(checkout={})
    world.start()
    world.fail(status="parked", type=reason, message="found ship")
    with pytest.raises(TimeoutError, match=rf"parked \({reason}: found ship\); to do: {advice}"):
        result(world, timeout=1)


def test_a_timeout_of_zero_only_looks(world):
    world.start()
    with pytest.raises(TimeoutError):
        result(world, timeout=0)
    assert world.kinds(Listen) == 0
    world.put(status="completed", result=b"1")
    assert result(world, timeout=0) == 1


@pytest.mark.parametrize("timeout", ["1", True, float("nan"), float("inf"), -1, 3.3e9, 10**400])
def test_a_timeout_is_a_number_of_seconds(world, timeout):
    world.start()
    with pytest.raises(UsageError, match="timeout"):
        result(world, timeout=timeout)


@pytest.mark.parametrize("name", ["result", "retry", "cancel", "signal"])
def test_a_timedelta_is_as_long_a_timeout_as_its_seconds(world, name):
    world.start()
    ends = []
    for given in (timedelta(seconds=0.5), 0.5):  # shorter than what is waited where no worker lives
        begun = world.clock.monotonic()
        arguments = ("e1", "go", None, given) if name == "signal" else ("e1", given)
        try:
            said = repr(world.run(getattr(world.talk, name)(*arguments)))
        except TimeoutError as error:
            said = str(error)
        ends.append((said, world.clock.monotonic() - begun))
    assert ends[0] == ends[1]
    assert ends[0][1] == 0.5
