"""Numbers of processes that come and go add up: what was counted stays counted, and series don't multiply."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.metrics import instruments as i
from stepwell.metrics.folding import Names
from stepwell.metrics.rendering import samples_of
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.totals import Totals

PAIR = ("checkout", "charge")
ATTEMPTS = "stepwell_step_attempts_total checkout charge ok"


@pytest.fixture
def totals() -> Totals:
    return Totals()


def joined(totals: Totals, place: int) -> Sheet:
    """A new process at that place."""
    sheet = Sheet.in_memory()
    totals.attach(place, sheet.source)
    return sheet


def values(totals: Totals) -> dict[str, float]:
    return {" ".join((name, *labels.values())): value for name, labels, value in samples_of(totals.take())}


def test_living_processes_add_up(totals: Totals) -> None:
    one, two = joined(totals, 0), joined(totals, 1)
    one.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(3)
    two.count(i.STEP_ATTEMPTS, *PAIR, "terminal").inc(1)
    two.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(4)
    one.spread(i.COMMIT_BATCH_SIZE).observe(1)
    two.spread(i.COMMIT_BATCH_SIZE).observe(3)
    found = values(totals)
    assert (found[ATTEMPTS], found["stepwell_step_attempts_total checkout charge terminal"]) == (7, 1)
    assert [found[f"stepwell_commit_batch_size_bucket {le}"] for le in ("1.0", "2.0", "4.0", "+Inf")] == [1, 1, 2, 2]
    assert (found["stepwell_commit_batch_size_count"], found["stepwell_commit_batch_size_sum"]) == (2, 4)


def test_what_is_known_beforehand_is_there_from_the_start_and_counts_on() -> None:
    totals = Totals(i.closed_series())
    at_first = values(totals)
    assert at_first["stepwell_dead_letters_total input"] == 0
    assert at_first["stepwell_commands_total cancel refused"] == 0
    assert at_first["stepwell_commit_seconds_bucket +Inf"] == 0
    assert set(at_first.values()) == {0}
    assert not [name for name in at_first if name.startswith("stepwell_step_attempts")], "its flows are not known"
    one, two = joined(totals, 0), joined(totals, 1)
    one.shared_count(i.DEAD_LETTERED, "input").inc()
    two.count(i.DEAD_LETTERED, "input").inc(2)
    totals.end(0)
    assert values(totals) == {**at_first, "stepwell_dead_letters_total input": 3}


def test_gauges_are_put_together_as_each_of_them_says(totals: Totals) -> None:
    for place, sheet in enumerate([joined(totals, 0), joined(totals, 1), joined(totals, 2)]):
        sheet.level(i.INBOX_LENGTH).set(10 + place)
        sheet.level(i.INBOX_LAG).set(20 + place)
        sheet.level(i.EXECUTIONS_IN_MEMORY).set(30 + place)
        if place < 2:
            sheet.level(i.RETRY_NEXT_DUE, "checkout").set(40 + place)
    sheet.level(i.RETRY_NEXT_DUE, "checkout")
    assert values(totals) == {
        "stepwell_inbox_length": 33,
        "stepwell_inbox_lag_seconds": 22,
        "stepwell_retry_next_due_timestamp_seconds checkout": 40,
        "stepwell_executions_in_memory 0": 30,
        "stepwell_executions_in_memory 1": 31,
        "stepwell_executions_in_memory 2": 32,
    }


@pytest.mark.pain(42)
def test_counts_outlive_their_process_and_levels_go_with_it(totals: Totals) -> None:
    one, two = joined(totals, 0), joined(totals, 1)
    one.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(3)
    one.level(i.INBOX_LENGTH).set(5)
    two.level(i.INBOX_LENGTH).set(6)
    one.level(i.LEASES_HELD).set(32)
    totals.end(0)
    assert values(totals) == {ATTEMPTS: 3, "stepwell_inbox_length": 6}
    totals.end(0)
    successor = joined(totals, 0)
    assert values(totals) == {ATTEMPTS: 3, "stepwell_inbox_length": 6}
    successor.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc()
    successor.level(i.INBOX_LENGTH).set(1)
    assert values(totals) == {ATTEMPTS: 4, "stepwell_inbox_length": 7}


def test_what_the_present_process_of_a_place_has_counted_is_known_at_any_moment(totals: Totals) -> None:
    assert totals.counted(0, i.COMMITS, "ok") is None, "there is none"
    one, two = joined(totals, 0), joined(totals, 1)
    two.count(i.COMMITS, "ok").inc(7)
    one.count(i.COMMITS, "fenced").inc(5)
    assert totals.counted(0, i.COMMITS, "ok") == 0
    one.count(i.COMMITS, "ok").inc(3)
    assert totals.counted(0, i.COMMITS, "ok") == 3
    joined(totals, 0).count(i.COMMITS, "ok").inc()
    assert totals.counted(0, i.COMMITS, "ok") == 1, "not with what came before it"
    totals.end(0)
    assert totals.counted(0, i.COMMITS, "ok") is None


@pytest.mark.pain(42)
def test_five_hundred_restarts_leave_series_flat_and_totals_right(totals: Totals) -> None:
    series: set[int] = set()
    kept: set[int] = set()
    last = 0.0
    for number in range(500):
        sheet = joined(totals, number % 3)
        for _ in range(2):
            sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc()
            sheet.spread(i.COMMIT_BATCH_SIZE).observe(1)
            now = values(totals)[ATTEMPTS]
            assert now == last + 1
            last = now
        totals.end(number % 3)
        assert values(totals)[ATTEMPTS] == last
        series.add(len(values(totals)))
        kept.add(sum(len(place.base) + len(place.spans) for place in totals._places.values()) if number > 2 else 0)
    assert last == 1000
    assert len(series) == 1
    assert len(kept) == 2
    assert values(totals)["stepwell_commit_batch_size_count"] == 1000


@pytest.mark.pain(42)
def test_a_successor_is_folded_in_though_its_predecessors_end_was_not_told(totals: Totals) -> None:
    joined(totals, 0).count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(3)
    joined(totals, 0).count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(4)
    assert values(totals)[ATTEMPTS] == 7


seconds = st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=5)


@given(st.lists(st.tuples(st.integers(0, 2), seconds), max_size=12))
def test_sums_of_seconds_never_go_down_not_by_the_last_bit(lives: list[tuple[int, list[float]]]) -> None:
    totals = Totals()
    last = 0.0
    for place, observed in lives:
        sheet = joined(totals, place)
        for each in observed:
            sheet.spread(i.COMMIT_SECONDS_SPREAD).observe(each)
            now = values(totals)["stepwell_commit_seconds_sum"]
            assert now >= last
            last = now
        if place:
            totals.end(place)
        assert values(totals)["stepwell_commit_seconds_sum"] == last
    assert last == pytest.approx(math.fsum(sum(observed) for _, observed in lives))


def test_names_are_bounded_over_all_processes_that_ever_were(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_names", Names(10))
    for life in range(5):
        sheet = joined(totals, life % 2)
        for number in range(8):
            sheet.spread(i.STEP_DURATION, "flow", f"step{life}-{number}").observe(1)
            sheet.level(i.EXECUTIONS_BACKING_OFF, f"flow{life}-{number}").set(1)
    found = values(totals)
    assert len([name for name in found if name.startswith("stepwell_step_duration_seconds_count")]) == 11
    assert found["stepwell_step_duration_seconds_count other other"] == 30
    assert sum(value for name, value in found.items() if "duration_seconds_count" in name) == 40
    assert sum(value for name, value in found.items() if "backing_off" in name) == 16


@pytest.mark.threads
@pytest.mark.pain(42)
def test_a_scrape_at_the_moment_of_a_death_sees_no_total_go_down(totals: Totals) -> None:
    over = threading.Event()
    seen: list[float] = []

    def scrape() -> None:
        while not over.is_set():
            seen.append(values(totals).get(ATTEMPTS, 0.0))

    thread = threading.Thread(target=scrape)
    thread.start()
    for number in range(300):
        sheet = joined(totals, number % 2)
        sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(2)
        if number % 3:
            totals.end(number % 2)
    over.set()
    thread.join()
    assert seen == sorted(seen)
    assert values(totals)[ATTEMPTS] == 600
