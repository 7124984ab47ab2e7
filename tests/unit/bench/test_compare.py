"""Two runs of the benchmarks side by side: what is noise, what is slower, and what the exit code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.bench.reports import report

from benchmarks.compare import compare, compare_rows, main
from benchmarks.report import Report, write
from benchmarks.result import Row


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds."""
    monkeypatch.setattr("benchmarks.report.can_draw", lambda: False)


def rate(*values: float) -> Row:
    return Row.of("throughput", "steps/s", values)


def cost(*values: float) -> Row:
    return Row.of("shard CPU", "ms/step", values)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (rate(90, 100, 110), rate(85, 92, 95), "same"),  # the ranges overlap
        (rate(95, 100, 105), rate(80, 85, 89), "SLOWER"),
        (rate(95, 100, 105), rate(93, 93.5, 94), "slower"),  # outside the range, within the threshold
        (rate(95, 100, 105), rate(110, 120, 130), "faster"),
        (cost(95, 100, 105), cost(115, 120, 130), "SLOWER"),
        (cost(95, 100, 105), cost(106, 107, 108), "slower"),
        (cost(95, 100, 105), cost(70, 80, 90), "faster"),
        (cost(0, 0, 0), cost(1, 2, 3), "SLOWER"),
    ],
)
def test_what_overlaps_is_noise_and_what_is_beyond_it_has_a_direction(before: Row, after: Row, verdict: str) -> None:
    assert compare_rows("any", before, after, threshold=0.05).verdict == verdict


@pytest.mark.parametrize(
    ("row", "direction"),
    [
        (Row("throughput", 1, "steps/s"), "more"),
        (Row("time", 1, "ms"), "less"),
        (Row("ratio", 1, "", ">= 0.5"), "more"),
        (Row("memory", 1, "MiB", "<= 300"), "less"),
        (Row("growth", 1, "", "about 1"), "neither"),
        (Row("ratio", 1, ""), "neither"),
        (Row("twice", 1, "of 1000", better="less"), "less"),
    ],
)
def test_a_row_knows_whether_more_or_less_is_good(row: Row, direction: str) -> None:
    assert row.direction == direction


def test_what_was_measured_once_has_to_differ_by_far_to_count() -> None:
    def verdict(after: float) -> str:
        return compare_rows("any", Row("rest", 10, "s"), Row("rest", after, "s"), threshold=0.05).verdict

    assert verdict(25) == "same"
    assert verdict(40) == "SLOWER"
    assert verdict(2) == "faster"


def test_one_round_is_no_range() -> None:
    assert (rate(100).low, rate(100).high) == (None, None)


def test_where_neither_more_nor_less_is_good_nothing_is_slower() -> None:
    before, after = Row.of("growth", "", [0.9, 1, 1.1], "about 1"), Row.of("growth", "", [1.9, 2, 2.1], "about 1")
    assert compare_rows("any", before, after).verdict == "changed"


def test_rows_of_one_side_only_are_told_and_count_as_nothing_slower() -> None:
    a = [report("throughput", [rate(1), cost(1)]), report("memory", [cost(1)])]
    b = [report("throughput", [rate(1), Row("new", 1, "s")])]
    found = compare(a, b)
    assert [(each.measure, each.verdict) for each in found] == [
        ("throughput", "same"),
        ("shard CPU", "only in A"),
        ("new", "only in B"),
    ]


def test_rows_of_one_name_are_told_apart_by_their_unit() -> None:
    ms, cores = Row.of("shard CPU", "ms/step", [1, 1]), Row.of("shard CPU", "cores", [0.8, 0.8])
    found = compare([report("throughput", [ms, cores])], [report("throughput", [cores, ms])])
    assert [(each.unit, each.ratio, each.verdict) for each in found] == [("ms/step", 1, "same"), ("cores", 1, "same")]


def folder(path: Path, *reports: Report) -> str:
    for each in reports:
        write(path, each)
    return str(path)


def test_the_exit_code_is_1_only_if_something_is_slower_than_the_threshold_allows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = folder(tmp_path / "a", report("throughput", [rate(95, 100, 105)]))
    b = folder(tmp_path / "b", report("throughput", [rate(80, 82, 85)]))
    assert main([a, a]) == 0
    assert main([a, b]) == 1
    assert "| throughput | throughput (steps/s) | 100 (95 to 105) | 82 (80 to 85) | 0.82 | SLOWER |" in (
        capsys.readouterr().out
    )
    assert main([a, b, "--threshold", "0.2"]) == 0
    assert main([b, a]) == 0


def test_two_files_can_be_compared_and_doubts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path / "a", report("latency", [cost(1, 1)], cpu="Another CPU"))
    folder(tmp_path / "b", report("latency", [cost(1, 1)], quick=True))
    assert main([str(tmp_path / "a" / "latency.json"), str(tmp_path / "b" / "latency.json")]) == 0
    said = capsys.readouterr().out
    assert "beware: the machines differ" in said
    assert "beware: there are quick runs among them" in said


@pytest.mark.parametrize("text", ["{}", "not JSON", '{"format": 99}'])
def test_what_is_no_result_is_refused_with_its_name(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(SystemExit) as refused:
        main([str(tmp_path), str(tmp_path)])
    assert refused.value.code == 2
    assert "odd.json is not the result of a benchmark" in capsys.readouterr().err


def test_nothing_in_common_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = folder(tmp_path / "a", report("latency", [cost(1)]))
    b = folder(tmp_path / "b", report("memory", [cost(1)]))
    with pytest.raises(SystemExit):
        main([a, b])
    assert "no benchmark is in both" in capsys.readouterr().err
