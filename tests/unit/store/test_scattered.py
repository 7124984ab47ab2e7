"""Inboxes of a cluster are read one by one; a silent one is read from its start once it answers again."""

from __future__ import annotations

import pytest

from stepwell.store.keys import Keys
from stepwell.store.replies import Refused
from stepwell.store.scattered import START, ScatteredReads
from stepwell.store.slots import key_of

KEYS = Keys("t", 4)
AWAY = Refused("the master a:1 is away", "UNREACHABLE")
AFTER = {0: "5-0", 1: "6-0", 2: "7-0"}


@pytest.fixture
def reads() -> ScatteredReads:
    return ScatteredReads(KEYS)


def asked(reads: ScatteredReads, block_ms: int | None = None) -> dict[str, str]:
    """What is asked for, by key, and after which entry."""
    return {str(key_of(command)): str(command[-1]) for command in reads.commands(AFTER, block_ms, 9)}


def test_each_partition_is_asked_for_by_a_command_of_its_own(reads: ScatteredReads) -> None:
    assert reads.commands(AFTER, None, 9) == [
        ["XREAD", "COUNT", 9, "STREAMS", KEYS.inbox(partition), AFTER[partition]] for partition in AFTER
    ]
    assert reads.answers([None, [[b"k", []]], None]) == [None, [[b"k", []]], None]


def test_only_the_last_one_blocks_and_longer_while_nothing_comes(reads: ScatteredReads) -> None:
    def block(limit: int = 500) -> object:
        *others, last = reads.commands(AFTER, limit, 9)
        assert all("BLOCK" not in other for other in others)
        return last[last.index("BLOCK") + 1]

    waits = []
    for _ in range(6):
        waits.append(block())
        reads.answers([None] * 3)
    assert waits == [5, 10, 20, 40, 50, 50]
    assert (block(7), block(0)) == (7, 1)
    reads.answers([None, [[b"k", []]], None])
    assert block() == 5


def test_a_silent_partition_is_read_from_its_start_when_it_answers_again(reads: ScatteredReads) -> None:
    asked(reads)
    assert reads.answers([None, AWAY, None]) == [None, None]
    assert reads.refused == {1}
    assert asked(reads)[KEYS.inbox(1)] == START
    assert asked(reads)[KEYS.inbox(0)] == AFTER[0]
    reads.answers([AWAY, None, None])
    assert asked(reads)[KEYS.inbox(1)] == START, "what was asked first is the silent one"
    reads.answers([None, None, None])
    assert reads.refused == frozenset()
    assert asked(reads) == {KEYS.inbox(partition): last for partition, last in AFTER.items()}


def test_a_silent_partition_is_not_the_one_that_blocks(reads: ScatteredReads) -> None:
    reads.commands(AFTER, 50, 9)
    reads.answers([None, None, AWAY])
    assert key_of(reads.commands(AFTER, 50, 9)[-1]) == KEYS.inbox(1)


def test_a_partition_that_is_not_asked_for_stays_silent(reads: ScatteredReads) -> None:
    asked(reads)
    reads.answers([None, AWAY, None])
    reads.commands({3: START}, None, 9)
    reads.answers([None])
    assert asked(reads)[KEYS.inbox(1)] == START
