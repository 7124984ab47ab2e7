"""A shard's clock is set by the quickest of a few answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepwell.actors.kit.clock import SystemClock
from stepwell.worker.timing import set_by_server

SERVER_MS = 1_700_000_000_000


class Host:
    """Its answers take so many seconds each, all of it before the server has looked."""

    def __init__(self, *seconds: float) -> None:
        self.now = 1000.0
        self.left = list(seconds)
        self.clock = SystemClock(lambda: self.now, lambda: 0.0)

    def ask(self) -> int:
        self.now += self.left.pop(0)
        return int(SERVER_MS + (self.now - 1000.0) * 1000)

    @property
    def wrong_ms(self) -> float:
        return self.clock.now_ms() - (SERVER_MS + (self.now - 1000.0) * 1000)


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        ((3.0, 0.001), 0),
        ((0.0, 0.4, 0.001, 9.0), 1),
        ((0.0, 0.4, 0.3, 0.0001, 9.0), 1),
        ((0.0, 0.001, 9.0, 9.0), 2),
    ],
)
def test_a_slow_answer_sets_no_clock_where_a_quick_one_can_be_had(answers: tuple[float, ...], left: int) -> None:
    host = Host(*answers)
    set_by_server(host.clock, host.ask)
    assert abs(host.wrong_ms) <= 2
    assert len(host.left) == left


def test_where_all_are_slow_the_quickest_counts() -> None:
    host = Host(0.0, 0.5, 0.1, 0.9)
    set_by_server(host.clock, host.ask)
    assert abs(host.wrong_ms) <= 51
    assert host.left == []


def test_a_server_that_does_not_answer_sets_no_clock() -> None:
    host = Host()
    before = host.clock.now_ms()
    ask: Callable[[], int] = host.ask
    with pytest.raises(IndexError):
        set_by_server(host.clock, ask)
    assert host.clock.now_ms() == before
