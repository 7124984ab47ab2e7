"""How long does a page of executions take, among a million that have ended?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis

from benchmarks.filled import EVERY_MS, FIRST_MS, checkpoint, fill, finished
from benchmarks.progress import Progress
from benchmarks.result import Result, Row, Scale, bars
from benchmarks.rounds import alternate
from benchmarks.stage import server_facts
from benchmarks.unfinished import unfinished
from stepwell import Client
from stepwell.store.connect import connect
from stepwell.store.embedded import EmbeddedServer
from stepwell.store.keys import Keys

__all__ = ["run"]

UNIT = "ms/page"
AIM_MS = 50
LIMIT = 100
WAITING_SHARE = 10
"""Beside so many that have ended there is one that waits."""
NORMAL = "no filter, in turns with these"
BACKOFFS: Final[Mapping[str, Mapping[str, Any]]] = {
    "what backs off": {},
    "what backs off, after one type of error": {"error": "TimeoutError"},
}
TOLD_EVERY = 100_000
HOW = """a million executions that have ended, of four flows, 5 % in error, with two attributes each (10,000
customers, three plans), in 64 partitions. Pages of 100 by `Client.list` over a unix socket, each kind 20 times,
going on by cursor where there is more; the append-only file is off. Few fit: of those on the
shortest list hardly any are what else is wanted, so a page ends after 3,000 that are not. Then a hundred
thousand more that wait, of which 30 % back off: pages of these, and of no filter, in turns; their CPU time is that of
client and server together."""


def run(scale: Scale, progress: Progress) -> Result:
    """Pages of every filter, and of several at once."""
    count, pages = scale.of(1_000_000, 2000), scale.of(20, 2)
    folder = Path(tempfile.mkdtemp(prefix="stepwell-bench-"))
    try:
        with EmbeddedServer.use(folder / "data") as server:
            meters = connect(server.url, client_name="stepwell-bench")
            meters.config_set("appendonly", "no")
            began = meters.info("memory")["used_memory"]
            progress.tell(f"writing {count:,} executions")
            for written in fill(server.url, Keys(), map(checkpoint, finished(count))):
                if written % TOLD_EVERY == 0:
                    progress.tell(f"{written:,} written")
            stored = (meters.info("memory")["used_memory"] - began) / count
            found, looked = _measure(server.url, count, pages, progress)
            waiting = count // WAITING_SHARE
            progress.tell(f"writing {waiting:,} that wait, of which some back off")
            for _ in fill(server.url, Keys(), (each.checkpoint for each in unfinished(waiting))):
                pass
            turns = _in_turns(server.url, meters, pages, progress)
            facts = server_facts(meters) | {"durability": "relaxed"}
            meters.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found |= {name: [cost.wall for cost in turns[name]] for name in BACKOFFS}
    slowest = max(found, key=lambda name: sorted(found[name])[len(found[name]) // 2])
    rows = [Row.of(f"slowest kind of page: {slowest}", UNIT, found[slowest], f"<= {AIM_MS}")]
    rows += [Row.of(name, UNIT, values, f"<= {AIM_MS}") for name, values in found.items()]
    rows += _rows_of(turns)
    rows += [Row(f"{name}: rows looked at", looked[name], "rows", better="neither") for name in looked]
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


class _Cost(NamedTuple):
    """What a page took, in ms; the CPU time is that of client and server together."""

    wall: float
    cpu: float


class _Pages:
    """Pages of one kind, one after the other."""

    def __init__(self, client: Client, meters: redis.Redis, **wanted: Any) -> None:
        self._client = client
        self._meters = meters
        self._wanted = wanted
        self._cursor: str | None = None

    def turn(self) -> _Cost:
        """The next page."""
        server = self._server_seconds()
        began, worked = time.perf_counter(), time.process_time()
        page = self._client.list(limit=LIMIT, cursor=self._cursor, **self._wanted)
        wall, cpu = time.perf_counter() - began, time.process_time() - worked
        self._cursor = page.cursor
        return _Cost(wall * 1000, (cpu + self._server_seconds() - server) * 1000)

    def _server_seconds(self) -> float:
        used = self._meters.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def _in_turns(url: str, meters: redis.Redis, pages: int, progress: Progress) -> dict[str, list[_Cost]]:
    """Pages of what backs off, and of no filter."""
    with Client(url) as client:
        client.list(limit=1, backing_off=True)
        kinds = {name: _Pages(client, meters, backing_off=True, **wanted) for name, wanted in BACKOFFS.items()}
        kinds[NORMAL] = _Pages(client, meters)
        progress.plan(pages * len(kinds))
        return alternate({name: kind.turn for name, kind in kinds.items()}, pages, progress)


def _rows_of(turns: Mapping[str, list[_Cost]]) -> list[Row]:
    rows = [Row.of(NORMAL, UNIT, [cost.wall for cost in turns[NORMAL]], f"<= {AIM_MS}")]
    rows += [Row.of(f"{name}: CPU time", UNIT, [cost.cpu for cost in costs]) for name, costs in turns.items()]
    for name in BACKOFFS:
        pairs = list(zip(turns[name], turns[NORMAL], strict=True))
        rows.append(Row.of(f"{name} / no filter", "", [one.wall / other.wall for one, other in pairs]))
        rows.append(Row.of(f"{name} / no filter: CPU time", "", [one.cpu / other.cpu for one, other in pairs]))
    return rows
