"""Times as people give them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from stepwell.core.errors import UsageError
from stepwell.core.moments import moment_ms

NOW = 1_764_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("2h ago", 2 * HOUR),
        ("2h", 2 * HOUR),
        ("1h30m ago", 1.5 * HOUR),
        ("1.5 hours", 1.5 * HOUR),
        ("90 min ago", 1.5 * HOUR),
        ("2 days ago", 48 * HOUR),
        ("1w", 168 * HOUR),
        ("30 seconds ago", 30_000),
        ("250ms", 250),
        (" 2H AGO ", 2 * HOUR),
        ("now", 0),
        (" NOW ", 0),
        ("2hago", 2 * HOUR),
        ("90", 90_000),
        ("1.5", 1_500),
        ("2026", 2_026_000),
    ],
)
def test_durations_count_back_from_now(text, ago):
    assert moment_ms(text, NOW) == NOW - ago


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.678", datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
        ("2026-01-02T03:04+02:00", datetime(2026, 1, 2, 1, 4, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("20260102", datetime(2026, 1, 2, tzinfo=UTC)),
        ("1767323045678", datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
    ],
)
def test_iso_times_are_utc_unless_they_say_otherwise(text, expected):
    assert moment_ms(text, NOW) == int(expected.timestamp() * 1000)


def test_pythons_own_times_are_taken():
    assert moment_ms(timedelta(hours=2), NOW) == NOW - 2 * HOUR
    east = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert moment_ms(east, NOW) == int(east.timestamp() * 1000)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "soon",
        "1767323045",
        "9" * 16,
        "2x",
        "h",
        "2h before",
        "ago",
        "now ago",
        "2h ago ago",
        "90 ago",
        "2026-13-01",
        "1h, 2m",
        "-2h",
        "1e9d",
        "9" * 400 + "h",
    ],
)
def test_what_is_no_time_is_refused_with_examples(given):
    with pytest.raises(UsageError, match="2h ago"):
        moment_ms(given, NOW)


def test_a_datetime_without_a_time_zone_is_refused():
    with pytest.raises(UsageError, match="time zone"):
        moment_ms(datetime(2026, 1, 2), NOW)
    with pytest.raises(UsageError, match="int"):
        moment_ms(5, NOW)


def test_times_before_the_epoch_are_the_epoch():
    assert moment_ms("99999w", NOW) == 0
    assert moment_ms(timedelta(days=-99_999_999), NOW) == 253_402_300_799_999
