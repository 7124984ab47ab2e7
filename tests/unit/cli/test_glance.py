"""A frame of `top`: it fits, it says what matters, and nothing in it steers the terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from stepwell.cli.glance import Frame, frame
from stepwell.cli.tables import Column, fitted, harmless, table
from stepwell.core.overview import (
    BackingOff,
    Backoffs,
    Counted,
    Inbox,
    LongStep,
    Overview,
    Partitions,
    Rate,
    ShardState,
    SlowStep,
)

NOW = 1_795_996_997_000
ENDS = ("completed", "error", "cancelled")
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\u2028\r\n\x9b31m"


def overview(**changes: Any) -> Overview:
    given: dict[str, Any] = {
        "namespace": "stepwell",
        "at": NOW,
        "executions": {s: Counted(0) for s in ("queued", "running", "waiting", "parked", *ENDS)},
        "rate": None,
        "backoffs": Backoffs(),
        "longest": (),
        "slowest": (),
        "shards": (),
        "partitions": Partitions(64, 0),
        "inbox": Inbox(),
        "dead_letters": 0,
        "durability": "relaxed",
        "guarantee": {},
    }
    return Overview(**given | changes)


def shard(name: str, **changes: Any) -> ShardState:
    given: dict[str, Any] = {"state": "active", "silent_ms": 400, "partitions": 32, "host": "rack-7", "pid": 4711}
    given |= {"started_at": NOW - 90_000, "life": 1, "executions": 900, "running": 12, "queued": 0, "limit": 1036}
    return ShardState(name, **given | {"steps_per_second": 812.4} | changes)


def busy(**changes: Any) -> Overview:
    """A namespace with everything in it."""
    error = "503 of redis://:***@db:6379 which is a long story that goes on and on"
    waiting = [
        BackingOff(f"order-{n}", "checkout", NOW + 12_000 * n + 8_200, "charge", 3 + n % 3, 5, "HttpError", error)
        for n in range(37)
    ]
    statuses = {"queued": 2, "running": 40, "waiting": 37, "parked": 1}
    ended = {"completed": Counted(1_234_567, 812.4), "error": Counted(3, 0.5), "cancelled": Counted(0, 0.0)}
    return overview(
        **{
            "executions": {s: Counted(n, 0.0) for s, n in statuses.items()} | ended,
            "rate": Rate(1_624.8, 4.3, 4.1),
            "backoffs": Backoffs(137, tuple(waiting)),
            "longest": tuple(LongStep(f"long-{n}", "report", "render#2", 1, NOW - 300_000, "rack/0") for n in range(9)),
            "slowest": tuple(SlowStep("report", f"step{n}", 120 - n, 3_200.0 - n, 5_000.0) for n in range(9)),
            "shards": (shard("b/1", state="silent", silent_ms=14_000), shard("a/0"), shard("c/0", life=3)),
            "partitions": Partitions(64, 64),
            "inbox": Inbox(230, NOW - 3_000, 7, 1),
            "dead_letters": 12,
            "guarantee": {"kept": "yes", "aof": "everysec", "server": "Redis 7.0.15"},
            **changes,
        }
    )


def lines(seen: Overview, width: int = 80, height: int | None = 24, **of: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height or 1000, force_terminal=False)
    console.print(frame(seen, Frame(width, height, of.pop("now", seen.at), **of)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().split("\n")[:-1]


def text(seen: Overview, **of: Any) -> str:
    return "\n".join(lines(seen, **of))


def test_a_small_screen_has_everything() -> None:
    shown = lines(busy(), keys="q quits", where="redis://db:6379")
    assert len(shown) == 24
    assert max(map(cell_len, shown)) <= 80
    page = "\n".join(shown)
    for wanted in (
        "stepwell  stepwell at redis://db:6379",
        "running 40",
        "completed 1,234,567 +812/s",
        "error 3 +0.5/s",
        "steps 1,625/s  retries 4.1/s  failures 4.3/s  inbox 230 (3.0 s old)  ingress 1",
        "guarantee relaxed, AOF everysec, kept  64/64 partitions  dead letters 12",
        "! shard b/1 is silent for 14 s",
        "BACKING OFF 3 of 137",
        "order-0 ",
        "checkout/charge   3 of 5   8.2 s  HttpError",
        "RUNNING LONGEST",
        "5 min",
        "SLOWEST STEPS",
        "3.2 s",
        "SHARDS 2 of 3",
        "silent 14 s",
        "q quits",
    ):
        assert wanted in page, f"{wanted!r} is not in\n{page}"


def test_the_frame_grows_with_the_screen() -> None:
    low, high, wide = lines(busy()), lines(busy(), height=60), lines(busy(), width=160)
    assert sum("order-" in line for line in low) < sum("order-" in line for line in high) < 37
    assert "goes on and on" not in "\n".join(low)
    assert "goes on and on" in "\n".join(wide)
    assert "" in lines(busy(), height=80)


def test_without_a_limit_all_is_shown() -> None:
    assert sum("order-" in line for line in lines(busy(), height=None)) == 37


def test_countdowns_run_on_between_readings() -> None:
    seen = busy()
    first, later = text(seen), text(seen, now=NOW + 3_100)
    assert "  8.2 s  " in first
    assert "  5.1 s  " in later
    assert "silent 17 s" in later
    assert " late" not in later
    assert "6.8 s late" in text(seen, now=NOW + 15_000)


@pytest.mark.parametrize(("name", "width"), [("vm-de99e8cb", 80), ("stepwell-worker-7d9f8b6c5d-abcde", 80), ("w", 60)])
def test_shards_of_one_worker_are_told_apart_on_a_narrow_screen(name: str, width: int) -> None:
    shards = tuple(shard(f"{name}/{n}", running=72, queued=14, limit=1036, host="vm", pid=32_010) for n in range(2))
    shown = [line.split()[0] for line in lines(busy(shards=shards), width=width, height=None) if " 72/1036 " in line]
    assert len(set(shown)) == 2
    assert [each[-2:] for each in shown] == ["/0", "/1"]


def test_no_half_of_a_server_s_version_is_shown() -> None:
    seen = busy(guarantee={"server": "Redis 7.0.15", "kept": "yes", "aof": "everysec"})
    shown = {width: next(x for x in lines(seen, width=width) if x.startswith("guarantee")) for width in (80, 100)}
    assert shown[100].endswith("Redis 7.0.15")
    assert shown[80].endswith("dead letters 12")


def test_an_empty_namespace_is_clear() -> None:
    page = text(overview(), height=None)
    assert "BACKING OFF  nothing waits for another attempt" in page
    assert "RUNNING LONGEST  no step runs" in page
    assert "SLOWEST STEPS  none has ended in the last minute" in page
    assert "SHARDS  no worker is running: start one with `stepwell run FILE`" in page
    assert "steps ?/s" in page


def test_what_has_to_be_looked_at_is_on_top() -> None:
    seen = busy(shards=(), executions={**busy().executions, "queued": Counted(7)}, unread="WRONGTYPE of a key")
    shown = lines(seen)
    first = next(place for place, line in enumerate(shown) if line.startswith("! "))
    assert shown[first].startswith("! no worker is running: start one with")
    assert first < next(place for place, line in enumerate(shown) if line.startswith("BACKING OFF"))


def test_a_low_screen_shows_rows_and_no_headings_of_nothing() -> None:
    seen = busy(longest=())
    shown = lines(seen, width=40, height=12, keys="q quits")
    assert len(shown) == 12
    assert any(line.startswith("order-0 ") for line in shown)
    assert not any(line.startswith("RUNNING LONGEST") for line in shown)
    lowest = lines(seen, width=40, height=9, keys="q quits")
    assert not any(line.startswith(("SLOWEST STEPS", "SHARDS")) for line in lowest), "before who backs off goes"
    assert "RUNNING LONGEST  no step runs" in lines(seen, height=24)


def test_on_a_narrow_screen_statuses_that_nothing_is_in_make_room() -> None:
    counts = {"queued": 0, "running": 1234, "waiting": 37, "parked": 1, "error": 0, "completed": 0}
    seen = overview(executions={status: Counted(count, None) for status, count in counts.items()})
    assert lines(seen, width=80)[1] == "queued 0  running 1,234  waiting 37  parked 1"
    assert lines(seen, width=40)[1] == "running 1,234  waiting 37  parked 1"


def test_a_long_flow_loses_its_middle_and_the_step_stays() -> None:
    flow = "synchronise_everything_with_everybody_for_ever"
    seen = busy(
        slowest=(SlowStep(flow, "charge_the_customer", 1, 1.0, 1.0), SlowStep("f", "s" * 30 + "t" * 70, 1, 1.0, 1.0)),
        longest=(LongStep("e1", flow, "gather#2.0/ship", 1, NOW, "rack/0"),),
    )
    page = text(seen, height=40)
    assert re.search(r"^synchronise\w+…\w+for_ever/charge_the_customer  ", page, re.MULTILINE)
    assert re.search(r"^f/s{10,}…t{10,}  ", page, re.MULTILINE)
    assert re.search(r"^e1 +\w+…\w+/gather#2\.0/ship  ", page, re.MULTILINE)
    assert re.search(r"^synchro\w*~\w+/charge_the_customer  ", text(seen, width=60, ascii_only=True), re.MULTILINE)
    for width in range(40, 100):
        assert max(map(cell_len, lines(seen, width=width, height=40))) <= width


def test_many_notices_leave_room_for_the_rest() -> None:
    shards = tuple(shard(f"s{n}/0", life=2, started_at=NOW - 12_000) for n in range(30))
    shown = lines(busy(shards=shards))
    assert sum(line.startswith("! ") for line in shown) == 4
    assert "! and 29 more: they show where the window is higher" in shown
    assert any(line.startswith("BACKING OFF") for line in shown)


def test_an_outage_is_said_and_what_was_seen_stays() -> None:
    page = text(busy(), trouble="this is 7 s old: no Redis")
    assert "! this is 7 s old: no Redis" in page
    assert "order-0" in page


def test_what_strangers_wrote_steers_nothing() -> None:
    row = BackingOff(f"id{EVIL}", f"flow{EVIL}", NOW, f"path{EVIL}", 1, 2, f"Type{EVIL}", f"text{EVIL}")
    seen = busy(
        namespace=f"n{EVIL}",
        backoffs=Backoffs(1, (row,)),
        longest=(LongStep(EVIL, EVIL, EVIL, 1, NOW, EVIL),),
        slowest=(SlowStep(EVIL, EVIL, 1, 1.0, 1.0),),
        shards=(shard(EVIL, host=EVIL),),
        guarantee={"kept": "yes", "aof": EVIL, "server": EVIL},
        unread=EVIL,
        durability=EVIL,
    )
    for line in lines(seen, width=200, where=EVIL, trouble=EVIL):
        assert line.isprintable(), repr(line)


def test_an_ascii_screen_gets_ascii() -> None:
    row = BackingOff("id", "flow", NOW, "path", 1, 2, "Type", "grüße … 日本" * 20)
    assert text(busy(backoffs=Backoffs(1, (row,))), ascii_only=True).isascii()


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(width=st.integers(10, 200), height=st.integers(1, 60), name=names, error=names)
def test_no_screen_is_too_small(width: int, height: int, name: str, error: str) -> None:
    row = BackingOff(name, name, NOW, name, 1, 2, error, error)
    seen = busy(backoffs=Backoffs(1, (row,)), shards=(shard(name), shard("b/0")))
    shown = lines(seen, width=width, height=height, keys="q quits")
    assert len(shown) <= height
    assert all(cell_len(line) <= width for line in shown)


def test_columns_share_the_room_and_spare_ones_go_first() -> None:
    columns = [Column("id", 1), Column("n", right=True), Column("text", 2, spare=True)]
    rows = [[("a" * 30, ""), ("7", ""), ("b" * 30, "")]]
    wide = [line.plain for line in table(columns, rows, 40)]
    assert wide == ["id" + " " * 12 + "n  text", f"{'a' * 11}…  7  {'b' * 22}…"]
    narrow = [line.plain for line in table(columns, rows, 10)]
    assert narrow == ["id       n", "aaaaaa…  7"]


@pytest.mark.parametrize("width", range(12))
def test_a_text_takes_the_cells_it_is_given(width: int) -> None:
    for each in ("日本語です", "ab", "", "a日b本"):
        assert cell_len(fitted(each, width)) == width
        assert cell_len(fitted(each, width, right=True, ascii_only=True)) == width


def test_codes_stand_for_what_is_not_seen() -> None:
    assert harmless("a\x1b\u202e\U000e0001é") == "a\\x1b\\u202e\\U000e0001é"
    assert harmless("é日", ascii_only=True) == "\\xe9\\u65e5"
    assert len(harmless("x" * 10_000)) == 300
