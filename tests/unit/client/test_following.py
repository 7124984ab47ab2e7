"""Following events: in which order, from where, through which troubles, until when; and what is told to be missing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell.client.moves import Peek, Recover
from stepwell.core import events
from stepwell.core.errors import StoreError, UnknownExecution, UsageError
from stepwell.core.eventlog import RawEvent
from stepwell.core.records import encode
from stepwell.store.events import CUT, KEPT, LOST, PAGE, Gap, Seen
from stepwell.store.link import LinkDown


def step(execution_id: str, n: int = 1) -> events.Event:
    return events.CommandDone(execution_id, "checkout", f"c{n}", True, "", 1, "x")


def ended(execution_id: str, status: str = "completed") -> events.Event:
    return events.ExecutionEnded(execution_id, "checkout", status, "", 5, 1)


class Feed:
    """Adds entries to the events streams, and reads them through a following."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def add(self, *given: events.Event, at: str = "*") -> str:
        execution_id = given[0].execution_id
        return self.add_raw(self.world.keys.partition_of(execution_id), encode(list(given)), at)

    def add_raw(self, partition: int, raw: bytes, at: str = "*") -> str:
        return self.world.redis.xadd(self.world.keys.events(partition), {"e": raw}, id=at).decode()

    def follow(self, execution_id: str | None = None, since: float | None = None, **how: Any) -> Any:
        given = {"follow": True, "stay": False, **how}
        following = self.world.talk.events(execution_id, since, **given)
        while found := self.world.run(following.more()):
            yield from found

    def all(self, execution_id: str | None = None, since: float | None = None) -> list[Any]:
        return list(self.follow(execution_id, since, follow=False))


@pytest.fixture
def feed(world: Any) -> Feed:
    return Feed(world)


def ids_of(world: Any) -> list[str]:
    """An execution id in each partition."""
    found: dict[int, str] = {}
    for n in itertools.count():
        found.setdefault(world.keys.partition_of(f"e{n}"), f"e{n}")
        if len(found) == world.keys.partitions:
            return [found[partition] for partition in sorted(found)]
    raise AssertionError


def told(found: list[Any]) -> list[tuple[str, str]]:
    return [(each.event.execution_id, each.event.command) for each in found if isinstance(each, Seen)]


def test_what_is_kept_is_told_in_the_order_of_time_over_all_partitions(world, feed):
    ids = ids_of(world)
    for n in range(600):
        feed.add(step(ids[n % 3], n), step(ids[n % 3], n + 1000), at=f"{1000 + n}-0")
    found = feed.all()
    expected = [(ids[n % 3], f"c{m}") for n in range(600) for m in (n, n + 1000)]
    assert told(found) == expected
    assert [each.at for each in found[:3]] == [1000, 1000, 1001]
    assert found[0].partition == world.keys.partition_of(ids[0])


def test_a_crowd_in_one_partition_does_not_spoil_the_order_of_time(world, feed):
    first, second = ids_of(world)[:2]
    for n in range(3 * PAGE):
        feed.add(step(first, n), at=f"{1000 + n}-0")
    feed.add(step(second, 7), at=f"{1000 + 2 * PAGE}-5")
    times = [each.entry for each in feed.all()]
    assert times == sorted(times, key=lambda each: tuple(map(int, each.split("-"))))
    assert len(times) == 3 * PAGE + 1


def test_of_one_execution_only_its_own_events_are_told(world, feed):
    world.start("e1")
    feed.add(step("e1", 1))
    feed.add(step("e2", 2))
    feed.add(step("e1", 3))
    assert told(feed.all("e1")) == [("e1", "c1"), ("e1", "c3")]


def test_an_execution_is_followed_until_it_has_ended(world, feed):
    world.start("e1")
    feed.add(step("e1", 1))

    def end() -> None:
        world.put("e1", status="completed", told=False)
        feed.add(ended("e1"))

    world.later(3, lambda: feed.add(step("e1", 2)))
    world.later(60, end)
    found = list(feed.follow("e1"))
    assert [type(each.event).__name__ for each in found] == ["CommandDone", "CommandDone", "ExecutionEnded"]
    assert 60 <= world.clock.monotonic() < 62


