"""Results as files and pages; progress; turns."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from unit.bench.reports import report

from benchmarks import capacity, chart, publish
from benchmarks.progress import Progress
from benchmarks.report import markdown, read, read_folder, write, write_index
from benchmarks.result import Row, bars, curve, percentile, shares
from benchmarks.rounds import alternate
from stepwell.cli.bars import Bar

CHARTS = [
    bars("who", "Who is fastest?", "steps/s", {"we": [10, 12, 11], "they": [1, 2, 3]}, aim=5),
    bars("far", "Who is fastest, by far?", "steps/s", {"we": [10_000], "they": [0.2]}, log=True),
    curve("crowd", "How does it follow?", ("in flight", "steps/s"), {"a": {1: [1, 2], 10: [3, 4]}}, log="xy", aim=2),
    shares("late", "How late?", "ms", {"alone": [0, 1, 2, 3], "busy": [1, 10, 100, 1000]}, log=True, aim=50),
]
ROWS = [Row.of("throughput", "steps/s", [10, 12, 11], ">= 5"), Row("memory", 1234.5, "bytes")]


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds."""
    monkeypatch.setattr("benchmarks.report.can_draw", lambda: False)
    monkeypatch.setattr("benchmarks.publish.can_draw", lambda: False)


def test_a_result_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    before = report("throughput", ROWS, CHARTS)
    write(tmp_path, before)
    after = read(tmp_path / "throughput.json")
    assert msgspec.to_builtins(after) == msgspec.json.decode(msgspec.json.encode(before))
    assert after.environment == before.environment


def test_a_chart_shows_medians_and_ranges_where_there_were_rounds() -> None:
    (series,) = CHARTS[0].series
    assert (series.y, series.low, series.high) == ([11, 2], [10, 1], [12, 3])
    (once,) = CHARTS[1].series
    assert (once.low, once.high) == ([], [])


def test_shares_go_from_the_least_to_the_most() -> None:
    for series in CHARTS[3].series:
        assert (series.x[0], series.x[-1], series.y[-1]) == (min(series.x), max(series.x), 1.0)
    assert percentile([3, 1, 2], 0.5) == 2


@pytest.mark.slow
@pytest.mark.skipif(not chart.can_draw(), reason="matplotlib is not installed")
def test_each_kind_of_chart_is_drawn_and_the_same_numbers_make_the_same_picture(tmp_path: Path) -> None:
    for each in CHARTS:
        for turn in ("one", "two"):
            files = chart.draw(each, "today, here", tmp_path / f"{each.name}-{turn}")
            assert [file.suffix for file in files] == [".png", ".svg"]
        text = (tmp_path / f"{each.name}-one.svg").read_text()
        assert text == (tmp_path / f"{each.name}-two.svg").read_text()
        assert each.title in text
        assert "today, here" in text


def test_the_index_shows_all_of_a_folder_in_the_given_order(tmp_path: Path) -> None:
    for name in ("latency", "throughput", "extra"):
        write(tmp_path, report(name, ROWS))
    assert [each.name for each in read_folder(tmp_path, ["throughput", "latency"])] == [
        "throughput",
        "latency",
        "extra",
    ]
    text = write_index(tmp_path, ["throughput"]).read_text()
    assert text.index("## throughput") < text.index("## extra") < text.index("## latency")
    assert "| throughput | 11 steps/s | 10 to 12 | >= 5 |" in text
    assert "| memory | 1,234 bytes |  |  |" in text
    assert "* a note" in text
    assert "server: Valkey 9; durability: relaxed" in text


def test_a_quick_run_says_so_in_the_page() -> None:
    assert "its numbers mean nothing" in markdown([report("latency", ROWS, quick=True)])
    assert "its numbers mean nothing" not in markdown([report("latency", ROWS)])


