"""Clocks: rounded up, slewed, never backwards."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from stepwell.actors.kit import clock as clock_module
from stepwell.actors.kit.clock import SystemClock, VirtualClock


class Host:
    """A host whose two clocks the test sets."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self.wall_s = 1_700_000_000.0

    def pass_time(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.monotonic_s, lambda: self.wall_s)


@pytest.fixture
def host() -> Host:
    return Host()


def test_before_the_first_sync_the_host_is_believed(host: Host) -> None:
    clock = host.clock()
    assert clock.now_ms() == 1_700_000_000_000
    host.pass_time(1.5)
    assert clock.now_ms() == 1_700_000_001_500


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_nothing(host: Host, step: float) -> None:
    clock = host.clock()
    host.wall_s += step
    host.pass_time(1.0)
    assert clock.now_ms() == 1_700_000_001_000


def test_a_reading_is_rounded_up(host: Host) -> None:
    clock = host.clock()
    clock.sync(5000, host.monotonic_s, host.monotonic_s)
    host.pass_time(0.0101)
    assert clock.now_ms() == 5011


@pytest.mark.parametrize("server_ms", [1_000, 9_000_000_000_000])
def test_the_first_sync_sets_the_time_either_way(host: Host, server_ms: int) -> None:
    clock = host.clock()
    clock.now_ms()
    clock.sync(server_ms, host.monotonic_s, host.monotonic_s)
    assert clock.now_ms() == server_ms


def test_the_servers_time_belongs_to_the_middle_of_the_call(host: Host) -> None:
    clock = host.clock()
    sent = host.monotonic_s
    host.pass_time(0.2)
    clock.sync(50_000, sent, host.monotonic_s)
    assert clock.now_ms() == 50_100


@pytest.mark.parametrize("drift_ms", [10_000, -3_600_000])
def test_a_later_sync_moves_by_at_most_a_tenth_of_the_time_since(host: Host, drift_ms: int) -> None:
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    host.pass_time(3.0)
    clock.sync(1_003_000 + drift_ms, host.monotonic_s, host.monotonic_s)
    assert clock.now_ms() == 1_003_000 + math.copysign(300, drift_ms)


def test_syncs_in_a_row_move_no_more_than_one(host: Host) -> None:
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    for _ in range(5):
        host.pass_time(1.0)
        clock.sync(1_009_000, host.monotonic_s, host.monotonic_s)
    assert clock.now_ms() == 1_005_000 + 5 * 100


@pytest.mark.parametrize("lag_ms", [10_001, 60_000, 3_600_000, 86_400_000])
def test_a_clock_that_is_far_behind_is_right_after_one_sync(host: Host, lag_ms: int) -> None:
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    host.pass_time(3.0)
    before = clock.now_ms()
    clock.sync(1_003_000 + lag_ms, host.monotonic_s, host.monotonic_s)
    assert clock.now_ms() == before + lag_ms
    host.pass_time(3.0)
    clock.sync(1_006_000 + lag_ms, host.monotonic_s, host.monotonic_s)
    assert clock.now_ms() == 1_006_000 + lag_ms


def test_a_clock_that_jumps_makes_no_timer_fire_earlier(host: Host) -> None:
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    due = clock.monotonic() + 60
    clock.sync(1_000_000 + 3_600_000, host.monotonic_s, host.monotonic_s)
    assert due - clock.monotonic() == 60


@pytest.mark.pain(39)
def test_a_clock_knows_by_how_much_it_was_moved_since(host: Host) -> None:
    clock = host.clock()

    def sync(ahead_ms: int) -> None:
        host.pass_time(3.0)
        clock.sync(round(host.wall_s * 1000) + ahead_ms, host.monotonic_s, host.monotonic_s)

    sync(50_000)  # the first one is where it begins
    began = clock.now_ms()
    assert clock.moved_since(began) == clock.moved_since(0) == 0
    sync(50_040)
    assert clock.moved_since(began) == 0, "small moves are noted together"
    sync(50_100)
    assert clock.moved_since(began) == 100
    later = clock.now_ms()
    assert clock.moved_since(later) == 0
    host.pass_time(1.0)
    sync(50_100 + 3_600_000)
    assert clock.moved_since(later) == 3_600_000
    assert clock.moved_since(began) == clock.moved_since(0) == 3_600_100
    assert clock.moved_since(clock.now_ms()) == 0
    sync(50_100)
    assert clock.moved_since(later) == 3_600_000 - 300, "slewed"


