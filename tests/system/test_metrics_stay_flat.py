"""However often shards die, and whatever people name their errors and flows: metrics take no more room than before."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from system.support.scrapes import Scraper, page_of
from system.support.stage import HANG_SECONDS, SUPPORT, Stage, WorkerProcess
from system.test_retry_counters import KEYS, looks_like_an_id
from tally.page import grows_only, label_values, numbers_of, series_of

from stepwell.client.starting import input_hash
from stepwell.core.ownership import owners
from stepwell.core.records import Meta, encode
from stepwell.metrics import instruments as i
from stepwell.store.leases import LeaseHolder, parse_lease
from stepwell.store.link import Link
from stepwell.store.replies import Created
from stepwell.store.requests import Create
from stepwell.store.scripts import Scripts

FLOWS = SUPPORT / "fated.py"
ROUNDS = 8
WARM_UP = 3
NAMES = 2_000  # so many that each partition has one
BATCH = 500
MEMORY_SLACK_KB = 6_000
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux shows what others have open")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the worker keeps its temporary files."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    return made


class Room:
    """What a worker's metrics take: series, files, descriptors and memory of the parent."""

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        series = series_of(page_of(worker))
        self.series = frozenset(each for each in series if grows_only(each))
        self.levels = len(series) - len(self.series)
        self.files = sorted(path.name.rpartition("-")[0] or path.name for path in folder.rglob("*") if path.is_file())
        self.descriptors = len(os.listdir(f"/proc/{worker.pid}/fd"))
        status = Path(f"/proc/{worker.pid}/status").read_text()
        self.memory_kb = int(status.partition("VmRSS:")[2].split()[0])


def leases(stage: Stage) -> dict[int, LeaseHolder]:
    """Who holds each partition."""
    with stage.server() as server:
        found = {part.number: parse_lease((server.get(part.lease) or b"").decode()) for part in KEYS.parts}
    return {partition: holder for partition, holder in found.items() if holder is not None}


def process_of(holder: LeaseHolder) -> int:
    """That which holds a partition."""
    return int(holder.host_info.split(",")[2])


def settled(stage: Stage, dead: Container[int] = ()) -> dict[int, LeaseHolder]:
    """Who holds each partition once two shards that live hold what is for each of them; nothing until then."""
    found = leases(stage)
    held = {partition: holder.owner for partition, holder in found.items()}
    ours = len(set(held.values())) == 2 and held == owners(KEYS.partitions, frozenset(held.values()))
    return found if ours and not any(process_of(holder) in dead for holder in found.values()) else {}


def create(stage: Stage, wanted: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
    """Start executions (id, flow, input) as a client does, unchecked and many at a time."""
    now = time.time_ns() // 1_000_000
    requests = []
    for execution, flow, given in wanted:
        raw = msgspec.json.encode(given)
        hashed = input_hash(flow, raw)
        fields = [("meta", encode(Meta(flow, now, hashed))), ("input", raw)]
        requests.append(Create(execution, flow, hashed, now, fields))
    with stage.server() as server:
        link = Link(server, KEYS, Scripts())
        for at in range(0, len(requests), BATCH):
            assert all(isinstance(reply, Created) for reply in link.execute(requests[at : at + BATCH]))


def run_one_on_each(
    stage: Stage, worker: WorkerProcess, client: Any, round_: int, holders: dict[int, LeaseHolder]
) -> None:
    """Let each shard commit something, so that its next death is none in vain."""
    names = {KEYS.partition_of(name): name for name in (f"r{round_}-{number}" for number in range(NAMES))}
    wanted = {holder.owner: names[partition] for partition, holder in holders.items() if partition in names}
    assert len(wanted) == 2
    for name in wanted.values():
        client.start("fortune", {"gate": f"gate-{round_}"}, name)

    def heard_of() -> bool:
        levels = numbers_of(page_of(worker)).levels.get(i.EXECUTIONS_IN_MEMORY, {})
        return sorted(levels.values()) == [1.0, 1.0]

    stage.eventually(heard_of, "the parent has heard of both since they committed something")
    stage.open(f"gate-{round_}")
    for name in wanted.values():
        assert client.result(name, timeout=HANG_SECONDS) == 1


@pytest.mark.pain(42)
@needs_proc
def test_restarts_of_shards_add_no_series_no_files_no_descriptors_and_no_memory(stage: Stage, folder: Path) -> None:
    worker = stage.worker("--shards", "2", flows=FLOWS).ready()
    rooms: list[Room] = []
    with stage.client() as client, Scraper(worker):
        holders = stage.eventually(lambda: settled(stage), "both shards own their shares")
        for round_ in range(ROUNDS):
            run_one_on_each(stage, worker, client, round_, holders)
            stage.eventually(lambda: done(worker) == 2 * (round_ + 1), "both are counted")  # noqa: B023
            rooms.append(Room(worker, folder))
            killed = {process_of(holder) for holder in holders.values()}
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            holders = stage.eventually(lambda killed=killed: settled(stage, killed), "others have taken their places")
        assert worker.metric("stepwell_shard_restarts_total") == 2 * ROUNDS
        assert done(worker) == 2 * ROUNDS
    check_flat(rooms)


def done(worker: WorkerProcess) -> float:
    return worker.metric("stepwell_executions_total", flow="fortune", status="completed")


def check_flat(rooms: Sequence[Room]) -> None:
    """From the warm-up on nothing grows."""
    first, last = rooms[WARM_UP], rooms[-1]
    assert last.series == first.series
    assert last.levels <= max(room.levels for room in rooms[:-1])
    assert last.files == first.files
    # A scrape that was just under way had a connection open.
    assert min(room.descriptors for room in rooms[-WARM_UP:]) <= max(room.descriptors for room in rooms[:WARM_UP])
    assert last.memory_kb - first.memory_kb < MEMORY_SLACK_KB


@pytest.mark.pain(42)
@pytest.mark.hang_limit(900)
@needs_proc
def test_ten_thousand_different_errors_and_many_foreign_names_add_no_series(stage: Stage, folder: Path) -> None:
    worker = stage.worker("--shards", "2", flows=FLOWS).ready()
    stage.eventually(lambda: settled(stage), "both shards own their shares")

    def ended(flow: str) -> float:
        return worker.metric("stepwell_executions_total", flow=flow)

    with Scraper(worker):
        create(stage, ((f"m{number}", "misfortune", {"number": number}) for number in range(100)))
        stage.eventually(lambda: ended("misfortune") == 100, "a hundred have failed")
        before = Room(worker, folder)
        create(stage, ((f"m{number}", "misfortune", {"number": number}) for number in range(100, 10_000)))
        stage.eventually(lambda: ended("misfortune") == 10_000, "ten thousand have failed", 500.0)
        after = Room(worker, folder)
        assert after.series == before.series
        assert after.files == before.files
        create(stage, ((f"f{number}", f"foreign_{number}", {}) for number in range(2_500)))
        stage.eventually(
            lambda: worker.metric("stepwell_executions_parked_total", reason="not deployed here") == 2_500, "all parked"
        )
        assert len(Room(worker, folder).series - after.series) <= 2, "flows that are not here have no series"
        stage.open("gate")
        create(stage, [("late", "fortune", {"gate": "gate"})])
        stage.eventually(lambda: ended("fortune") == 1, "a flow that is here has its own")
        shown = numbers_of(page_of(worker))
        assert shown.counts[i.STEP_FAILURES]["misfortune", "unlucky", "budget"] == 10_000
    assert not [value for value in label_values([page_of(worker)]) if looks_like_an_id(value)]
