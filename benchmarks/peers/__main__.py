"""`python -m benchmarks.peers [NAMES...] [--quick] [--out DIR]`: other systems beside ours, in one run."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from benchmarks import report
from benchmarks.chart import can_draw
from benchmarks.peers import session
from benchmarks.peers.catalogue import BY_NAME, DEFAULT, OURS, PEERS
from benchmarks.peers.measure import FULL, QUICK
from benchmarks.peers.peer import Peer
from benchmarks.peers.verdict import result
from benchmarks.progress import Progress, say
from benchmarks.result import Result, Scale
from stepwell.cli.bars import bars

__all__ = ["chosen", "main"]

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".peers"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if anything could be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Other systems on our workload.")
    names = " ".join(BY_NAME)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which: all, or some of {names} (by default: {' '.join(DEFAULT)})"
    )
    parser.add_argument("--quick", action="store_true", help="show only that each works, in seconds")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"how often each has its turn (default {FULL.rounds})")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), metavar="DIR", help="where results go")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="DIR", help="where peers are installed (default .peers)"
    )
    parser.add_argument("--install", action="store_true", help="only install")
    given = parser.parse_args(arguments)
    try:
        peers = chosen(given.names)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, _interrupt)
    if given.install:
        skipped = [
            entry for entry in session.install_all(peers, given.cache.resolve(), Progress("peers")) if entry.skipped
        ]
        return 1 if skipped else 0
    extent = QUICK if given.quick else FULL
    if given.rounds is not None:
        extent = replace(extent, rounds=max(1, given.rounds))
    if not can_draw():
        say("no pictures will be drawn: that needs matplotlib (pip install 'stepwell[bench]')")

    def run(scale: Scale, progress: Progress) -> Result:
        return result(session.run(peers, given.cache.resolve(), extent, progress), extent)

    expected = (extent.rounds * 12 + 25) * len(peers)
    with bars(ticking=False) as shown:
        bar = shown.bar("peers", 1) if shown is not None else None
        done = report.measure(run, "peers", Scale(given.quick), expected, bar)
    print("\n".join(report.section(done)), flush=True)
    if not done.result.rows:
        say("nothing could be measured, so nothing is written")
        return 1
    report.write(given.out, done)
    say(f"written to {given.out}: peers.json and its pictures")
    return 0


def chosen(names: Sequence[str]) -> list[Peer]:
    """The peers of these names, ours always first. Raises ValueError for a name that there isn't."""
    if list(names) == ["all"]:
        return list(PEERS)
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise ValueError(f"no such peer: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    wanted = names or DEFAULT
    return [OURS, *(peer for peer in PEERS if peer.name in wanted and peer is not OURS)]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends everything as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; all servers and workers have been ended")
        sys.exit(130)
