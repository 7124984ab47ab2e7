"""What a shard's death leaves: strikes, interrupted steps, free leases, and a next grant that knows of them."""

from __future__ import annotations

from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from stepwell.core.records import CutShort
from stepwell.store.leases import Held
from stepwell.store.replies import Forgotten
from stepwell.store.requests import Committed, Fenced, Forget
from stepwell.store.suspects import NO_SUSPECTS, Loss, Strike, Suspect, SuspectStore

HOST = "host,boot,1,2"
CUT = (CutShort("t1", 2, True, "charge"), CutShort("t2", 1, False, "ship"))


@pytest.fixture
def suspects(store):
    """Of a store whose partitions nobody holds."""
    store.client.flushall()
    return SuspectStore(store.client, store.keys, store.scripts)


def acquire(store, later=0, incarnation="i1"):
    (answer,) = store.leases.acquire([0], "w/0", incarnation, HOST, 10_000, store.now + later)
    return answer


def loss(grant, cut=None, executions=(), entries=()):
    return Loss(0, grant.value, grant.epoch, cut, executions, entries)


def test_the_next_owner_learns_who_was_struck_and_what_was_cut_short(store, suspects):
    dead = acquire(store)
    assert suspects.reap([loss(dead, {"e1": CUT}, ("e2",), ("5-1",))], "ab", "it hung for 12 s") == [0]
    heir = acquire(store, 5, "i2")
    assert (heir.clean, heir.boxed) == (False, True)
    strike = Strike(1, "it hung for 12 s")
    assert heir.suspects.executions == {"e1": Suspect(None, CUT), "e2": Suspect(strike)}
    assert heir.suspects.entries == {"5-1": strike}
    assert suspects.read(0) == heir.suspects


def test_each_box_strikes_once_and_strikes_add_up(store, suspects):
    for box in ("a1", "a2", "a2", "a2", "a3"):
        grant = acquire(store)
        for _ in range(2):
            suspects.reap([loss(grant, {}, ("e1",))], box, f"died of {box}")
    assert suspects.read(0).executions == {"e1": Suspect(Strike(3, "died of a3"))}


def test_without_a_box_nothing_is_said_about_what_ran(store, suspects):
    suspects.reap([loss(acquire(store))], "", "it died")
    heir = acquire(store, 5, "i2")
    assert (heir.clean, heir.boxed, heir.suspects) == (False, False, NO_SUSPECTS)


def test_asking_again_after_a_death_gets_the_same_grant(store, suspects):
    suspects.reap([loss(acquire(store), {"e1": CUT})], "ab", "it died")
    heir = acquire(store, 5, "i2")
    before = store.dump()
    assert acquire(store, 50, "i2") == heir
    assert store.dump() == before


def test_a_vanished_lease_is_retaken_after_a_death_too(store, suspects):
    suspects.reap([loss(acquire(store), {})], "ab", "it died")
    heir = acquire(store, 5, "i2")
    store.client.delete(store.keys.lease(0))
    (renewed,) = store.leases.renew([heir], 10_000)
    assert renewed.retaken


def test_an_owner_that_had_not_seen_to_what_was_left_can_t_say_what_was_cut_short(store, suspects):
    store.client.set(store.keys.seq(0), 7)  # somebody has owned it, and nobody knows how that ended
    unseen = acquire(store)
    assert not unseen.clean
    suspects.reap([loss(unseen, {"e1": CUT}, ("e2",))], "ab", "it died")
    heir = acquire(store, 5, "i2")
    assert (heir.clean, heir.boxed) == (False, False)
    assert heir.suspects.executions == {"e2": Suspect(Strike(1, "it died"))}


def test_an_owner_that_has_seen_to_all_says_so_when_it_renews(store, suspects):
    store.client.set(store.keys.seq(0), 7)
    seen = replace(acquire(store), clean=True)
    for _ in range(2):
        (renewed,) = store.leases.renew([seen], 10_000)
        assert not renewed.retaken
    suspects.reap([loss(seen, {"e1": CUT})], "ab", "it died")
    assert acquire(store, 5, "i2").boxed


