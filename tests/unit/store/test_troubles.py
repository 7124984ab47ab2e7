"""Each way in which Redis can't be used has a word that stays the same."""

from __future__ import annotations

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from stepwell.core.errors import StoreError
from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.replies import TRANSIENT
from stepwell.store.troubles import KINDS, kind_of, kind_of_refusal


def demoted() -> RedisConnectionError:
    """As redis-py tells it of a primary that Sentinels watch."""
    error = RedisConnectionError("The previous master is now a slave")
    error.__context__ = ReadOnlyError("You can't write against a read only replica.")
    return error


def raised(error: LinkDown, cause: Exception | None) -> LinkDown:
    try:
        raise error from cause
    except LinkDown as down:
        return down


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (raised(LinkDown("no connection", sent=False), RedisConnectionError("refused")), "unreachable"),
        (raised(LinkDown("no connection", sent=False), RedisTimeoutError("connect")), "unreachable"),
        (raised(LinkDown("broke after 1 of 3"), RedisConnectionError("reset")), "broken"),
        (raised(LinkDown("broke after 0 of 3"), RedisTimeoutError("timed out")), "timeout"),
        (raised(LinkDown("broke after 0 of 3"), TimeoutError("no answer in time")), "timeout"),
        (raised(LinkDown("broke after 0 of 3"), demoted()), "readonly"),
        (StoreRefused("You can't write against a read only replica.", "READONLY"), "readonly"),
        (StoreRefused("command not allowed when used memory > 'maxmemory'", "OOM"), "full"),
        (StoreRefused("Redis is loading the dataset in memory", "LOADING"), "loading"),
        (StoreRefused("Redis is busy running a script", "BUSY"), "busy"),
        (StoreError("NOPERM"), "refused"),
    ],
)
def test_an_error_has_its_kind(error: StoreError, kind: str) -> None:
    assert kind_of(error) == kind


def test_whatever_the_server_refuses_for_a_while_has_a_word_of_its_own() -> None:
    assert {kind_of_refusal(word) for word in TRANSIENT} == KINDS - {"broken", "timeout", "refused"}
    assert kind_of_refusal("A NEW ONE") == "refused"
