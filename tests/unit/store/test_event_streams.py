"""Events streams of which a master is away when they are opened."""

from __future__ import annotations

import pytest

from stepwell.core.eventlog import execution_of
from stepwell.core.events import CommandDone
from stepwell.core.records import encode
from stepwell.store.events import EventStreams, Gap, Seen
from stepwell.store.keys import Keys
from stepwell.store.replies import UNREACHABLE, Refused

KEYS = Keys("ns", 1)
AWAY = Refused("master away", UNREACHABLE)


def entry(at: int) -> list[object]:
    told = encode((CommandDone(f"e{at}", "f", "retry", True, "", at, "c"),))
    return [f"{at}-0".encode(), [b"e", told]]


def read(streams: EventStreams, there: list[int]) -> list[str]:
    """One round against a stream that holds entries of these times; what it shows."""
    if streams.stale:
        streams.lost_commands()
        streams.found_again([[entry(at) for at in there[-1:]]])
    ((*_, after),) = streams.read_commands(False, None)
    fresh = [entry(at) for at in there if at > int(str(after).partition("-")[0])]
    streams.take([[[KEYS.events(0).encode(), fresh]] if fresh else None], False)
    return [
        f"gap {shown.why}" if isinstance(shown, Gap) else execution_of(shown.event)
        for shown in streams.ready()
        if isinstance(shown, Gap | Seen)
    ]


@pytest.mark.parametrize(
    ("since_ms", "there", "shown"),
    [
        (None, [100, 900, 1100], ["e100", "e900", "e1100"]),
        (1000, [100, 900, 1100], ["e1100"]),
        (1000, [100, 900], []),
        (1000, [], []),
    ],
)
def test_what_is_older_is_not_shown_once_its_master_is_back(
    since_ms: int | None, there: list[int], shown: list[str]
) -> None:
    streams = EventStreams(KEYS, [0])
    streams.opened([AWAY], since_ms)
    assert streams.stale == {0}
    assert read(streams, there) == shown
    assert read(streams, [*there, 2000]) == ["e2000"]


def test_what_was_shown_and_is_gone_is_told_as_a_gap() -> None:
    streams = EventStreams(KEYS, [0])
    streams.opened([[entry(at) for at in range(10, 5, -1)]], 100)
    assert read(streams, [110, 120]) == ["e110", "e120"]
    streams.all_stale()
    assert read(streams, []) == ["gap lost"]
