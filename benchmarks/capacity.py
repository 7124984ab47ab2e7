"""The numbers of docs/capacity.md: coefficients from results, limits from the code, and one worked example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.chart import number_text
from benchmarks.report import Report
from stepwell.actors.admission import BURST, DOUBLING_SECONDS
from stepwell.actors.leases import RENEW_SECONDS
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.store.leases import TTL_MS

__all__ = ["MISSING", "numbers"]

MISSING = "(not measured yet)"
EVENTS_MAX = 10_000  # a partition's stream is cut to about so many: commit.lua
BUSY = 0.7  # what a core should do at most, so that peaks and retries find room

# The worked example.
FLOWS_A_DAY = 2_000_000
STEPS = 8
PEAK = 4
WAIT_HOURS = 2
KEPT_DAYS = 7
PAYLOAD = 200


@dataclass(frozen=True, slots=True)
class _Results:
    """Looks numbers up; None where something was not measured."""

    reports: Mapping[str, Report]

    def value(self, benchmark: str, measure: str, unit: str) -> float | None:
        report = self.reports.get(benchmark)
        return None if report is None else report.row(measure, unit).value


def numbers(reports: Mapping[str, Report]) -> dict[str, str]:
    """What the page's placeholders stand for.

    Raises:
        KeyError: a result has not the row that the page needs: the page or the benchmark has to follow.
    """
    found = _Results(reports)
    shard = _times(found.value("throughput", "shard CPU", "ms/step"), 1000)
    server = _times(found.value("throughput", "Redis CPU", "ms/step"), 1000)
    waiting = found.value("waiting", "Redis memory but for the streams of events, which are capped", "bytes/execution")
    ended = found.value("memory", "Redis memory of one that has ended, of five steps", "bytes/execution")
    history = _row_bytes(reports)
    event = found.value("memory", "Redis memory of an event in a stream", "bytes/event")
    known: dict[str, float | None] = {
        "shard_us": shard,
        "redis_us": server,
        "shard_steps": _times(_per(1e6, shard), BUSY),
        "redis_steps": _times(_per(1e6, server), BUSY),
        "shards_a_redis": _per(shard, server),
        "measured_one": found.value("throughput", "throughput", "steps/s"),
        "measured_two": found.value("shards", "two shards", "steps/s"),
        "bytes_to_redis": found.value("throughput", "bytes to Redis", "bytes/step"),
        "apart_us": _times(found.value("isolation", "shard CPU, without its step processes", "ms/step"), 1000),
        "waiting_bytes": waiting,
        "in_memory_bytes": found.value("memory", "shard's resident memory", "bytes/execution"),
        "ended_bytes": ended,
        "history_bytes": history,
        "event_bytes": event,
        "events_mib": _times(event, EVENTS_MAX * DEFAULT_PARTITIONS / 2**20),
        "shard_mib": found.value("waiting", "a new worker's resident memory", "MiB"),
        "two_shards_mib": found.value("shards", "two shards and their parent: resident memory", "MiB"),
        "connections": found.value("shards", "connections to Redis that a second shard adds", "connections"),
        "idle_commands": found.value("waiting", "Redis commands then", "commands per second"),
        "idle_redis_cores": found.value("waiting", "Redis CPU then", "cores"),
        "idle_shard_cores": found.value("waiting", "its CPU while nothing is due", "cores"),
        "starts": found.value("waiting", "executions started and brought to rest", "executions/s"),
        "million_waiting_gib": _times(waiting, 1e6 / 2**30),
        "million_ended_gib": _times(ended, 1e6 / 2**30),
        "killed_shard_s": found.value("recovery", "killed shard: until the last one runs again", "s"),
        "frozen_s": found.value("recovery", "frozen worker: until the last one runs again", "s"),
        **_example(shard, server, waiting, ended, history),
    }
    fixed = {
        "partitions": str(DEFAULT_PARTITIONS),
        "events_max": f"{EVENTS_MAX:,}",
        "renew_s": f"{RENEW_SECONDS:g}",
        "ttl_s": f"{TTL_MS / 1000:g}",
        "burst": f"{BURST:,}",
        "doubling_s": f"{DOUBLING_SECONDS:g}",
        "busy": f"{BUSY:.0%}",
        "crowd_s": f"{math.log2(100_000 / BURST) * DOUBLING_SECONDS:.0f}",
    }
    return {name: MISSING if value is None else number_text(value) for name, value in known.items()} | fixed


def _row_bytes(reports: Mapping[str, Report]) -> float | None:
    """Bytes of a row per step, where it has so many that its start and end count for nothing."""
    report = reports.get("history")
    if report is None:
        return None
    return [row.value for row in report.result.rows if row.measure.endswith("the row's memory in Redis")][-1]


def _example(
    shard: float | None, server: float | None, waiting: float | None, ended: float | None, history: float | None
) -> dict[str, float | None]:
    flows = FLOWS_A_DAY / 86_400
    steps = flows * STEPS * PEAK
    kept = None if ended is None or history is None else ended + (STEPS - 5) * history + STEPS * PAYLOAD
    shards = _times(_per(steps, 1e6), _per(shard, BUSY))
    return {
        "ex_flows_day": FLOWS_A_DAY,
        "ex_steps_flow": STEPS,
        "ex_peak": PEAK,
        "ex_hours": WAIT_HOURS,
        "ex_days": KEPT_DAYS,
        "ex_payload": PAYLOAD,
        "ex_flows": flows,
        "ex_steps": steps,
        "ex_shards": shards,
        "ex_shards_up": None if shards is None else math.ceil(shards) + 1,
        "ex_redis": _times(_per(steps, 1e6), server),
        "ex_waiting": flows * WAIT_HOURS * 3600,
        "ex_waiting_gib": _times(waiting, flows * WAIT_HOURS * 3600 / 2**30),
        "ex_ended_bytes": kept,
        "ex_ended_gib": _times(kept, FLOWS_A_DAY * KEPT_DAYS / 2**30),
    }


def _times(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor


def _per(value: float | None, divisor: float | None) -> float | None:
    return None if value is None or not divisor else value / divisor
