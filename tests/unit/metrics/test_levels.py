"""The storm tests look whether levels come down to 0: they must know which should."""

from __future__ import annotations

from tally.levels import ABSENT_AT_REST, OF_THE_WORKER, OF_WORK

from stepwell.metrics.instruments import INSTRUMENTS, Kind


def test_of_each_gauge_it_is_known_what_it_is_when_nothing_is_left_to_do() -> None:
    kinds = (OF_WORK, ABSENT_AT_REST, OF_THE_WORKER)
    gauges = {each for each in INSTRUMENTS if each.kind is Kind.GAUGE}
    assert frozenset().union(*kinds) == gauges
    assert sum(map(len, kinds)) == len(gauges)
