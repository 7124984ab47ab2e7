"""How late do retries begin while the shard is busy?"""

from __future__ import annotations

import json
import threading

from benchmarks.flows import ATTEMPTS
from benchmarks.load import Load
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, percentile
from benchmarks.stage import Stage

__all__ = ["run"]

PATIENCE_SECONDS = 120.0
LOADS = ((0, "nothing else"), (20, "20 flows in flight"), (200, "200 flows in flight"))


def run(scale: Scale, progress: Progress) -> Result:
    """Executions whose step fails four times, a second apart, beside five-step flows that never end to come."""
    count = scale.of(1000, 10)
    rows = []
    with Stage() as stage:
        for in_flight, beside in LOADS:
            over = threading.Event()
            crowd = threading.Thread(target=_keep_busy, args=(stage, in_flight, scale.of(2000, 20), over))
            if in_flight:
                crowd.start()
            late = _retry(stage, count)
            over.set()
            if in_flight:
                crowd.join()
            rows += [
                Row(f"lateness beside {beside}, p50", percentile(late, 0.5), "ms"),
                Row(f"lateness beside {beside}, p99", percentile(late, 0.99), "ms", "<= 50"),
            ]
    return Result("lateness", (__doc__ or "").strip(), rows)


def _retry(stage: Stage, count: int) -> list[float]:
    """Milliseconds between the due time and the begin of each retry, by the rows."""
    ids = Load(stage.url, stage.keys, stage.scripts, "fails_often", {}).create(count)
    found: list[float] = []
    for execution_id in ids:
        row = stage.ended(execution_id, PATIENCE_SECONDS)
        attempts = [json.loads(row[b"a:fails:%d" % number]) for number in range(1, ATTEMPTS)]
        begins = [attempt["started_at"] for attempt in attempts[1:]] + [json.loads(row[b"r:fails"])["started_at"]]
        found += [begin - attempt["due_at"] for attempt, begin in zip(attempts, begins, strict=True)]
    return found


def _keep_busy(stage: Stage, in_flight: int, count: int, over: threading.Event) -> None:
    load = Load(stage.url, stage.keys, stage.scripts, "five", {})
    while not over.is_set():
        load.run(count, in_flight)
