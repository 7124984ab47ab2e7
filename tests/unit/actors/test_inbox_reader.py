"""What the reader reads when partitions come and go while the server blinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell.actors.holdings import Holdings
from stepwell.actors.inbox import BEGUN_MAX, SWEEP_SECONDS, InboxReader
from stepwell.actors.kit.clock import VirtualClock
from stepwell.actors.messages import InboxRead, Listed
from stepwell.actors.store_events import StoreTrouble
from stepwell.store.census import Counts, Lying
from stepwell.store.inbox import Entry
from stepwell.store.link import LinkDown


class Blinks:
    """A store whose first reading breaks; what happens meanwhile is up to the test."""

    unreadable: Mapping[int, str] = {}
    away: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    clustered = True

    def __init__(self) -> None:
        self.meanwhile: list[Any] = []
        self.read_from: list[list[int]] = []
        self.entries: list[Entry] = []
        self.windows: list[dict[int, tuple[float, float]]] = []
        self.swept: list[int] = []
        self.down = False
        self.counts = 0

    def read(self, after: Mapping[int, str], *_: object) -> list[Any]:
        self.read_from.append(sorted(after))
        if self.down or self.silent.issuperset(after):
            raise LinkDown("gone")
        if self.meanwhile:
            self.meanwhile.pop()()
            raise LinkDown("gone for a moment")
        return [each for each in self.entries if each.entry_id > after.get(each.partition, "9")]

    def last_event_ms(self, partitions: list[int]) -> list[int]:
        return [0 for _ in partitions]

    def parked(self, partitions: list[int]) -> list[list[str]]:
        return [[] for _ in partitions]

    def falling_due(self, windows: Mapping[int, tuple[float, float]]) -> list[tuple[int, list[Any]]]:
        self._require_answers(windows)
        self.windows.append(dict(windows))
        return [(partition, []) for partition in windows]

    def scan(self, *_: object) -> list[Entry]:
        return []

    def due(self, partition: int, *_: object) -> list[Any]:
        self._require_answers([partition])
        self.swept.append(partition)
        return []

    def count(self, _read: object, begun: Sequence[tuple[int, str]] = ()) -> Counts:
        self.counts += 1
        return Counts({}, {}, {}, Lying(there=frozenset(begun)))

    def _require_answers(self, partitions: Iterable[int]) -> None:
        if not self.away.isdisjoint(partitions):
            raise LinkDown("a master of the cluster is away")


def reader_of(
    store: Blinks,
    clock: VirtualClock,
    on_trouble: Callable[[], None] = lambda: None,
    observer: Callable[[Any], None] = lambda _: None,
    told: Callable[[Any], None] = lambda _: None,
) -> InboxReader:
    reader = InboxReader(store, Holdings(clock.monotonic), clock, clock.advance, on_trouble, observer)  # type: ignore[arg-type]
    reader.dispatcher = SimpleNamespace(tell=told)  # type: ignore[assignment]
    return reader


@pytest.mark.pain(11)
def test_a_master_that_is_away_holds_up_no_look_no_sweep_and_no_count_of_the_others() -> None:
    clock, store = VirtualClock(), Blinks()
    reader = reader_of(store, clock)

    def seconds(count: int) -> None:
        store.windows, store.swept, store.counts = [], [], 0
        for _ in range(count):
            reader.run_once(None)
            clock.advance(1)

    reader.gained(0)
    reader.gained(1)
    seconds(12)
    [(_, until)] = {windows[1] for windows in store.windows[-1:]}
    store.away = frozenset({1})
    seconds(12)
    assert [set(windows) for windows in store.windows] == [{0}] * 12
    assert (set(store.swept), store.counts) == ({0}, 2)
    store.away = frozenset()
    seconds(12)
    assert store.windows[0][1][0] == until, "what fell due there meanwhile is looked for"
    assert set(store.swept) == {0, 1}


@pytest.mark.pain(11)
def test_a_partition_that_can_not_be_taken_over_as_its_master_is_away_holds_up_no_other() -> None:
    clock, store = VirtualClock(), Blinks()
    reader = reader_of(store, clock)
    reader.gained(0)
    reader.run_once(None)
    store.silent = frozenset({1})
    reader.gained(1)
    store.read_from = []
    for _ in range(100):
        reader.run_once(None)
        clock.advance(0.05)
    assert store.read_from.count([0]) > 50
    assert 5 < store.read_from.count([1]) < 20, "a try may take as long as a timeout"
    assert [0, 1] not in store.read_from
    store.silent = frozenset()
    for _ in range(20):
        reader.run_once(None)
        clock.advance(0.05)
    assert store.read_from[-1] == [0, 1]


@pytest.mark.pain(11)
def test_of_new_partitions_those_whose_master_is_away_hold_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = VirtualClock(), Blinks()
    told: list[Any] = []
    seen: list[Any] = []
    reader = reader_of(store, clock, observer=seen.append, told=told.append)
    for partition in range(20):
        reader.gained(partition)
    store.away = frozenset({0, 9})
    store.silent = store.away
    for _ in range(200):
        reader.run_once(None)
        clock.advance(0.05)
    there = sorted(set(range(20)) - store.away)
    listed = [message.partition for message in told if isinstance(message, Listed)]
    assert sorted(listed) == there, "each once"
    assert store.read_from.count(there) > 50
    assert store.read_from.count([0, 9]) > 5, "they are tried again and again"
    assert set(store.swept) == set(there), "the others are swept meanwhile"
    assert {(event.part, event.kind) for event in seen if isinstance(event, StoreTrouble)} >= {("inbox", "cluster")}
    assert caplog.text.count("partitions that can't be taken over yet: 2 (their master is away)") == 1
    store.away = store.silent = frozenset()
    for _ in range(20):
        reader.run_once(None)
        clock.advance(0.05)
    assert store.read_from[-1] == list(range(20))
    assert sorted(message.partition for message in told if isinstance(message, Listed)) == list(range(20))


@pytest.mark.pain(11)
def test_while_a_partition_can_not_be_taken_over_the_others_are_read_on_from_where_they_are() -> None:
    clock, store = VirtualClock(), Blinks()
    told: list[Any] = []
    troubles: list[None] = []
    reader = reader_of(store, clock, on_trouble=lambda: troubles.append(None), told=told.append)
    store.entries = [Entry(0, "1-0", {}), Entry(0, "2-0", {})]
    reader.gained(0)
    reader.run_once(None)
    store.silent = frozenset({1})
    reader.gained(1)
    store.counts = 0
    for _ in range(200):
        reader.run_once(None)
        clock.advance(0.05)
    assert [len(message.entries) for message in told if isinstance(message, InboxRead)] == [2]
    assert len(troubles) == 1
    assert store.counts <= 3, "with each sweep, as what is owned does not change"
    store.silent = frozenset()
    for _ in range(30):
        reader.run_once(None)
        clock.advance(0.05)
    assert store.read_from[-1] == [0, 1]
    assert store.counts >= 3


def test_where_all_partitions_are_at_one_server_a_broken_connection_sends_all_back_to_the_start() -> None:
    clock, store = VirtualClock(), Blinks()
    store.clustered = False
    told: list[Any] = []
    reader = reader_of(store, clock, told=told.append)
    store.entries = [Entry(0, "2-0", {})]
    reader.gained(0)
    reader.run_once(None)
    reader.gained(1)
    store.meanwhile.append(lambda: store.entries.insert(0, Entry(0, "1-0", {})))
    for _ in range(20):
        reader.run_once(None)
        clock.advance(0.05)
    assert [len(message.entries) for message in told if isinstance(message, InboxRead)] == [1, 2]


@pytest.mark.pain(42)
def test_entries_of_partitions_that_are_not_read_hide_no_stuck_inbox() -> None:
    clock, store = VirtualClock(), Blinks()
    reader = reader_of(store, clock)
    unapplied = reader._holdings.unapplied
    now = clock.now_ms()
    for number in range(2 * BEGUN_MAX):
        unapplied.begin(1, f"{number}-0", now - 9_000_000 + number)
    unapplied.begin(0, "7-0", now - 60_000)
    reader.gained(0)
    reader.run_once(None)
    assert unapplied.lag == pytest.approx(60, abs=1)
    among = unapplied.oldest(3, among=[1])
    assert [entry_id for _, _, entry_id in among] == ["0-0", "1-0", "2-0"]


def test_it_is_known_since_when_nothing_could_be_counted() -> None:
    clock, store = VirtualClock(), Blinks()
    reader = reader_of(store, clock)
    clock.advance(100)
    reader.run_once(None)
    assert reader.counted_ago < 1, "it owns nothing: all of that is counted"
    reader.gained(0)
    for _ in range(8):
        reader.run_once(None)
        clock.advance(1)
    assert reader.counted_ago <= SWEEP_SECONDS
    began = clock.monotonic() - reader.counted_ago
    store.down = True
    for _ in range(60):
        reader.run_once(None)
        clock.advance(1)
    assert reader.counted_ago == clock.monotonic() - began
    store.down = False
    reader.run_once(None)
    assert reader.counted_ago < 1


def test_a_partition_that_is_lost_while_its_taking_over_fails_is_not_read_on() -> None:
    clock = VirtualClock()
    store = Blinks()
    reader = reader_of(store, clock)
    reader.gained(0)
    reader.gained(1)
    store.meanwhile.append(lambda: reader.lost(0))
    reader.run_once(None)
    for _ in range(3):
        reader.run_once(None)
    assert store.read_from == [[0, 1], *[[1]] * (len(store.read_from) - 1)]
    assert len(store.read_from) > 3
