"""What a shard's parts observe, as log lines: each change is one line."""

from __future__ import annotations

import logging

import pytest

from stepwell.actors import store_events as e
from stepwell.metrics.formatting import KeyValueFormatter
from stepwell.metrics.telling import FIELDS
from stepwell.worker.shardlog import ShardLog


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def said(self) -> list[tuple[int, str]]:
        return [(record.levelno, record.getMessage()) for record in self.records]


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(lines: Lines) -> ShardLog:
    logger = logging.Logger("stepwell.shard", logging.DEBUG)
    logger.addHandler(lines)
    return ShardLog(logger, lambda: 0.0)


def test_a_takeover_from_the_dead_is_one_line_when_all_is_seen_to(log: ShardLog, lines: Lines) -> None:
    for partition in range(5):
        log(e.PartitionGained(partition, "boxed" if partition else "lapsed"))
    log(e.PartitionGained(9, ""))
    for partition in range(3):
        log(e.PartitionRecovered(partition, 0.5 + partition))
    log(e.PartitionRecovered(9, 0.1))
    log(e.PartitionGone(3, "lost"))
    assert lines.said == []
    log(e.PartitionRecovered(4, 0.7))
    assert lines.said == [(logging.INFO, "recovered: what earlier owners left in 4 partitions is seen to")]
    shown = KeyValueFormatter().format(lines.records[0])
    assert shown.endswith("partitions=4 duration_s=2.5 cause=boxed,lapsed event=PartitionRecovered")


def test_trouble_is_told_with_what_it_is_about(log: ShardLog, lines: Lines) -> None:
    log(e.Healed("order-7"))
    log(e.Fenced(3, lost=False))
    log(e.Fenced(3, lost=True))  # told by Leases
    log(e.SweepFound(2, 1))
    log(e.DeadLettered("malformed", "it has no type"))
    log(e.GuaranteeSeen({"durability": "aof", "kept": "yes"}))
    log(e.DuplicateSuppressed("command", "order-7"))
    log(e.StepOverran("order-7", "checkout", "charge", "charge#2", 1, "order-7:c0", 5.04321, 1.0))
    log(e.StepOverran("order-7", "checkout", "charge", "charge#2", 2, "order-7:c0", 5.04321, 1.0, "4bf9"))
    assert [(level, said.split(":")[0].split(" (")[0]) for level, said in lines.said] == [
        (logging.WARNING, "row restored from memory"),
        (logging.WARNING, "writes met no lease of ours, but the partition is ours still"),
        (logging.WARNING, "a sweep found what nobody held"),
        (logging.WARNING, "dead letter"),
        (logging.INFO, "the guarantee in force"),
        (logging.DEBUG, "a repeated command had no second effect"),
        (logging.WARNING, "attempt 1 took 5.0 s, its timeout is 1 s"),
        (logging.WARNING, "attempt 2 took 5.0 s, its timeout is 1 s"),
    ]
    for record in lines.records:
        assert set(record.__dict__["fields"]) <= set(FIELDS)
    overran = {
        "execution": "order-7",
        "path": "charge#2",
        "key": "order-7:c0",
        "duration_s": 5.043,
        "timeout_s": 1.0,
        "flow": "checkout",
        "step": "charge",
        "event": "StepOverran",
    }
    assert [record.__dict__["fields"] for record in lines.records if record.levelno != logging.INFO] == [
        {"execution": "order-7", "event": "Healed"},
        {"partition": 3, "event": "Fenced"},
        {"entries": 2, "executions": 1, "event": "SweepFound"},
        {"reason": "malformed", "event": "DeadLettered"},
        {"execution": "order-7", "kind": "command", "event": "DuplicateSuppressed"},
        {**overran, "attempt": 1},
        {**overran, "attempt": 2, "trace": "4bf9"},
    ]


def test_a_flood_of_one_kind_hides_no_other_and_is_counted(log: ShardLog, lines: Lines) -> None:
    for n in range(1000):
        log(e.DeadLettered("malformed", f"reason {n}"))
    log(e.DeadLettered("no such execution", "there is no execution x"))
    log.flush()
    said = [told for _, told in lines.said]
    assert len(said) == 12
    assert said[-2].startswith("dead letter: there is no execution x")
    assert said[-1] == "and 990 more like this in the last 0.0 s"
    assert lines.records[-1].fields == {"event": "DeadLettered", "reason": "malformed", "left_out": 990}  # type: ignore[attr-defined]


def test_what_only_counts_is_not_logged(log: ShardLog, lines: Lines) -> None:
    log(e.BatchWritten([], [], 0.1))
    log(e.IngressTaken("start", 3))
    assert lines.said == []
