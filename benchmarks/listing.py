"""How long does a page of executions take, among a million that have ended?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.filled import EVERY_MS, FIRST_MS, fill
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.stage import server_facts
from stepwell import Client
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer
from stepwell.store.keys import Keys

__all__ = ["run"]

UNIT = "ms/page"
AIM_MS = 50
LIMIT = 100
TOLD_EVERY = 100_000
HOW = """a million executions that have ended, of four flows, 5 % in error, with two attributes each (10,000
customers, three plans), in 64 partitions. Pages of 100 by `Client.list` over a unix socket, each kind 20 times,
going on by cursor where there is more; the append-only file is off. Few fit: of those on the
shortest list hardly any are what else is wanted, so a page ends after 3,000 that are not."""


def run(scale: Scale, progress: Progress) -> Result:
    """Pages of every filter, and of several at once."""
    count, pages = scale.of(1_000_000, 2000), scale.of(20, 2)
    folder = Path(tempfile.mkdtemp(prefix="stepwell-bench-"))
    try:
        with EmbeddedServer.use(folder / "data") as server:
            redis = connect(server.url, client_name="stepwell-bench")
            redis.config_set("appendonly", "no")
            began = redis.info("memory")["used_memory"]
            progress.tell(f"writing {count:,} executions")
            for written in fill(server.url, Keys(), count):
                if written % TOLD_EVERY == 0:
                    progress.tell(f"{written:,} written")
            stored = (redis.info("memory")["used_memory"] - began) / count
            found, looked = _measure(server.url, count, pages, progress)
            facts = server_facts(redis) | {"durability": "relaxed"}
            redis.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    slowest = max(found, key=lambda name: sorted(found[name])[len(found[name]) // 2])
    rows = [Row.of(f"slowest kind of page: {slowest}", UNIT, found[slowest], f"<= {AIM_MS}")]
    rows += [Row.of(name, UNIT, values, f"<= {AIM_MS}") for name, values in found.items()]
    rows += [Row(f"{name}: rows looked at", looked[name], "rows", better="neither") for name in found]
    rows.append(Row("Redis memory of one that has ended, with its lists and two attributes", stored, "bytes/execution"))
    chart = bars("pages", "How long does a page of a million take?", UNIT, found, aim=AIM_MS)
    return Result("listing", (__doc__ or "").strip(), rows, [chart], facts, how=" ".join(HOW.split()))


def filters(count: int) -> dict[str, Mapping[str, Any]]:
    """What is looked for, by name."""

    def at(share: float) -> datetime:
        return datetime.fromtimestamp((FIRST_MS + count * share * EVERY_MS) / 1000, UTC)

    return {
        "no filter": {},
        "no filter, from the middle on": {"until": at(0.5)},
        "status completed": {"status": "completed"},
        "status error": {"status": "error"},
        "flow, of many": {"flow": "checkout"},
        "flow, of few": {"flow": "audit"},
        "type of error": {"error": "ConnectionError"},
        "attribute, one customer of 10,000": {"attributes": {"customer": "c77"}},
        "attribute, of many": {"attributes": {"plan": "free"}},
        "status, flow and time": {"status": "error", "flow": "checkout", "since": at(0.3), "until": at(0.7)},
        "status, flow, error and attribute": {
            "status": "error",
            "flow": "ship",
            "error": "ConnectionError",
            "attributes": {"plan": "pro"},
        },
        "few fit": {"flow": "refund", "error": "ValueError", "attributes": {"plan": "enterprise"}},
    }


def _measure(url: str, count: int, pages: int, progress: Progress) -> tuple[dict[str, list[float]], dict[str, float]]:
    found: dict[str, list[float]] = {}
    looked: dict[str, float] = {}
    kinds = filters(count)
    progress.plan(len(kinds))
    with Client(url) as client:
        client.list(limit=1)
        for name, wanted in kinds.items():
            progress.part(name)
            times: list[float] = []
            rows: list[int] = []
            cursor: str | None = None
            for _ in range(pages):
                began = time.perf_counter()
                page = client.list(limit=LIMIT, cursor=cursor, **wanted)
                times.append((time.perf_counter() - began) * 1000)
                rows.append(page.looked)
                cursor = page.cursor
            found[name] = times
            looked[name] = sum(rows) / len(rows)
    return found, looked