def test_progress_tells_part_and_what_is_left() -> None:
    now = [100.0]
    out = io.StringIO()
    progress = Progress("history", 60, out, lambda: now[0])
    now[0] += 5
    progress.plan(4)
    progress.part("round 1")
    now[0] += 10
    progress.part("round 2")
    now[0] += 20
    progress.part("round 3")
    assert out.getvalue().splitlines() == [
        "history    5 s: 1/4 round 1; about 55 s left",  # as expected
        "history   15 s: 2/4 round 2; about 30 s left",  # three parts like the first
        "history   35 s: 3/4 round 3; about 30 s left",  # two parts like the mean of the first two
    ]


class Noting(Bar):
    """A bar that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def step(self) -> None:
        self.told.append("step")

    def again(self, what: str, total: float) -> None:
        self.told.append(f"{what} 0/{total:g}")


def test_a_bar_shows_the_parts_that_have_ended() -> None:
    bar = Noting()
    progress = Progress("sweep", out=io.StringIO(), clock=lambda: 0.0, bar=bar)
    for parts in (2, 3):
        progress.plan(parts)
        progress.tell("a note")
        for _ in range(parts):
            progress.part("round")
    assert bar.told == ["sweep 0/2", "step", "sweep 0/3", "step", "step"]


def test_variants_take_turns_and_every_second_round_goes_backwards() -> None:
    order: list[str] = []

    def variant(name: str) -> int:
        order.append(name)
        return len(order)

    found = alternate(
        {"a": lambda: variant("a"), "b": lambda: variant("b")}, 3, Progress("any", out=io.StringIO(), clock=lambda: 0.0)
    )
    assert "".join(order) == "abbaab"
    assert found == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_numbers_that_were_not_measured_are_told_as_such() -> None:
    found = capacity.numbers({})
    assert found["shard_us"] == capacity.MISSING
    assert found["ex_shards"] == capacity.MISSING
    assert found["partitions"] == "64"


def test_coefficients_come_from_rows_and_a_row_that_is_gone_is_an_error() -> None:
    rows = [
        Row("throughput", 10_000, "steps/s"),
        Row("shard CPU", 0.08, "ms/step"),
        Row("shard CPU", 0.8, "cores"),
        Row("Redis CPU", 0.02, "ms/step"),
        Row("bytes to Redis", 1300, "bytes/step"),
    ]
    found = capacity.numbers({"throughput": report("throughput", rows)})
    assert (found["shard_us"], found["redis_us"], found["shards_a_redis"]) == ("80", "20", "4")
    assert found["shard_steps"] == "8,750"
    with pytest.raises(KeyError, match="throughput has no row 'Redis CPU' in ms/step"):
        capacity.numbers({"throughput": report("throughput", rows[:3])})


def test_publishing_writes_pages_from_the_files_and_refuses_quick_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    readme = tmp_path / "README.md"
    readme.write_text(f"Before.\n\n{publish.BEGIN}\nold\n{publish.END}\nAfter.\n")
    rows = [Row("two shards", 20_000, "steps/s"), Row("two shards and their parent: resident memory", 150, "MiB")]
    rows.append(Row("connections to Redis that a second shard adds", 4, "connections"))
    write(tmp_path / "results", report("shards", rows))
    assert publish.main([str(tmp_path / "results"), str(docs)]) == 0
    assert read(docs / "benchmarks" / "shards.json").result.rows == rows
    assert "| two shards | 20,000 steps/s |" in (docs / "benchmarks.md").read_text()
    assert "| a further shard | 4 connections to Redis |" in (docs / "capacity.md").read_text()
    text = readme.read_text()
    assert "| steps a second, two shards | 20,000 steps/s | [shards](docs/benchmarks.md#shards) |" in text
    assert text.startswith("Before.")
    assert text.endswith(f"{publish.END}\nAfter.\n")
    assert "old" not in text

    assert publish.main([str(tmp_path / "none"), str(docs)]) == 0  # nothing new: the pages stay as they are
    assert readme.read_text() == text
    write(tmp_path / "results", report("shards", rows, quick=True))
    with pytest.raises(SystemExit):
        publish.main([str(tmp_path / "results"), str(docs)])
    assert "these are quick runs, whose numbers mean nothing: shards" in capsys.readouterr().err
