"""A sheet is read as it was written, whoever wrote it and wherever they stopped."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.actors.kit.clock import VirtualClock
from stepwell.metrics import instruments as i
from stepwell.metrics import segments as segments_module
from stepwell.metrics.folding import VALUE_CHARS_MAX, Names
from stepwell.metrics.instruments import INSTRUMENTS, Instrument, Kind
from stepwell.metrics.segments import MemorySegments, SheetFile
from stepwell.metrics.series import MARK_SECONDS
from stepwell.metrics.sheet import Sheet
from stepwell.metrics.sheetlayout import BY_PRINT, RECORD, SEGMENT_SIZE, cells_of
from stepwell.metrics.sheetreader import SheetReader

PAIR = ("checkout", "charge")


def numbers_of(read: Callable[[], bytes]) -> dict[tuple[str, ...], list[float]]:
    """Of each series, by name and label values, its numbers."""
    reader = SheetReader(read)
    numbers = reader.look()
    return {
        (seen.instrument.full_name, *seen.values): list(numbers[seen.at : seen.at + cells_of(seen.instrument)])
        for seen in reader.series
        if seen is not None
    }


@pytest.fixture
def file(tmp_path: Path) -> SheetFile:
    return SheetFile(tmp_path / "0.sheet")


def test_what_was_counted_is_read(sheet: Sheet) -> None:
    sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc()
    sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(2)
    sheet.shared_count(i.HEALED_EXECUTIONS).inc()
    sheet.spread(i.COMMIT_BATCH_SIZE).observe(3)
    sheet.level(i.INBOX_LENGTH).set(7)
    found = numbers_of(sheet.source.read)
    assert found["stepwell_step_attempts_total", *PAIR, "ok"] == [3]
    assert found["stepwell_healed_executions_total",] == [1]
    assert found["stepwell_commit_batch_size",] == [0, 0, 1, *[0] * 8, 3]
    assert found["stepwell_inbox_length",] == [7]


def test_a_bucket_holds_what_equals_its_bound_and_the_last_one_the_rest(sheet: Sheet) -> None:
    for value in (1, 1.5, 2, 512, 513, 1e9):
        sheet.spread(i.COMMIT_BATCH_SIZE).observe(value)
    *counts, total = numbers_of(sheet.source.read)["stepwell_commit_batch_size",]
    assert counts == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2]
    assert total == 1 + 1.5 + 2 + 512 + 513 + 1e9


def test_a_level_is_absent_until_it_is_set_and_after_it_is_cleared(sheet: Sheet) -> None:
    level = sheet.level(i.RETRY_NEXT_DUE, "checkout")
    [before] = numbers_of(sheet.source.read)["stepwell_retry_next_due_timestamp_seconds", "checkout"]
    level.set(5)
    level.clear()
    [after] = numbers_of(sheet.source.read)["stepwell_retry_next_due_timestamp_seconds", "checkout"]
    assert math.isnan(before)
    assert math.isnan(after)


def test_a_file_holds_more_than_one_segment_and_its_reader_follows(file: SheetFile, tmp_path: Path) -> None:
    sheet = Sheet.open(tmp_path / "0.sheet")
    reader = SheetReader(file.read)
    for number in range(1000):
        sheet.spread(i.STEP_DURATION, "checkout", f"step{number}").observe(0.3)
        if number % 100 == 0:
            reader.look()
    numbers = reader.look()
    assert len(reader.series) == 1000
    assert {numbers[seen.at + cells_of(seen.instrument) - 1] for seen in reader.series if seen is not None} == {0.3}
    assert len(file.read()) % SEGMENT_SIZE == 0
    assert len(file.read()) > 2 * SEGMENT_SIZE


def test_a_reader_sees_what_was_counted_after_the_file_lost_its_name(file: SheetFile, tmp_path: Path) -> None:
    sheet = Sheet.open(tmp_path / "0.sheet")
    os.unlink(tmp_path / "0.sheet")
    sheet.count(i.HEALED_EXECUTIONS).inc(4)
    assert numbers_of(file.read)["stepwell_healed_executions_total",] == [4]
    file.close()
    file.close()


def test_a_new_file_replaces_an_older_one_and_leaves_its_writer_alone(file: SheetFile, tmp_path: Path) -> None:
    straggler = Sheet.open(tmp_path / "0.sheet")
    successor = SheetFile(tmp_path / "0.sheet")
    straggler.count(i.HEALED_EXECUTIONS).inc()
    assert numbers_of(successor.read) == {}
    assert numbers_of(file.read) == {("stepwell_healed_executions_total",): [1]}
    file.close()
    assert (tmp_path / "0.sheet").exists(), "it is its successor's"
    successor.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_stops_no_work_and_is_told(
    file: SheetFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sheet = Sheet.open(tmp_path / "0.sheet")

    def full(_fd: int, _at: int, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(segments_module, "_write", full)
        for number in range(1000):
            sheet.spread(i.STEP_DURATION, "checkout", f"step{number}").observe(0.3)
    for number in range(1000, 2000):  # there is room again
        sheet.spread(i.STEP_DURATION, "checkout", f"step{number}").observe(0.3)
    [said] = caplog.messages
    assert "No space left on device" in said
    assert len(file.read()) == SEGMENT_SIZE
    found = numbers_of(file.read)
    assert 100 < len(found) < 1000
    assert all(numbers[-1] == 0.3 for numbers in found.values())


@given(st.data())
@pytest.mark.pain(42)
def test_a_definition_that_was_cut_at_any_byte_is_not_there_and_all_before_it_is(data: st.DataObject) -> None:
    sheet = Sheet.in_memory()
    sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(5)
    before = bytearray(sheet.source.read())
    kept = numbers_of(lambda: bytes(before))
    sheet.spread(i.STEP_DURATION, *PAIR).observe(0.2)
    after = sheet.source.read()
    changed = [at for at in range(len(after)) if after[at] != before[at]]
    start = changed[0]
    assert changed == list(range(start, changed[-1] + 1)) or changed[0] % 8 == 0
    # The size is the first word: written last, or first, if a processor does what it likes.
    cut = data.draw(st.integers(start + 4, start + RECORD.size + len("checkout\0charge") - 1))
    torn = bytearray(before)
    torn[start + 4 : cut] = after[start + 4 : cut]
    assert numbers_of(lambda: bytes(torn)) == kept
    torn[start : start + 4] = after[start : start + 4]
    if torn[start : start + RECORD.size + 16] != after[start : start + RECORD.size + 16]:
        assert numbers_of(lambda: bytes(torn)) == kept


@given(st.binary(max_size=200), st.integers(0, 400))
def test_nonsense_in_a_file_is_no_series(junk: bytes, at: int) -> None:
    sheet = Sheet.in_memory()
    sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(5)
    raw = bytearray(sheet.source.read())
    raw[at : at + len(junk)] = junk
    reader = SheetReader(lambda: bytes(raw))
    reader.look()
    list(reader.marks())
    assert len(reader.series) <= 1


def test_a_definition_that_is_complete_at_a_later_look_counts_then() -> None:
    memory = MemorySegments()
    sheet = Sheet(memory)
    sheet.count(i.STEP_ATTEMPTS, *PAIR, "ok").inc(5)
    whole = sheet.source.read()
    torn = bytearray(whole)
    torn[64 + RECORD.size] ^= 1
    now = [bytes(torn), whole]
    reader = SheetReader(lambda: now.pop(0))
    reader.look()
    assert reader.series == []
    numbers = reader.look()
    [seen] = reader.series
    assert seen is not None
    assert numbers[seen.at] == 5


def test_what_cannot_be_read_or_got_shorter_leaves_what_was_known(sheet: Sheet) -> None:
    sheet.count(i.HEALED_EXECUTIONS).inc(4)
    whole = sheet.source.read()
    answers: list[bytes | OSError] = [whole, whole[:100], b"", OSError(5, "gone"), b"x" * len(whole)]

    def read() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    reader = SheetReader(read)
    for _ in range(5):
        numbers = reader.look()
        [seen] = reader.series
        assert seen is not None
        assert numbers[seen.at] == 4
    assert answers == []


# Labels.


def test_values_outside_a_closed_set_are_other(sheet: Sheet) -> None:
    for reason in ("a new reason", "<script>", ""):
        sheet.count(i.STEP_FAILURES, *PAIR, reason).inc()
    assert numbers_of(sheet.source.read) == {("stepwell_step_failures_total", *PAIR, "other"): [3]}


def test_ten_thousand_distinct_messages_make_one_series_and_nothing_grows(sheet: Sheet) -> None:
    for number in range(10_000):
        sheet.count(i.STEP_FAILURES, *PAIR, f"connection {number} was reset").inc()
    assert numbers_of(sheet.source.read) == {("stepwell_step_failures_total", *PAIR, "other"): [10_000]}
    assert len(sheet._counts.known) == 1


def test_names_from_code_are_bounded_and_pairs_fold_together() -> None:
    names = Names(3)
    for number in range(3):
        assert names.fold(i.STEP_DURATION, ("f", f"s{number}")) == ("f", f"s{number}")
    assert names.fold(i.STEP_DURATION, ("f", "s3")) == ("other", "other")
    assert names.fold(i.STEP_FAILURES, ("f", "s3", "fatal")) == ("other", "other", "fatal")
    assert names.fold(i.STEP_FAILURES, ("f", "s2", "fatal")) == ("f", "s2", "fatal")
    assert names.fold(i.EXECUTION_DURATION, ("f",)) == ("f",)


def test_that_there_are_too_many_names_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    names = Names(2)
    for number in range(9):
        names.fold(i.STEP_DURATION, ("f", f"s{number}"))
    names.fold(i.EXECUTION_DURATION, ("f",))
    [line] = caplog.records
    assert line.getMessage() == (
        "metrics: a page bears 2 names by flow/step, there are more: from f/s2 on those that are new count as 'other';"
        " run fewer flows in one worker"
    )
    assert line.fields == {"flow": "f", "step": "s2", "event": "SeriesFolded"}  # type: ignore[attr-defined]


def test_what_a_shard_has_folded_is_no_news_to_its_parent(caplog: pytest.LogCaptureFixture) -> None:
    names = Names(1)
    for pair in (("f", "s"), ("other", "other")):
        assert names.fold(i.STEP_DURATION, pair) == pair
    assert caplog.records == []


@pytest.mark.pain(42)
def test_a_flow_that_is_not_here_has_no_series_of_its_own_and_takes_no_place() -> None:
    names = Names(2, flows=frozenset({"here", "there"}))
    for number in range(10):
        assert names.fold(i.EXECUTION_DURATION, (f"foreign{number}",)) == ("other",)
        assert names.fold(i.STEP_FAILURES, (f"foreign{number}", "s", "fatal")) == ("other", "other", "fatal")
    assert names.fold(i.EXECUTION_DURATION, ("here",)) == ("here",)
    assert names.fold(i.EXECUTION_DURATION, ("there",)) == ("there",)
    assert names.fold(i.STEP_FAILURES, ("here", "s", "fatal")) == ("here", "s", "fatal")
    assert names.fold(i.SHARD_RESTARTS, ("killed",)) == ("killed",)


def test_names_are_cleaned_and_cut() -> None:
    names = Names()
    assert names.fold(i.EXECUTION_DURATION, ("a\0b\nc\ud800d",)) == ("a?b?c?d",)
    assert names.fold(i.EXECUTION_DURATION, ("x" * 1000,)) == ("x" * VALUE_CHARS_MAX,)


@given(st.lists(st.tuples(st.text(), st.text()), max_size=20))
def test_any_names_can_be_written_and_read(pairs: list[tuple[str, str]]) -> None:
    sheet = Sheet.in_memory()
    for pair in pairs:
        sheet.spread(i.STEP_DURATION, *pair).observe(1)
    found = numbers_of(sheet.source.read)
    assert sum(numbers[-1] for numbers in found.values()) == len(pairs)
    assert len(found) <= len(set(pairs))


@pytest.mark.parametrize(
    "ask",
    [
        lambda sheet: sheet.count(i.STEP_DURATION, *PAIR),
        lambda sheet: sheet.level(i.STEP_ATTEMPTS, *PAIR, "ok"),
        lambda sheet: sheet.spread(i.EXECUTIONS_NOW, "queued"),
        lambda sheet: sheet.count(i.STEP_ATTEMPTS, *PAIR),
        lambda sheet: sheet.count(Instrument("mine", Kind.COUNTER, "Not declared.")),
    ],
    ids=["a histogram", "a counter", "a gauge", "a label too few", "not declared"],
)
def test_what_is_not_declared_so_is_refused(sheet: Sheet, ask: Callable[[Sheet], object]) -> None:
    with pytest.raises(ValueError, match="stepwell_"):
        ask(sheet)


def test_instruments_are_told_apart_in_a_file() -> None:
    assert len(BY_PRINT) == len(INSTRUMENTS)


# Threads.


def test_a_number_is_for_one_thread_or_for_all_but_not_both(sheet: Sheet) -> None:
    sheet.count(i.HEALED_EXECUTIONS)
    sheet.shared_spread(i.COMMIT_BATCH_SIZE)
    with pytest.raises(ValueError, match="by one thread and by many"):
        sheet.shared_count(i.HEALED_EXECUTIONS)
    with pytest.raises(ValueError, match="by one thread and by many"):
        sheet.spread(i.COMMIT_BATCH_SIZE)


@pytest.mark.threads
def test_shared_numbers_lose_nothing_and_series_are_made_once(sheet: Sheet) -> None:
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for number in range(500):
            sheet.shared_count(i.INGRESS, "start").inc()
            sheet.shared_spread(i.STEP_DURATION, "f", f"s{number}").observe(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = numbers_of(sheet.source.read)
    assert found["stepwell_ingress_total", "start"] == [2000]
    assert len(found) == 501
    assert sum(numbers[-1] for numbers in found.values()) == 2000 + 4 * 500


# Exemplars.


class Marked:
    """A sheet under a clock that is put forward."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.sheet = Sheet.in_memory(self.clock)

    def marks(self) -> dict[tuple[str, int], tuple[str, float]]:
        reader = SheetReader(self.sheet.source.read)
        reader.look()
        named = [seen.instrument.name for seen in reader.series if seen is not None]
        return {(named[of], bucket): (mark.execution, mark.value) for of, bucket, mark in reader.marks()}