def test_one_that_was_retried_after_its_end_is_followed_on(world, feed):
    world.start("e1")
    feed.add(ended("e1", "error"))
    feed.add(step("e1", 1))
    world.later(9, lambda: world.put("e1", status="completed", told=False))
    world.later(9, lambda: feed.add(ended("e1")))
    assert len(list(feed.follow("e1"))) == 3


def test_who_stays_sees_what_comes_after_the_end(world, feed):
    world.start("e1")
    world.put("e1", status="error", told=False)
    feed.add(ended("e1", "error"))
    world.later(30, lambda: feed.add(step("e1", 2)))
    following = feed.follow("e1", stay=True)
    assert [type(next(following).event).__name__ for _ in range(2)] == ["ExecutionEnded", "CommandDone"]


def test_an_end_that_no_event_tells_of_is_found_in_the_row(world, feed):
    world.start("e1")
    world.later(20, lambda: world.put("e1", status="completed", told=False))
    assert list(feed.follow("e1")) == []
    assert 20 <= world.clock.monotonic() < 30


def test_an_unknown_execution_is_no_silence(feed):
    with pytest.raises(UnknownExecution):
        feed.all("e9")


@pytest.mark.parametrize("since", [-1, float("nan"), float("inf"), True, 10**400])
def test_a_number_is_how_many_seconds_back(world, since):
    with pytest.raises(UsageError, match=r"how far back from now.*number of seconds"):
        world.talk.events(None, since, True, False)


@pytest.mark.parametrize("since", ["soon", b"1", datetime(2026, 1, 2)])
def test_since_is_a_time_as_list_takes_it(world, since):
    with pytest.raises(UsageError, match="time"):
        world.talk.events(None, since, True, False)


@pytest.mark.parametrize("way", ["ms", "iso", "datetime", "ago", "timedelta", "seconds"])
def test_any_time_is_by_the_servers_clock(world, feed, way):
    now = world.redis.time()[0] * 1000
    world.clock.advance_to(world.clock.monotonic() + 1_000_000)  # this one's is elsewhere
    for at in (now - 90_000, now - 30_000):  # the server's goes on while it is asked
        feed.add(step("e1", at), at=f"{at}-0")
    minute = datetime.fromtimestamp((now - 60_000) / 1000, UTC)
    ways = {"ms": str(now - 60_000), "iso": minute.isoformat(), "datetime": minute}
    ways |= {"ago": "1m ago", "timedelta": timedelta(minutes=1), "seconds": 60}
    assert [command for _, command in told(feed.all(since=ways[way]))] == [f"c{now - 30_000}"]


def test_a_time_that_is_still_to_come_begins_with_what_comes_now(world, feed):
    now = world.redis.time()[0] * 1000
    feed.add(step("e1", 1), at=f"{now - 1000}-0")
    world.later(2, lambda: feed.add(step("e1", 2), at=f"{now + 1}-0"))
    assert told([next(feed.follow(since="9999-01-01"))]) == [("e1", "c2")]


def test_since_zero_tells_only_what_comes_now(world, feed):
    ids = ids_of(world)
    for n in range(20):
        feed.add(step(ids[0], n), at=f"{1000 + n}-0")
    world.later(2, lambda: feed.add(step(ids[0], 99), at="1019-1"))  # the server's clock was set back meanwhile
    world.later(3, lambda: feed.add(step(ids[1], 100), at="5-0"))
    following = feed.follow(since=0)
    assert told([next(following), next(following)]) == [(ids[0], "c99"), (ids[1], "c100")]


def test_since_some_seconds_leaves_out_what_is_older(world, feed):
    now = world.redis.time()[0] * 1000
    for back in (100_000, 90_000, 30_000, 1_000):
        feed.add(step("e1", back), at=f"{now - back}-0")
    assert [command for _, command in told(feed.all(since=60))] == ["c30000", "c1000"]


