"""The first in an order out of many lists, each read no further than needed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.core.status import STATUSES
from stepwell.store.finding import Wanted, choices, lists_of_choice
from stepwell.store.keys import Keys
from stepwell.store.merging import READ_MOST, LatestFirst, Listed, Merge, SoonestFirst

ANYTHING = Wanted()


class Lists:
    """Sorted sets in memory, which answer what a Merge asks, as Redis would."""

    def __init__(self, lists: dict[str, dict[str, int]]) -> None:
        self.lists = lists
        self.reads: Counter[str] = Counter()
        self.rounds = 0

    def answer(self, commands):
        self.rounds += 1
        return [self._range(*command) for command in commands]

    def _range(self, name, key, most, least, _scores, _limit, offset, count):
        assert (name, offset) in (("ZREVRANGEBYSCORE", 0), ("ZRANGEBYSCORE", 0))
        is_reversed = name == "ZREVRANGEBYSCORE"
        most, least = (most, least) if is_reversed else (least, most)
        found = sorted(((at, each) for each, at in self.lists[key].items()), reverse=is_reversed)
        found = [(at, each) for at, each in found if _above(at, least) and _below(at, most)][:count]
        self.reads[key] += len(found)
        return [word for at, each in found for word in (each.encode(), str(at).encode())]

    def read(self, merge, count):
        while commands := merge.missing(count):
            merge.take(self.answer(commands))
        return merge.give(count)

    def all(self, wanted=ANYTHING):
        least, most = wanted.since_ms or 0, 10**15 if wanted.until_ms is None else wanted.until_ms
        found = {Listed(at, each) for held in self.lists.values() for each, at in held.items() if least <= at <= most}
        return sorted(found, reverse=True)


def _above(at, least):
    return least == "(-inf" or at >= int(least)


def _below(at, most):
    return most == "(+inf" or at <= int(most)


# Few times, so that many stand by the same one.
held = st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(0, 6), max_size=40)
ids = st.integers(1, 5)


@st.composite
def worlds(draw):
    """Lists that share no execution, as those of partitions."""
    lists = draw(st.lists(held, min_size=1, max_size=5))
    return Lists({f"l{n}": {f"{each}{n}": at for each, at in names.items()} for n, names in enumerate(lists)})


@pytest.mark.pain(20)
@given(worlds(), ids, ids, st.none() | st.integers(0, 6), st.none() | st.integers(0, 6))
def test_pages_put_together_are_all_in_order_and_each_once(world, count, at_once, since, until):
    wanted = Wanted(since_ms=since, until_ms=until)
    found, after = [], None
    while page := world.read(Merge(list(world.lists), LatestFirst(wanted), after, at_once), count):
        assert len(page) <= count
        found += page
        after = page[-1]
    assert found == world.all(wanted)


@pytest.mark.pain(42)
@given(worlds(), ids, ids)
def test_what_is_due_is_read_in_the_other_order(world, count, at_once):
    found, after = [], None
    while page := world.read(Merge(list(world.lists), SoonestFirst(), after, at_once), count):
        found += page
        after = page[-1]
    assert found == world.all()[::-1]


@settings(max_examples=200)
@given(worlds(), ids, ids, st.data())
def test_what_backs_off_again_by_a_later_time_hides_nobody_else(world, count, at_once, data):
    before = world.all()[::-1]
    again: set[str] = set()
    found: list[Listed] = []
    merge = Merge(list(world.lists), SoonestFirst(), None, at_once)
    while not merge.over:
        found += world.read(merge, count)
        for names in world.lists.values():
            for each in sorted(data.draw(st.sets(st.sampled_from(sorted(names)), max_size=2)) if names else ()):
                if found and len(again) < 20:
                    again.add(each)
                    names[each] = found[-1].at_ms + data.draw(st.integers(1, 9))
    ids = [each.execution_id for each in found]
    assert len(set(ids)) == len(ids), "nobody is given twice"
    assert [each for each in found if each.execution_id not in again] == [
        each for each in before if each.execution_id not in again
    ]


@given(worlds(), ids, ids)
def test_one_search_goes_on_until_all_is_given(world, count, at_once):
    merge = Merge(list(world.lists), LatestFirst(Wanted()), None, at_once)
    found = []
    while not merge.over:
        found += world.read(merge, count)
    assert found == world.all()


@settings(max_examples=200)
@given(worlds(), ids, ids, st.data())
def test_what_did_not_change_meanwhile_is_neither_skipped_nor_repeated(world, count, at_once, data):
    before = world.all()
    moved: set[str] = set()
    found, after, time = [], None, 10
    while page := world.read(Merge(list(world.lists), LatestFirst(Wanted()), after, at_once), count):
        found += page
        after = page[-1]
        for key, names in world.lists.items():
            for each in sorted(data.draw(st.sets(st.sampled_from(sorted(names)), max_size=2)) if names else ()):
                moved.add(each)
                if data.draw(st.booleans()):
                    del names[each]  # it left the list
                else:
                    time += 1
                    names[each] = time  # it ended, say
            time += 1
            names[f"new{time}{key}"] = time
            moved.add(f"new{time}{key}")
    assert [each for each in found if each.execution_id not in moved] == [
        each for each in before if each.execution_id not in moved
    ]


def test_a_page_of_many_lists_reads_little_more_than_a_page():
    world = Lists({f"l{n}": {f"e{n}-{i}": 64 * i + n for i in range(15_000)} for n in range(64)})
    page = world.read(Merge(list(world.lists), LatestFirst(Wanted()), None, 7), 100)
    assert page == world.all()[:100]
    assert sum(world.reads.values()) <= 64 * 7
    assert world.rounds == 1


def test_one_busy_list_among_quiet_ones_is_read_in_a_few_rounds():
    world = Lists({"busy": {f"b{i}": 10_000 + i for i in range(5000)}, **{f"q{n}": {f"q{n}": n} for n in range(63)}})
    page = world.read(Merge(list(world.lists), LatestFirst(Wanted()), None, 7), 500)
    assert [each.at_ms for each in page] == list(range(14_999, 14_499, -1))
    assert world.rounds <= 8
    assert world.reads["busy"] <= 2 * READ_MOST


def test_thousands_by_the_same_time_are_passed_one_by_one():
    world = Lists({"l": {f"e{n:05}": 5 for n in range(3000)}})
    after, found = None, []
    while page := world.read(Merge(["l"], LatestFirst(Wanted()), after, 7), 700):
        found += page
        after = page[-1]
    assert found == world.all()


def test_what_was_put_back_is_given_again():
    world = Lists({"l": {f"e{n}": n for n in range(9)}})
    merge = Merge(["l"], LatestFirst(Wanted()), None, 7)
    page = world.read(merge, 6)
    merge.put_back(page[2:])
    assert not merge.over
    assert world.read(merge, 100) == world.all()[2:]
    assert merge.over


def test_executions_can_be_found_by_each_thing_that_is_wanted():
    keys = Keys("t", 2)
    assert choices(Wanted()) == ["s"]
    assert len(lists_of_choice(keys, Wanted(), "s")) == 2 * len(STATUSES)
    wanted = Wanted("error", "checkout", "ValueError", (("customer", "c7"), ("plan", "pro")))
    assert choices(wanted) == ["a0", "a1", "e", "f", "s"]
    assert [lists_of_choice(keys, wanted, each)[1] for each in choices(wanted)] == [
        "{t:1}:attr:customer=c7",
        "{t:1}:attr:plan=pro",
        "{t:1}:error:ValueError",
        "{t:1}:flow:checkout",
        "{t:1}:by:error",
    ]