def test_the_execution_that_was_counted_last_is_remembered() -> None:
    marked = Marked()
    count = marked.sheet.count(i.STEP_FAILURES, *PAIR, "fatal")
    count.inc()
    assert marked.marks() == {}
    count.inc(1, "order-1")
    marked.clock.advance(MARK_SECONDS)
    count.inc(1, "order-2")
    assert marked.marks() == {("step_failures", 0): ("order-2", 1)}


def test_the_trace_is_asked_for_only_when_an_exemplar_is_written() -> None:
    marked = Marked()
    asked: list[str] = []
    marked.sheet.trace = lambda execution: asked.append(execution) or "00ff" * 8
    count = marked.sheet.count(i.STEP_FAILURES, *PAIR, "fatal")
    for number in range(100):
        count.inc(1, f"order-{number}")
    reader = SheetReader(marked.sheet.source.read)
    reader.look()
    assert [mark.trace for _, _, mark in reader.marks()] == ["00ff" * 8]
    assert asked == ["order-0"]


def test_in_a_storm_not_each_one_is_written() -> None:
    marked = Marked()
    count = marked.sheet.count(i.STEP_FAILURES, *PAIR, "fatal")
    for number in range(100):
        count.inc(1, f"order-{number}")
    assert marked.marks() == {("step_failures", 0): ("order-0", 1)}


def test_only_slow_buckets_remember_an_execution() -> None:
    marked = Marked()
    spread = marked.sheet.spread(i.STEP_DURATION, *PAIR)
    spread.observe(0.002, "quick")
    spread.observe(45.0, "slow")
    spread.observe(1e6, "endless")
    size = len(i.STEP_SECONDS)
    assert marked.marks() == {
        ("step_duration_seconds", size - 3): ("slow", 45.0),
        ("step_duration_seconds", size): ("endless", 1e6),
    }


def test_an_instrument_without_exemplars_keeps_none() -> None:
    marked = Marked()
    marked.sheet.count(i.EXECUTIONS_PARKED, "checkout", "crashed").inc(1, "order-1")
    assert marked.marks() == {}


def test_a_torn_exemplar_is_none() -> None:
    marked = Marked()
    marked.sheet.count(i.STEP_FAILURES, *PAIR, "fatal").inc(1, "order-1")
    raw = bytearray(marked.sheet.source.read())
    raw[raw.index(b"order-1") + 6] = ord("2")
    reader = SheetReader(lambda: bytes(raw))
    reader.look()
    assert list(reader.marks()) == []
