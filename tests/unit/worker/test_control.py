"""Messages between parent and shard: framed, typed, and never waited for by the parent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from unit.worker.fleet_stage import pulse

from stepwell.core.limits import Limits
from stepwell.worker import control as c
from stepwell.worker.settings import ShardSettings

SETTINGS = ShardSettings("w/0", Limits(running=7), 3, "/tmp/box", "h,b,1,2")
ORDERS: list[c.ToShard] = [
    c.Load(1, ("flows.py", "shop.flows"), c.LogSettings(json=True, level=10)),
    c.Begin("redis://:hunter2@db", "stepwell", 64, bytes(range(32)), 1_700_000_000_000, SETTINGS),
    c.Hurry(),
    c.Drain(2.5),
]
WORDS: list[c.ToParent] = [
    c.Hello("h,b,1,2"),
    c.Loaded(("a", "b"), ("line 3: time.time()",)),
    c.Started(pulse()),
    pulse(problem="x"),
    c.Trouble(),
    c.Failed("FlowLoadError", "there is no file"),
    c.Drained(3),
]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def test_all_messages_arrive_as_they_were(pipe: tuple[int, int]) -> None:
    read, write = pipe
    for message in ORDERS:
        assert c.send(write, message)
    assert list(c.Receiver(read, c.to_shard()).receive()) == ORDERS
    for word in WORDS:
        assert c.send(write, word)
    assert list(c.Receiver(read, c.to_parent()).receive()) == WORDS


def test_every_kind_of_message_is_in_this_test() -> None:
    assert {type(message) for message in ORDERS} == set(c.ToShard.__args__)  # type: ignore[attr-defined]
    assert {type(message) for message in WORDS} == set(c.ToParent.__args__)  # type: ignore[attr-defined]


def test_a_message_that_comes_in_pieces_is_put_together(pipe: tuple[int, int]) -> None:
    read, write = pipe
    c.send(write, WORDS[1])
    c.send(write, WORDS[3])
    raw = os.read(read, 4096)
    receiver: c.Receiver[c.ToParent] = c.Receiver(read, c.to_parent())
    got: list[c.ToParent] = []
    for place in range(len(raw)):
        os.write(write, raw[place : place + 1])
        got += receiver.receive()
    assert got == [WORDS[1], WORDS[3]]


def test_the_end_of_the_pipe_is_told_after_all_that_was_said(pipe: tuple[int, int]) -> None:
    read, write = pipe
    c.send(write, WORDS[-1])
    os.close(write)
    receiver: c.Receiver[c.ToParent] = c.Receiver(read, c.to_parent())
    assert list(receiver.receive()) == [WORDS[-1]]
    assert receiver.ended
    assert list(receiver.receive()) == []


def test_a_full_pipe_takes_nothing_rather_than_a_part(pipe: tuple[int, int]) -> None:
    read, write = pipe
    sent = 0
    while c.send(write, ORDERS[1]):
        sent += 1
    assert 10 < sent < 10_000
    assert list(c.Receiver(read, c.to_shard()).receive()) == [ORDERS[1]] * sent
    assert c.send(write, ORDERS[2])


def test_nobody_who_listens_is_an_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(BrokenPipeError):
        c.send(pipe[1], c.Hurry())


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xff\xff\xff", b"\0\0\0\3abc", b"\0\0\0\1\xc0", b"\0\0\0\0"],
    ids=["endless", "garbage", "null", "empty"],
)
def test_nonsense_is_refused(pipe: tuple[int, int], raw: bytes) -> None:
    os.write(pipe[1], raw)
    receiver: c.Receiver[c.ToParent] = c.Receiver(pipe[0], c.to_parent())
    with pytest.raises(ValueError):  # noqa: PT011
        list(receiver.receive())


def test_what_is_known_by_the_other_side_only_is_refused(pipe: tuple[int, int]) -> None:
    c.send(pipe[1], c.Drain(1.0))
    receiver: c.Receiver[c.ToParent] = c.Receiver(pipe[0], c.to_parent())
    with pytest.raises(msgspec.ValidationError):
        list(receiver.receive())


def test_no_secret_shows_in_a_repr() -> None:
    begin: Any = ORDERS[1]
    assert "hunter2" not in repr(begin)
    assert repr(begin.secret) not in repr(begin)
