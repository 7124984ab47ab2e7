"""Leases: one holder a partition, epochs that only grow."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from stepwell.store.leases import Grant, Held, LeaseHolder, LeaseStore, Lost, Renewed, parse_lease
from stepwell.store.requests import Committed, Fenced

HOST = "host,boot,1,2"
TTL = 600_000
SOON = 300_000  # not so soon that it comes while a test is held up


@pytest.fixture
def free(store):
    """A store whose partitions nobody holds."""
    store.client.flushall()
    return store


def acquire(store, *partitions, owner="w/0", incarnation="i1", now=None):
    return store.leases.acquire(partitions, owner, incarnation, HOST, TTL, store.now if now is None else now)


def test_a_free_partition_is_granted_under_the_time_as_epoch(free):
    value = f"w/0|{free.now}|i1|{HOST}"
    assert acquire(free, 1, 3) == [Grant(1, free.now, value, True, 0), Grant(3, free.now, value, True, 0)]
    assert free.leases.read(range(4)) == {1: value, 3: value}
    assert SOON < free.client.pttl(free.keys.lease(1)) <= TTL
    assert free.client.pttl(free.keys.epoch(1)) == -1


def test_by_default_the_epoch_is_the_servers_time(free):
    before = free.leases.server_time_ms()
    (grant,) = free.leases.acquire([0], "w", "i", HOST, TTL)
    assert before <= grant.epoch <= free.leases.server_time_ms()


def test_a_held_partition_is_not_granted(free):
    (mine,) = acquire(free, 0)
    before = free.dump()
    assert acquire(free, 0, owner="w/1", now=free.now + 5) == [Held(0, mine.value)]
    assert acquire(free, 0, incarnation="i2", now=free.now + 5) == [Held(0, mine.value)]
    assert free.dump() == before


def test_asking_again_gets_the_same_grant(free):
    (grant,) = acquire(free, 0)
    before = free.dump()
    assert acquire(free, 0, now=free.now + 500) == [grant]
    assert free.dump() == before


def test_asking_again_after_a_clean_release_gets_the_same_answer(free):
    free.leases.release(acquire(free, 0))
    (grant,) = acquire(free, 0, owner="w/1")
    before = free.dump()
    assert grant.clean
    assert acquire(free, 0, owner="w/1", now=free.now + 500) == [grant]
    assert free.dump() == before


@pytest.mark.parametrize("clock", [0, -3_600_000, 3_600_000])
def test_an_epoch_never_repeats_whatever_the_clock_does(free, clock):
    seen = []
    for round_ in range(6):
        (grant,) = acquire(free, 0, now=free.now + round_ * clock)
        seen.append(grant.epoch)
        if round_ % 2:
            free.leases.release([grant])
        else:
            free.client.delete(free.keys.lease(0))
    assert seen == sorted(set(seen))


def test_only_a_release_makes_the_next_grant_clean(free):
    free.leases.release(acquire(free, 0))
    (after_release,) = acquire(free, 0)
    free.client.delete(free.keys.lease(0))
    (after_crash,) = acquire(free, 0)
    assert (after_release.clean, after_crash.clean) == (True, False)


def test_a_renewal_lengthens_the_lease_and_tells_the_counter(free):
    (grant,) = acquire(free, 0)
    free.client.pexpire(free.keys.lease(0), SOON)
    free.client.set(free.keys.seq(0), 42)
    assert free.leases.renew([grant], TTL) == [Renewed(0, 42, False)]
    assert free.client.pttl(free.keys.lease(0)) > SOON
    assert acquire(free, 0)[0].seq == 42


@pytest.mark.parametrize("released_before", [False, True])
def test_a_vanished_lease_is_retaken_while_the_epoch_still_shows_the_grant(free, released_before):
    if released_before:
        free.leases.release(acquire(free, 0, owner="w/9"))
    (grant,) = acquire(free, 0)
    free.client.delete(free.keys.lease(0))
    assert free.leases.renew([grant], TTL) == [Renewed(0, 0, True)]
    assert free.leases.read([0]) == {0: grant.value}
    assert free.client.pttl(free.keys.lease(0)) > SOON


def test_a_lease_is_lost_once_another_was_granted_even_if_that_one_is_gone_too(free):
    (mine,) = acquire(free, 0)
    free.client.delete(free.keys.lease(0))
    (other,) = acquire(free, 0, owner="w/1")
    assert free.leases.renew([mine], TTL) == [Lost(0, other.value)]
    free.client.delete(free.keys.lease(0))
    before = free.dump()
    assert free.leases.renew([mine], TTL) == [Lost(0, "")]
    assert free.dump() == before


def test_a_foreign_value_in_the_leases_place_means_that_it_is_lost(free):
    (grant,) = acquire(free, 0)
    free.client.set(free.keys.lease(0), "garbage")
    assert free.leases.renew([grant], TTL) == [Lost(0, "garbage")]
    assert free.leases.read([0]) == {0: "garbage"}


def test_a_released_lease_can_not_be_renewed(free):
    (grant,) = acquire(free, 0)
    assert free.leases.release([grant]) == [True]
    assert free.leases.renew([grant], TTL) == [Lost(0, "")]
    assert free.leases.read([0]) == {}


@pytest.mark.parametrize("before", ["nothing", "a release", "an older lease"])
def test_a_grant_that_redis_lost_is_taken_back_by_who_remembers_it(free, before):
    lease, epoch = free.keys.lease(0), free.keys.epoch(0)
    older = acquire(free, 0, owner="w/9") if before != "nothing" else []
    kept = free.client.get(lease), free.client.get(epoch)
    free.leases.release(older)
    if before == "a release":
        kept = None, free.client.get(epoch)
    (grant,) = acquire(free, 0, now=free.now + 1000)
    for key, value in zip((lease, epoch), kept, strict=True):
        free.client.delete(key)
        if value is not None:
            free.client.set(key, value)
    assert free.leases.renew([grant], TTL) == [Renewed(0, 0, True)]
    assert free.leases.read([0]) == {0: grant.value}
    assert free.leases.renew(older, TTL) == [Lost(0, grant.value)] * len(older), "whose epoch is older"
    free.leases.release([grant])
    (heir,) = acquire(free, 0, owner="w/1")
    assert heir.epoch > grant.epoch, "the epoch goes on from the one that was lost"


def test_a_grant_that_redis_lost_is_lost_when_another_one_came_first(free):
    older = acquire(free, 0, owner="w/9")
    lease, epoch = free.keys.lease(0), free.keys.epoch(0)
    kept = free.client.get(epoch)
    free.leases.release(older)
    (grant,) = acquire(free, 0, now=free.now + 1000)
    free.client.delete(lease)
    free.client.set(epoch, kept)
    (heir,) = acquire(free, 0, owner="w/1", now=free.now + 2000)
    assert heir.epoch > grant.epoch, "though Redis knew nothing of it"
    assert free.leases.renew([grant], TTL) == [Lost(0, heir.value)]


def test_releasing_twice_is_fine_and_releasing_anothers_lease_does_nothing(free):
    (mine,) = acquire(free, 0)
    assert free.leases.release([mine]) == [True]
    assert free.leases.release([mine]) == [True]
    acquire(free, 0, owner="w/1")
    before = free.dump()
    assert free.leases.release([mine]) == [False]
    assert free.dump() == before


def test_a_dead_process_lease_is_freed_and_only_that_one(free):
    (dead,) = acquire(free, 0)
    assert free.leases.free(0, dead.value)
    assert free.leases.free(0, dead.value)
    (heir,) = acquire(free, 0, owner="w/1")
    assert heir.epoch > dead.epoch
    assert not heir.clean
    assert not free.leases.free(0, dead.value)
    assert free.leases.read([0]) == {0: heir.value}


def test_a_dead_lease_is_taken_over_and_its_former_holder_is_fenced(free):
    free.execute(free.create())
    partition = free.keys.partition_of("e1")
    (zombie,) = acquire(free, partition)
    free.client.delete(free.keys.lease(partition))
    (heir,) = acquire(free, partition, owner="w/1")
    assert free.execute(free.commit(lease=zombie.value)) == Fenced(heir.value)
    assert free.execute(free.commit(lease=heir.value)) == Committed(seq=ANY)


@pytest.mark.parametrize("epoch", ["garbage", "", "12|", "12|odd", b"\xff", "9|clean", "1e9"])
def test_an_unreadable_epoch_does_not_keep_a_partition_from_being_owned(free, epoch):
    free.client.set(free.keys.epoch(0), epoch)
    (grant,) = acquire(free, 0)
    assert (grant.epoch, grant.clean) == (free.now, False)


@pytest.mark.parametrize("value", ["garbage", "", "||", "w/0|x|i1|" + HOST, b"\xff\x00"])
def test_a_foreign_value_in_the_leases_place_blocks_for_one_ttl_only(free, value):
    free.client.set(free.keys.lease(0), value)
    (held,) = acquire(free, 0)
    assert isinstance(held, Held)
    assert 0 < free.client.pttl(free.keys.lease(0)) <= TTL


def test_a_lease_says_who_holds_it_and_nonsense_says_nothing(free):
    (grant,) = acquire(free, 0)
    assert parse_lease(grant.value) == LeaseHolder("w/0", free.now, "i1", HOST)
    assert [parse_lease(odd) for odd in ("", "a|b|c|d", "a|1|c", "a|1|c|d|e", "a|²|c|d")] == [None] * 5


@pytest.mark.parametrize("owner", ["", "a|b"])
def test_an_owner_that_would_break_the_value_is_refused(free, owner):
    with pytest.raises(ValueError, match="owner"):
        acquire(free, 0, owner=owner)


def test_two_stores_that_ask_for_the_same_partitions_share_them_without_overlap(free):
    other = LeaseStore(free.connect(), free.keys, free.scripts)
    mine = acquire(free, 0, 1)
    theirs = other.acquire([0, 1, 2, 3], "w/1", "i1", HOST, TTL, free.now)
    assert [type(answer) for answer in theirs] == [Held, Held, Grant, Grant]
    assert [type(answer) for answer in mine] == [Grant, Grant]


def test_what_is_passed_on_is_free_and_as_it_was_got(free):
    free.client.set(free.keys.seq(0), 7)
    (unknown,) = acquire(free, 0)
    assert not unknown.clean
    free.leases.pass_on([unknown])
    free.leases.pass_on([unknown])  # after a lost reply
    assert free.leases.read([0]) == {}
    (again,) = acquire(free, 0, owner="w/1", now=free.now + 5)
    assert (again.clean, again.boxed) == (False, False)
    free.client.set(free.keys.epoch(1), f"{free.now}|boxed")
    (boxed,) = acquire(free, 1, now=free.now + 5)
    assert boxed.boxed
    free.leases.pass_on([boxed])
    (next_one,) = acquire(free, 1, owner="w/1", now=free.now + 9)
    assert next_one.boxed
    free.leases.pass_on([boxed])
    assert free.leases.read([1]) == {1: next_one.value}, "another one's by now"
