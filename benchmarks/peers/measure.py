"""The workloads: throughput and latency in one turn, and the death of the worker."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.install import Environment
from benchmarks.peers.outcome import Recovered, Turn
from benchmarks.peers.peer import Peer, Skip
from benchmarks.peers.stand import STEPS, Stand
from benchmarks.result import percentile

__all__ = ["FULL", "QUICK", "Extent", "recover", "take_turn"]

IN_FLIGHT = 200
AWAY_SECONDS = 1.0
UNTIL_HALF_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: rounds, seconds of each workload, flows of the death, and how long anybody waits then."""

    rounds: int
    throughput_seconds: float
    latency_seconds: float
    latency_flows: int
    warm_up_seconds: float
    recovery_flows: int
    patience_seconds: float


FULL = Extent(3, 4.0, 2.5, 500, 0.7, 200, 70.0)
QUICK = Extent(1, 0.5, 0.5, 20, 0.1, 20, 8.0)


def take_turn(peer: Peer, made: Environment, cache: Path, extent: Extent) -> Turn:
    """Start the system, warm it up, measure throughput, then latency, and end it."""
    before = os.getloadavg()[0]
    with _folder() as folder, Stand(peer, made, cache, folder) as stand:
        flows = _warm_up(stand, extent, peer.least_flows)
        used = stand.cpu_seconds()
        seconds = stand.throughput(flows, IN_FLIGHT)
        now = stand.cpu_seconds()
        stand.latencies(5, extent.latency_seconds)
        taken = stand.latencies(extent.latency_flows, extent.latency_seconds)
    steps = flows * STEPS
    return Turn(
        flows=flows,
        steps_per_second=steps / seconds,
        p50_ms=statistics.median(taken),
        p99_ms=percentile(taken, 0.99),
        latencies=len(taken),
        cpu_ms_per_step=None if used is None or now is None else (now - used) / steps * 1000,
        load_before=round(before, 2),
    )


def _warm_up(stand: Stand, extent: Extent, least: int) -> int:
    """Run flows until it takes some time; how many flows fill the time of the measurement."""
    flows, seconds = least, stand.throughput(least, IN_FLIGHT)
    while seconds < extent.warm_up_seconds:
        flows = min(4 * flows, 20_000)
        seconds = stand.throughput(flows, IN_FLIGHT)
    return max(least, round(flows / seconds * extent.throughput_seconds))


def recover(peer: Peer, made: Environment, cache: Path, extent: Extent) -> Recovered:
    """Flows of five steps of 50 ms; when half of the steps are done the worker is killed, 1 s later started again."""
    flows = extent.recovery_flows
    with _folder() as folder, Stand(peer, made, cache, folder, recovering=True, flows=flows) as stand:
        stand.submit(flows)
        _until_half(stand, flows * STEPS // 2)
        stand.kill_workers()
        time.sleep(AWAY_SECONDS)
        at_kill = sum(stand.journal.ends().values())
        again = time.monotonic()
        stand.start_workers()
        deadline = again + extent.patience_seconds
        while _finished(stand) < flows and time.monotonic() < deadline:
            stand.require_workers()
            time.sleep(0.1)
        finished = _finished(stand)
        seconds = stand.journal.last_end() - again if finished == flows else None
        time.sleep(AWAY_SECONDS)  # what runs a second time may still be at it
        ends = stand.journal.ends()
    return Recovered(
        flows=flows,
        seconds=seconds,
        steps_at_kill=at_kill,
        twice=sum(1 for count in ends.values() if count > 1),
        unfinished=flows - finished,
        patience=extent.patience_seconds,
    )


def _until_half(stand: Stand, wanted: int) -> None:
    deadline = time.monotonic() + UNTIL_HALF_SECONDS
    while sum(stand.journal.ends().values()) < wanted:
        stand.require_workers()
        if time.monotonic() > deadline:
            raise Skip(f"half of the steps were not done within {UNTIL_HALF_SECONDS:g} s, so nothing was killed")
        time.sleep(0.02)


def _finished(stand: Stand) -> int:
    """Flows whose last step has ended."""
    return sum(1 for _, number in stand.journal.ends() if number == str(STEPS))


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for one turn, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="stepwell-peer-", ignore_cleanup_errors=True) as name:
        yield Path(name)
