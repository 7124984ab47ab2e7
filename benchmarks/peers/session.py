"""A run: install all, then rounds in which the systems take turns, then the deaths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.install import Environment, install, versions
from benchmarks.peers.measure import Extent, recover, take_turn
from benchmarks.peers.outcome import Outcome, Recovered, Turn
from benchmarks.peers.peer import Peer, Skip
from benchmarks.progress import Progress

__all__ = ["install_all", "run"]

GIVE_UP_AFTER = 2  # failed turns


@dataclass(slots=True)
class _Entry:
    """One system while it is measured."""

    peer: Peer
    made: Environment | None = None
    versions: dict[str, str] = field(default_factory=dict)
    turns: list[Turn | None] = field(default_factory=list)
    recovery: Recovered | None = None
    skipped: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether it goes on."""
        return not self.skipped and len(self.failures) < GIVE_UP_AFTER

    def outcome(self) -> Outcome:
        """What was found; one of which no turn worked was not measured."""
        skipped = self.skipped
        if not skipped and not any(self.turns):
            skipped = self.failures[0] if self.failures else "no turn was taken"
        return Outcome(self.peer, self.versions, tuple(self.turns), self.recovery, skipped, tuple(self.failures))


def install_all(peers: Iterable[Peer], cache: Path, progress: Progress) -> list[_Entry]:
    """Install what is missing; who can't be installed is skipped, with the reason told now and in the table."""
    entries = []
    for peer in peers:
        entry = _Entry(peer)
        entries.append(entry)
        try:
            entry.made = install(peer, cache)
            entry.versions = versions(peer, entry.made)
        except Skip as skip:
            entry.skipped = str(skip)
            progress.tell(f"{peer.name} is skipped: {skip}")
    return entries


def run(peers: Sequence[Peer], cache: Path, extent: Extent, progress: Progress) -> list[Outcome]:
    """Measure these systems, in turns. Every second round goes backwards, so that none always follows the same one."""
    entries = install_all(peers, cache, progress)
    living = [entry for entry in entries if not entry.skipped]
    progress.plan((extent.rounds + 1) * len(living))
    for number in range(extent.rounds):
        for entry in living if number % 2 == 0 else reversed(living):
            if entry.wanted:
                progress.part(f"round {number + 1} of {extent.rounds}: {entry.peer.name}")
                _turn(entry, cache, extent, progress)
    for entry in living:
        if entry.wanted:
            progress.part(f"death of the worker: {entry.peer.name}")
            _recover(entry, cache, extent, progress)
    return [entry.outcome() for entry in entries]


def _turn(entry: _Entry, cache: Path, extent: Extent, progress: Progress) -> None:
    assert entry.made is not None
    try:
        turn = take_turn(entry.peer, entry.made, cache, extent)
    except Skip as skip:
        entry.turns.append(None)
        entry.failures.append(str(skip))
        progress.tell(f"{entry.peer.name}: this turn failed: {skip}")
        return
    entry.turns.append(turn)
    cpu = "" if turn.cpu_ms_per_step is None else f", {turn.cpu_ms_per_step:.3f} ms CPU/step"
    progress.tell(
        f"{entry.peer.name}: {turn.steps_per_second:,.0f} steps/s of {turn.flows} flows{cpu}, "
        f"p50 {turn.p50_ms:.1f} ms, p99 {turn.p99_ms:.1f} ms of {turn.latencies}"
    )


def _recover(entry: _Entry, cache: Path, extent: Extent, progress: Progress) -> None:
    assert entry.made is not None
    try:
        entry.recovery = recover(entry.peer, entry.made, cache, extent)
    except Skip as skip:
        entry.failures.append(f"death of the worker: {skip}")
        progress.tell(f"{entry.peer.name}: {entry.failures[-1]}")
        return
    found = entry.recovery
    all_done = (
        f"all done after {found.seconds:.1f} s" if found.seconds is not None else f"{found.unfinished} flows not done"
    )
    progress.tell(
        f"{entry.peer.name}: {all_done}; {found.twice} steps completed twice ({found.steps_at_kill} done at the kill)"
    )