def test_after_an_outage_nothing_is_told_twice_and_nothing_is_missed(world, feed):
    for n in range(3):
        feed.add(step("e1", n))
    following = feed.follow()
    found = [next(following) for _ in range(3)]
    world.later(1, lambda: world.go_away(5))
    world.later(2, lambda: feed.add(step("e1", 3)))
    world.later(9, lambda: feed.add(step("e1", 4)))
    found += [next(following), next(following)]
    assert [command for _, command in told(found)] == ["c0", "c1", "c2", "c3", "c4"]
    assert world.kinds(Recover) >= 1


def test_a_server_that_comes_back_with_smaller_ids_is_read_all_the_same(world, feed):
    for n in range(8):
        feed.add(step("e1", n), at=f"{5000 + n}-0")
    following = feed.follow()
    found = [next(following) for _ in range(8)]
    key = world.keys.events(world.keys.partition_of("e1"))

    def restart() -> None:
        """The last three are lost, and its clock is a little behind."""
        world.redis.xdel(key, "5005-0", "5006-0", "5007-0")
        rest = world.redis.xrange(key)
        world.redis.delete(key)
        for entry_id, fields in rest:
            world.redis.xadd(key, fields, id=entry_id)
        feed.add(step("e1", 50), at="5004-7")
        feed.add(step("e1", 51), at="5006-0")  # the id of another one before
        world.go_away(1)

    world.later(1, restart)
    found += [next(following), next(following)]
    assert [command for _, command in told(found)] == [*(f"c{n}" for n in range(8)), "c50", "c51"]


def test_a_stream_that_was_set_far_back_is_a_gap(world, feed):
    entries = 3 * PAGE
    for n in range(entries):
        feed.add(step("e1", n), at=f"{50_000 + n}-0")
    following = feed.follow()
    found = [next(following) for _ in range(entries)]
    key = world.keys.events(world.keys.partition_of("e1"))

    def replace() -> None:
        world.redis.delete(key)
        feed.add(step("e1", 1), at="10-0")
        world.go_away(1)

    world.later(1, replace)
    world.later(4, lambda: feed.add(step("e1", 2), at="11-0"))
    found += [next(following), next(following)]
    assert found[-2] == Gap(world.keys.partition_of("e1"), f"{50_000 + entries - 1}-0", "10-0", LOST)
    assert told(found)[-1] == ("e1", "c2")


def test_events_that_were_cut_off_before_they_were_read_are_told(world, feed):
    feed.add(step("e1", 0), at="5-0")
    following = feed.follow()
    assert told([next(following)]) == [("e1", "c0")]
    partition = world.keys.partition_of("e1")
    key = world.keys.events(partition)

    def flood() -> None:
        with world.redis.pipeline() as pipe:
            for n in range(KEPT + 500):
                pipe.xadd(key, {"e": encode([step("e1", n)])}, id=f"{1000 + n}-0")
            pipe.execute()
        world.redis.xtrim(key, maxlen=KEPT, approximate=False)

    world.later(1, flood)
    gap, first = next(following), next(following)
    assert gap == Gap(partition, "5-0", "1500-0", CUT)
    assert first.entry == "1500-0"


def test_many_events_are_no_gap(world, feed):
    for n in range(2 * PAGE):
        feed.add(step("e1", n), at=f"{1000 + n}-0")
    assert not [each for each in feed.all() if isinstance(each, Gap)]


def test_a_newer_versions_events_and_garbage_are_shown_and_harm_nobody(world, feed):
    partition = world.keys.partition_of("e1")
    world.start("e1")
    feed.add_raw(partition, b'[{"type":"MoonRose","execution_id":"e1"}]')
    feed.add_raw(partition, b"\xff")
    world.redis.xadd(world.keys.events(partition), {"foreign": b"x"})
    feed.add(step("e1", 1))
    kinds = [each.event.kind if isinstance(each.event, RawEvent) else "known" for each in feed.all()]
    assert kinds == ["MoonRose", "garbage", "garbage", "known"]
    mine = [each.event.kind if isinstance(each.event, RawEvent) else "known" for each in feed.all("e1")]
    assert mine == ["MoonRose", "known"]