@pytest.mark.pain(39)
def test_a_clock_that_is_moved_for_ever_forgets_its_oldest_moves(host: Host) -> None:
    clock = host.clock()
    host.wall_s += 1e6
    for _ in range(12_000):
        host.pass_time(3.0)
        clock.sync(0, host.monotonic_s, host.monotonic_s)
    assert len(clock._moves) <= 10_000
    assert clock.moved_since(0) <= -5000 * 300


def test_a_small_correction_is_taken_whole(host: Host) -> None:
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    host.pass_time(3.0)
    clock.sync(1_003_050, host.monotonic_s, host.monotonic_s)
    assert clock.now_ms() == 1_003_050


@pytest.mark.pain(39)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_an_answer_that_took_long_moves_nothing_that_it_does_not_disprove(host: Host, share: float) -> None:
    """The server reads its clock after this share of the way there and back."""
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    host.pass_time(3.0)
    sent = host.monotonic_s
    host.pass_time(0.2)
    clock.sync(1_003_000 + round(200 * share), sent, host.monotonic_s)
    assert clock.now_ms() == 1_003_200


@pytest.mark.parametrize(("server_ms", "should"), [(1_003_250, 1_003_250), (1_002_950, 1_003_151)])
def test_an_answer_that_took_long_moves_as_far_as_it_proves(host: Host, server_ms: int, should: int) -> None:
    """After 3.2 s, if it was read at the very end, or at the very beginning (within the millisecond that it shows)."""
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    host.pass_time(3.0)
    sent = host.monotonic_s
    host.pass_time(0.2)
    clock.sync(server_ms, sent, host.monotonic_s)
    assert clock.now_ms() == should


def test_time_never_runs_backwards_after_the_first_sync(host: Host) -> None:
    clock = host.clock()
    clock.sync(1_000_000, host.monotonic_s, host.monotonic_s)
    readings: list[int] = []
    for turn in range(200):
        host.pass_time(0.05)
        readings.append(clock.now_ms())
        if turn % 10 == 0:
            clock.sync(1_000_000 - turn * 100, host.monotonic_s, host.monotonic_s)
        readings.append(clock.now_ms())
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]


def clock_of_a_host(monkeypatch: pytest.MonkeyPatch, boottime: Any) -> Any:
    """What a process would take for its monotonic clock on a host whose other one gives that."""
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", boottime, raising=False)
    return clock_module._monotonic()


def test_time_counts_on_while_the_host_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {7: 1000.0}
    read = clock_of_a_host(monkeypatch, lambda which: now[which])
    before = read()
    now[7] += 3600  # what `time.monotonic` does not see
    assert read() - before == 3600


def test_a_host_without_that_clock_has_its_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_which: int) -> float:
        raise OSError("Invalid argument")

    assert clock_of_a_host(monkeypatch, refuses) is time.monotonic
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert clock_module._monotonic() is time.monotonic


def test_the_product_clock_reads_the_hosts_clocks() -> None:
    clock = SystemClock()
    before, wall = time.monotonic(), time.time_ns() // 1_000_000
    assert before <= clock.monotonic()
    assert abs(clock.now_ms() - wall) < 60_000


def test_virtual_time_moves_only_when_told() -> None:
    clock = VirtualClock(start_ms=1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.0)
    clock.advance(0.25)
    assert (clock.now_ms(), clock.monotonic()) == (1250, 0.25)
    clock.advance_to(7.0)
    assert (clock.now_ms(), clock.monotonic()) == (8000, 7.0)


def test_virtual_time_is_rounded_up_but_not_by_float_noise() -> None:
    clock = VirtualClock(start_ms=0)
    clock.advance(0.1)
    clock.advance(0.2)
    assert clock.monotonic() > 0.3
    assert clock.now_ms() == 300
    clock.advance(0.0001)
    assert clock.now_ms() == 301


@pytest.mark.parametrize("target", [0.5, math.nan, math.inf])
def test_virtual_time_goes_forward_only(target: Any) -> None:
    clock = VirtualClock()
    clock.advance(1.0)
    with pytest.raises(ValueError, match="a clock goes forward"):
        clock.advance_to(target)
    assert clock.monotonic() == 1.0
