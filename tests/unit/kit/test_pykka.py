"""The few things that the kit takes from Pykka, so that a new version of it can't change them unseen."""

from __future__ import annotations

import sys

import pykka
import pytest

from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.ref import PooledRef
from stepwell.actors.kit.reply import Reply
from stepwell.actors.kit.scheduler import VirtualScheduler


def test_pooled_classes_are_pykkas() -> None:
    assert issubclass(PooledActor, pykka.Actor)
    assert issubclass(PooledRef, pykka.ActorRef)
    assert issubclass(Reply, pykka.ThreadingFuture)


def test_every_public_method_of_a_ref_is_ours() -> None:
    # What Pykka's own would do needs fields that a pooled ref does not have.
    public = {
        name for name in dir(pykka.ActorRef) if not name.startswith("_") and callable(getattr(pykka.ActorRef, name))
    }
    assert public == {"ask", "is_alive", "proxy", "stop", "tell"}
    assert public <= set(vars(PooledRef))


def test_every_abstract_method_of_an_actor_is_ours() -> None:
    assert pykka.Actor.__abstractmethods__ == {"_create_actor_inbox", "_create_future", "_start_actor_loop"}
    assert PooledActor.__abstractmethods__ == frozenset()


def test_the_hooks_of_an_actor_have_the_names_we_call() -> None:
    assert {"on_start", "on_receive", "on_stop", "on_failure"} <= set(vars(pykka.Actor))
    scheduler = VirtualScheduler()
    ref = scheduler.spawn(PooledActor, name="plain")
    scheduler.run_until_idle()
    assert ref.stop() is True


def test_a_future_gives_its_value_its_error_and_its_timeout() -> None:
    value, error, never = Reply(), Reply(), Reply()
    value.set(42)
    assert value.get(timeout=0) == 42
    assert value.get(timeout=0) == 42
    try:
        raise LookupError("broken")
    except LookupError:
        error.set_exception(sys.exc_info())
    with pytest.raises(LookupError, match="broken"):
        error.get(timeout=0)
    with pytest.raises(pykka.Timeout):
        never.get(timeout=0)
    assert (value.answered, error.answered, never.answered) == (True, True, False)
