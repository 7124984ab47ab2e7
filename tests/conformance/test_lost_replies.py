"""Whatever was sent may be sent again: a repeated script changes nothing, whatever happened to its reply."""

from __future__ import annotations

import pytest

from stepwell.core.records import CutShort
from stepwell.store import letters
from stepwell.store.ingress import GROUP, BuryIngress
from stepwell.store.leases import Grant
from stepwell.store.requests import DROP, Forget, Load, Unlist
from stepwell.store.scripts import SCRIPT_NAMES
from stepwell.store.suspects import Loss, SuspectStore


def _create(store):
    return lambda: store.execute(store.create("new", event=b"1"))


def _commit(store):
    request = store.commit(applied=[store.command()], event=b"1", status_to="completed", live=DROP, ended=True)
    return lambda: store.execute(request)


def _commit_of_a_backoff(store):
    request = store.commit(status_to="waiting", live="5", flow="checkout", backoff="5")
    return lambda: store.execute(request)


def _commit_of_its_end(store):
    _commit_of_a_backoff(store)()
    request = store.commit(expected_rev=2, commit_id="c2", live="0", flow="checkout", backoff=DROP)
    return lambda: store.execute(request)


def _restore(store):
    return lambda: store.execute(store.restore())


def _dead_letter(store):
    request = store.dead_letter(store.inbox.send(0, {"x": "y"}), command_id="c", outcome=b"1")
    return lambda: store.execute(request)


def _dead_replay(store):
    store.execute(store.dead_letter(store.inbox.send(0, {"x": "y"})))
    (dead,) = store.catalog.dead(1)
    (command,) = letters.replay(store.keys, store.scripts, dead.source, dead.letter_id).commands
    return lambda: store.link.call([command])


def _ingress_dead_letter(store):
    store.ingress.ensure()
    store.client.xadd(store.keys.ingress, {"x": "y"})
    (entry,) = store.ingress.read(None, 1)
    request = BuryIngress(entry.entry_id, "malformed", "odd", store.now)
    return lambda: store.execute(request)


def _ingress_forget(store):
    store.ingress.ensure()
    store.ingress.read(None, 1)
    store.client.execute_command("XGROUP", "CREATECONSUMER", store.keys.ingress, GROUP, "gone")
    return lambda: store.ingress.forget("gone")


def _unlist(store):
    part = store.keys.parts[0]
    store.client.zadd(part.live, {"ghost": 0})
    return lambda: store.execute(Unlist(0, "ghost", store.lease))


def _grant(store) -> Grant:
    store.client.delete(store.keys.lease(0))
    (grant,) = store.leases.acquire([0], "w", "i", "h", 10_000, store.now)
    return grant


def _acquire(store):
    store.leases.release([_grant(store)])
    return lambda: store.leases.acquire([0], "w", "i", "h", 10_000, store.now + 9)


def _renew(store):
    grant = _grant(store)
    return lambda: store.leases.renew([grant], 10_000)


def _retake(store):
    grant = _grant(store)
    store.client.delete(store.keys.lease(0))
    return lambda: store.leases.renew([grant], 10_000)


def _release(store):
    grant = _grant(store)
    return lambda: store.leases.release([grant])


def _free(store):
    grant = _grant(store)
    return lambda: store.leases.free(0, grant.value)


def _reap(store):
    grant = _grant(store)
    cut = {"e1": (CutShort("t", 1, True),)}
    loss = Loss(0, grant.value, grant.epoch, cut, ("e1",), ("1-1",))
    return lambda: SuspectStore(store.client, store.keys, store.scripts).reap([loss], "b0", "it died")


def _reap_a_lapsed_lease(store):
    loss = Loss(0, "", 0, {}, ("e1",))
    return lambda: SuspectStore(store.client, store.keys, store.scripts).reap([loss], "b0", "it died")


def _acquire_after_a_death(store):
    _reap(store)()
    return lambda: store.leases.acquire([0], "w", "i", "h", 10_000, store.now + 9)


def _forget(store):
    store.client.hset(store.keys.suspects(0), mapping={"x:e1": "1|b0|it died", "i:e1": "[]"})
    return lambda: store.execute(Forget(0, store.lease, ["x:e1", "i:e1"]))


CASES = {
    "create": _create,
    "commit": _commit,
    "commit, of a backoff": _commit_of_a_backoff,
    "commit, of a backoff's end": _commit_of_its_end,
    "restore": _restore,
    "dead_letter": _dead_letter,
    "dead_letter, of the ingress": _ingress_dead_letter,
    "dead_replay": _dead_replay,
    "ingress_forget": _ingress_forget,
    "unlist": _unlist,
    "lease_acquire": _acquire,
    "lease_renew": _renew,
    "lease_renew, taking it back": _retake,
    "lease_release": _release,
    "lease_free": _free,
    "lease_reap": _reap,
    "lease_reap, the lease has lapsed": _reap_a_lapsed_lease,
    "lease_acquire, after a death": _acquire_after_a_death,
    "suspects_forget": _forget,
}


def test_every_script_has_its_case():
    assert {case.partition(",")[0] for case in CASES} == set(SCRIPT_NAMES)


@pytest.mark.parametrize("case", CASES)
def test_sent_again_it_changes_nothing(store, case):
    store.execute(store.create())
    send = CASES[case](store)
    before = store.dump()
    send()
    after = store.dump()
    assert case == "lease_renew" or after != before
    for _ in range(3):
        send()
        assert store.dump() == after


def test_reading_changes_nothing(store):
    store.execute(store.create())
    before = store.dump()
    store.execute(Load("e1"))
    store.inbox.read(dict.fromkeys(range(4), "0-0"), None, 10)
    list(store.inbox.unfinished(0))
    store.catalog.counts()
    assert store.dump() == before
