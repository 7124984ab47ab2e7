"""How exactly do retries begin when they are due, with 10,000 executions that back off at once?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.flows import ATTEMPTS, BACKOFF_JITTER, BACKOFF_SECONDS, QUICK_BACKOFF_SECONDS
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile, shares
from benchmarks.stage import Stage

__all__ = ["run"]

PATIENCE_SECONDS = 300.0
SAMPLE = 100
PIPELINE = 500
FLOWS_OF = {"fails": "fails_often", "fails_soon": "fails_often_soon"}
LOADS = ((0, "nothing else"), (20, "20 flows in flight"), (200, "200 flows in flight"))
HOW = f"""10,000 executions whose step fails {ATTEMPTS - 1} times, {BACKOFF_SECONDS:g} to
{BACKOFF_SECONDS * (1 + BACKOFF_JITTER):g} s apart, so that all back off at once; alone, and beside five-step flows, of
which 20 or 200 are always in flight. Lateness is from the rows: the begin of an attempt minus when it was due, in whole
milliseconds of the server's clock (which a busy machine reads some ms wrong: so a few may be below 0). Whether one
began too early is told by the steps, which measure the pauses between attempts by the host's monotonic clock."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the rows say: how late each retry began, in ms; which began too early; how many backed off at once."""

    late: list[float]
    early: int  # begun before the delay was over, by the host's monotonic clock
    short: int  # with a delay under its floor
    at_once: int


def run(scale: Scale, progress: Progress) -> Result:
    """Alone and beside a load, one after the other, on one shard."""
    count, loads = scale.of(10_000, 20), LOADS[: scale.of(len(LOADS), 2)]
    step, backoff = ("fails_soon", QUICK_BACKOFF_SECONDS) if scale.quick else ("fails", BACKOFF_SECONDS)
    found: dict[str, _Found] = {}
    with Stage(passivate_after=300) as stage:
        progress.plan(len(loads))
        for in_flight, beside in loads:
            progress.part(f"{count:,} executions back off beside {beside}")
            over = threading.Event()
            crowd = threading.Thread(target=_keep_busy, args=(stage, in_flight, scale.of(2000, 20), over))
            if in_flight:
                crowd.start()
            found[beside] = _retry(stage, count, step, backoff)
            over.set()
            if in_flight:
                crowd.join()
        facts = stage.facts()
    rows = []
    for beside, one in found.items():
        rows += [
            Row(f"lateness beside {beside}, p99", percentile(one.late, 0.99), "ms", "<= 50"),
            Row(f"lateness beside {beside}, p50", percentile(one.late, 0.5), "ms"),
            Row(f"lateness beside {beside}, at most", max(one.late), "ms"),
        ]
    rows += _promises(found)
    chart = shares(
        "lateness",
        f"How late do the retries of {count:,} executions begin?",
        "ms after they were due",
        {f"beside {beside}": one.late for beside, one in found.items()},
        log=True,
        aim=50,
    )
    return Result("retry_accuracy", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))


def _promises(found: Mapping[str, _Found]) -> list[Row]:
    number = f"of {sum(len(one.late) for one in found.values()):,}"
    return [
        Row("retries that began too early", sum(one.early for one in found.values()), number, "<= 0"),
        Row("delays under their floor", sum(one.short for one in found.values()), number, "<= 0"),
        Row("executions that backed off at once, at most", max(one.at_once for one in found.values()), "", ""),
    ]


def _retry(stage: Stage, count: int, step: str, backoff: float) -> _Found:
    """Let so many executions fail and retry, and read what their rows say."""
    ids = stage.load(FLOWS_OF[step]).create(count)
    at_once = _wait(stage, ids)
    late: list[float] = []
    early = short = 0
    for start in range(0, count, PIPELINE):
        pipeline = stage.redis.pipeline(transaction=False)
        for execution_id in ids[start : start + PIPELINE]:
            pipeline.hgetall(stage.keys.row(execution_id))
        for row in pipeline.execute():
            failed = [json.loads(row[f"a:{step}:{number}".encode()]) for number in range(1, ATTEMPTS)]
            done = json.loads(row[f"r:{step}".encode()])
            begins = [each["started_at"] for each in (*failed[1:], done)]
            delays = [each["due_at"] - each["ended_at"] for each in failed]
            late += [begin - each["due_at"] for each, begin in zip(failed, begins, strict=True)]
            early += sum(1 for delay, pause in zip(delays, done["value"], strict=True) if pause < delay)
            short += sum(1 for delay in delays if delay < backoff * 1000)
    return _Found(late, early, short, at_once)


def _wait(stage: Stage, ids: list[str]) -> int:
    """Wait until all have ended; how many waited at once, at most. It asks seldom, so as not to be the load itself."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    at_once = 0
    for execution_id in (*ids[:: max(1, len(ids) // SAMPLE)], *ids):
        while stage.redis.hget(stage.keys.row(execution_id), "status") != b"completed":
            if time.monotonic() > deadline:
                raise TimeoutError(f"execution {execution_id} has not completed after {PATIENCE_SECONDS:g} s")
            at_once = max(at_once, stage.count("waiting"))
            time.sleep(0.2)
    return at_once


def _keep_busy(stage: Stage, in_flight: int, count: int, over: threading.Event) -> None:
    load = stage.load("five")
    while not over.is_set():
        load.run(count, in_flight)