def test_only_the_next_grant_is_a_boxed_one(store, suspects):
    suspects.reap([loss(acquire(store), {})], "ab", "it died")
    acquire(store, 5, "i2")
    store.client.delete(store.keys.lease(0))
    assert not acquire(store, 9, "i3").boxed


def test_a_lease_that_lapsed_meanwhile_and_nobody_took_is_reaped_as_well(store, suspects):
    dead = acquire(store)
    store.client.delete(store.keys.lease(0))
    assert suspects.reap([loss(dead, {"e1": CUT})], "ab", "it died") == [0]
    heir = acquire(store, 5, "i2")
    assert heir.boxed
    assert heir.suspects.executions == {"e1": Suspect(None, CUT)}


def test_what_another_has_taken_stays_with_him_but_strikes_count(store, suspects):
    dead = acquire(store)
    store.client.delete(store.keys.lease(0))
    heir = acquire(store, 5, "i2")
    assert suspects.reap([loss(dead, {"e1": CUT}, ("e1",))], "ab", "it died") == []
    assert store.leases.read([0]) == {0: heir.value}
    assert suspects.read(0).executions == {"e1": Suspect(Strike(1, "it died"))}
    (renewed,) = store.leases.renew([heir], 10_000)
    assert not renewed.retaken


def test_a_partition_that_was_released_before_the_death_stays_clean(store, suspects):
    dead = acquire(store)
    store.leases.release([dead])
    assert suspects.reap([loss(dead, {"e1": CUT})], "ab", "it died") == [0]
    heir = acquire(store, 5, "i2")
    assert (heir.clean, heir.suspects) == (True, NO_SUSPECTS)


@pytest.mark.parametrize("forget", ["i", "x", "xi"])
def test_a_commit_forgets_what_it_settles(store, forget):
    store.execute(store.create())
    key = store.keys.suspects(store.keys.partition_of("e1"))
    store.client.hset(key, mapping={"x:e1": "1|ab|it died", "i:e1": "[]", "x:e2": "1|ab|it died"})
    applied = [store.command()]
    assert store.execute(store.commit(forget=forget, applied=applied)) == Committed(seq=ANY)
    left = {f"{kind}:e1".encode() for kind in "xi" if kind not in forget}
    assert set(store.client.hkeys(key)) == {b"x:e2", *left}
    assert sum(store.inbox.lengths()) == 1, "the doorbell is left"
    assert store.execute(store.commit(forget=forget, applied=applied)) == Committed(dup=True, seq=ANY)


def test_a_commit_that_is_fenced_forgets_nothing(store):
    store.execute(store.create())
    key = store.keys.suspects(store.keys.partition_of("e1"))
    store.client.hset(key, "i:e1", "[]")
    assert isinstance(store.execute(store.commit(forget="xi", lease="another")), Fenced)
    assert store.client.hexists(key, "i:e1")


def test_only_the_owner_forgets(store):
    store.client.hset(store.keys.suspects(0), "e:5-1", "1|ab|it died")
    assert isinstance(store.execute(Forget(0, "another", ["e:5-1"])), Fenced)
    assert store.client.hlen(store.keys.suspects(0)) == 1
    assert store.execute(Forget(0, store.lease, ["e:5-1"])) == Forgotten()
    assert not store.client.exists(store.keys.suspects(0))


def test_what_stepwell_did_not_write_is_passed_over(store, suspects):
    odd = {
        "x:e1": "many",
        "x:e2": b"\xff|a|b",
        "e:1-1": "",
        "zz": "1|ab|c",
        "i:e3": "no json",
        "": "",
        "x:e4": "2|ab|ok",
    }
    store.client.hset(store.keys.suspects(0), mapping=odd)
    assert suspects.read(0).executions == {"e3": Suspect(), "e4": Suspect(Strike(2, "ok"))}
    assert acquire(store).suspects.entries == {}
    suspects.reap([Loss(0, "", 0, None, ("e1", "e2"))], "ab", "it died")
    assert suspects.read(0).executions["e1"] == Suspect(Strike(1, "it died"))


def test_a_partition_that_was_held_before_still_answers_held(store, suspects):
    mine = acquire(store)
    assert acquire(store, 5, "i2") == Held(0, mine.value)