def test_a_strangers_key_hides_no_other_partition(world, feed):
    ids = ids_of(world)
    world.redis.set(world.keys.events(1), "a stranger's")
    feed.add(step(ids[0], 1))
    feed.add(step(ids[2], 2))
    world.later(2, lambda: feed.add(step(ids[3], 3)))
    following = feed.follow()
    assert [command for _, command in told([next(following) for _ in range(3)])] == ["c1", "c2", "c3"]


def test_where_all_keys_are_strangers_an_error_says_so(world, feed):
    for partition in range(world.keys.partitions):
        world.redis.set(world.keys.events(partition), "x")
    with pytest.raises(StoreError, match="events streams can't be read"):
        feed.all()


def test_an_outage_of_more_than_a_minute_is_an_error(world, feed):
    feed.add(step("e1", 1))
    following = feed.follow()
    next(following)
    world.later(1, lambda: world.go_away(600))
    with pytest.raises(LinkDown):
        next(following)


def test_who_waits_asks_once_a_second_over_all_partitions(world, feed):
    world.later(100, lambda: feed.add(step("e1", 1)))
    next(feed.follow())
    assert world.kinds(Peek) <= 100 + 5


def test_who_wants_to_be_told_waits_out_any_outage_and_misses_nothing(world, feed):
    said: list[tuple[float, Any]] = []
    feed.add(step("e1", 0))
    following = feed.follow(away=lambda error: said.append((world.clock.monotonic(), error)))
    found = [next(following)]
    began = world.clock.monotonic()
    world.later(1, lambda: world.go_away(3600))
    world.later(1800, lambda: feed.add(step("e1", 1)))
    found += [next(following)]
    assert told(found) == [("e1", "c0"), ("e1", "c1")]
    (at, why), (back, nothing) = said
    assert isinstance(why, LinkDown)
    assert nothing is None
    assert at - began < 4
    assert 3600 <= back - began < 3604
    assert 3600 <= world.kinds(Recover) < 3700  # a try a second, once the pauses have grown


def test_each_outage_is_told_anew_and_a_short_one_is_not(world, feed):
    said: list[bool] = []
    feed.add(step("e1", 0))
    following = feed.follow(away=lambda error: said.append(error is not None))
    next(following)
    for at, lasts in ((10, 0.5), (100, 300), (1000, 300)):
        world.later(at, lambda lasts=lasts: world.go_away(lasts))
    world.later(2000, lambda: feed.add(step("e1", 1)))
    next(following)
    assert said == [True, False, True, False]


def test_a_server_that_can_t_be_started_again_is_an_outage_too(world, feed):
    class Reviving(type(world)):
        """Its embedded server can't be started for a while."""

        def _carry_out(self, move):
            answer = super()._carry_out(move)
            if isinstance(move, Recover) and self.clock.monotonic() < self.away_until:
                raise StoreError("no valkey-server")
            return answer

    world.__class__ = Reviving
    said: list[Any] = []
    feed.add(step("e1", 0))
    following = feed.follow(away=said.append)
    next(following)
    world.later(1, lambda: world.go_away(90))
    world.later(200, lambda: feed.add(step("e1", 1)))
    assert told([next(following)]) == [("e1", "c1")]
    assert len(said) == 2


def test_what_was_read_when_the_row_could_not_be_is_told_later(world, feed):
    world.start("e1")
    following = feed.follow("e1")
    world.later(7, lambda: feed.add(step("e1", 1)))

    def ends() -> None:
        world.put("e1", status="completed", told=False)
        feed.add(ended("e1"))
        world.lose_reply_of(*["HMGET"] * 4)  # the look at the row, and its repeats

    world.later(9, ends)
    kinds = [type(each.event).__name__ for each in following]
    assert kinds == ["CommandDone", "ExecutionEnded"]
