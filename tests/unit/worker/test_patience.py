"""Leases of dead processes of this host are left to their parents for a while, but not by a worker that just began."""

from __future__ import annotations

from stepwell.actors.kit.clock import VirtualClock
from stepwell.worker.patience import Patience


def test_at_its_start_a_worker_takes_over_at_once() -> None:
    assert Patience(VirtualClock().monotonic, lambda info: info == "dead")("dead")


def test_later_the_parent_of_the_dead_comes_first() -> None:
    clock = VirtualClock()
    patience = Patience(clock.monotonic, lambda info: info == "dead")
    clock.advance(60.0)
    seen = []
    for _ in range(5):
        seen.append((patience("dead"), patience("alive")))
        clock.advance(0.5)
    assert seen == [(False, False)] * 4 + [(True, False)]


def test_who_turns_out_to_live_is_not_held_to_be_dead_longer() -> None:
    clock = VirtualClock()
    dead = {"a"}
    patience = Patience(clock.monotonic, lambda info: info in dead)
    clock.advance(60.0)
    assert not patience("a")
    dead.clear()
    clock.advance(5.0)
    assert not patience("a")
    dead.add("a")
    assert not patience("a")
