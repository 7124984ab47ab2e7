"""Whether a request that failed is sent again: by what went wrong, and for how long."""

from __future__ import annotations

import pytest
from redis import exceptions as rx

from stepwell.client.repeats import FAILOVER_SECONDS, REPEAT_AFTER, Repeats
from stepwell.core.errors import StoreError
from stepwell.store.link import LinkDown, StoreRefused


def broken(cause: BaseException) -> LinkDown:
    error = LinkDown("broke after 0 of 1 replies")
    error.__cause__ = cause
    return error


def demoted() -> LinkDown:
    """As redis-py tells it of a primary that Sentinels watch."""
    cause = rx.ConnectionError("The previous master is now a slave")
    cause.__context__ = rx.ReadOnlyError("You can't write against a read only replica.")
    return broken(cause)


def pauses(error: StoreError, repeats: Repeats) -> list[float]:
    found = []
    while (pause := repeats.pause(error)) is not None:
        found.append(pause)
        assert len(found) < 100, "it ends"
    return found


@pytest.mark.pain(11)
@pytest.mark.parametrize(
    "error",
    [
        StoreRefused("You can't write against a read only replica.", "READONLY"),
        StoreRefused("Link with MASTER is down", "MASTERDOWN"),
        StoreRefused("Redis is loading the dataset in memory", "LOADING"),
        demoted(),
    ],
)
def test_a_failover_is_waited_for_a_few_seconds_with_growing_pauses(error):
    found = pauses(error, Repeats())
    assert sum(found) == pytest.approx(FAILOVER_SECONDS)
    assert found[:5] == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert max(found) == 1


@pytest.mark.parametrize(("within", "most"), [(0.0, 0.0), (0.3, 0.3), (60.0, FAILOVER_SECONDS)])
def test_a_failover_is_waited_for_within_the_time_that_the_caller_has(within, most):
    found = pauses(StoreRefused("You can't write", "READONLY"), Repeats(within=within))
    assert sum(found) == pytest.approx(most)


def test_what_comes_after_a_failover_has_its_own_few_tries():
    repeats = Repeats()
    assert repeats.pause(demoted()) == 0.05
    assert pauses(broken(rx.ConnectionError("reset")), repeats) == list(REPEAT_AFTER)


@pytest.mark.parametrize(
    ("error", "met", "tries"),
    [
        (broken(rx.ConnectionError("reset")), True, 3),
        (broken(rx.ConnectionError("reset")), False, 3),
        (broken(rx.TimeoutError("Timeout reading from socket")), True, 3),
        (broken(rx.TimeoutError("Timeout reading from socket")), False, 0),
        (broken(TimeoutError("timed out")), False, 0),
        (broken(rx.AuthenticationError("WRONGPASS")), True, 0),
        (StoreRefused("the slot moves", "TRYAGAIN"), True, 3),
        (StoreRefused("command not allowed", "OOM"), True, 0),
    ],
)
def test_others_are_tried_again_a_few_times_or_not_at_all(error, met, tries):
    assert pauses(error, Repeats(met)) == list(REPEAT_AFTER[:tries])
