"""Many seeds: on all cores, with progress, and a report at the end."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType

from sim.explore.run import Outcome, carry_out
from sim.explore.schedule import draw
from sim.explore.shrink import shrink

BUSY_SECONDS = 60.0
HANG_SECONDS = 600
SHRINK_SECONDS = 40.0
PROGRESS_SECONDS = 5.0
FAILURES_TOLD = 5
_REAL_TIME = time.perf_counter


class Hangs(BaseException):
    """A run does not end."""


def seeds_of(text: str) -> range:
    """`300` or `100-199`."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


def one(seed: int) -> Outcome:
    """Carry out one seed, in a process that does many."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Hangs

    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_PROF, BUSY_SECONDS)
    signal.alarm(HANG_SECONDS)
    try:
        return carry_out(draw(seed))
    except Hangs:
        return Outcome(seed, broken=f"it still runs after {BUSY_SECONDS:g} s of work, or {HANG_SECONDS} s of waiting")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


class Campaign:
    """What one call does. `jobs`: processes."""

    def __init__(self, jobs: int | None = None, *, stop_at_first: bool = False, shrinks: bool = True) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))
        self._stop_at_first = stop_at_first
        self._shrinks = shrinks
        self._done = 0
        self._failed: list[Outcome] = []
        self._faults: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()

    def carry_out(self, seeds: Iterable[int], until: float | None = None) -> int:
        """Those seeds, or as many of them as there is time for; the exit code."""
        began = said = _REAL_TIME()
        try:
            for outcome in self._outcomes(iter(seeds), until):
                self._count(outcome)
                if _REAL_TIME() - said >= PROGRESS_SECONDS:
                    said = _REAL_TIME()
                    rate = self._done / (said - began) * 60
                    print(f"{self._done} schedules, {rate:.0f} a minute, {len(self._failed)} failed", flush=True)
                if outcome.broken and self._stop_at_first:
                    break
        except KeyboardInterrupt:
            print("interrupted")
        self._report(_REAL_TIME() - began)
        for outcome in self._failed[:1] if self._shrinks else []:
            self._explain(outcome)
        return 1 if self._failed else 0

    def go_on(self, seconds: float) -> int:
        """Fresh seeds until the time is over."""
        first = int(time.time()) * 1000
        print(f"fresh seeds from {first} on, for {seconds / 3600:g} h")
        return self.carry_out(itertools.count(first), _REAL_TIME() + seconds)

    def tell(self, seed: int) -> int:
        """One seed, with all that happens in it."""
        logging.disable(logging.CRITICAL)
        schedule = draw(seed)
        print(f"seed {seed}: {schedule.setting}")
        outcome = carry_out(schedule, print)
        print(f"digest {outcome.digest}")
        if not outcome.broken:
            print(f"seed {seed}: every promise was kept")
            return 0
        print(f"seed {seed} breaks a promise: {outcome.broken}\n{outcome.where}")
        if self._shrinks:
            self._explain(outcome)
        return 1

    def _outcomes(self, seeds: Iterator[int], until: float | None) -> Iterator[Outcome]:
        if self._jobs == 1:
            for seed in seeds:
                if until is not None and _REAL_TIME() >= until:
                    return
                yield one(seed)
            return
        context = multiprocessing.get_context("forkserver" if os.name == "posix" else "spawn")
        with ProcessPoolExecutor(self._jobs, mp_context=context) as pool:
            under_way: dict[Future[Outcome], int] = {}
            try:
                while True:
                    over = until is not None and _REAL_TIME() >= until
                    for seed in () if over else itertools.islice(seeds, 4 * self._jobs - len(under_way)):
                        under_way[pool.submit(one, seed)] = seed
                    if not under_way:
                        return
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        seed = under_way.pop(future)
                        yield self._result(future, seed)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    @staticmethod
    def _result(future: Future[Outcome], seed: int) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise SystemExit(f"a process of the simulation died at seed {seed}, or one near it: {error}") from error

    def _count(self, outcome: Outcome) -> None:
        self._done += 1
        self._faults += outcome.faults
        for name in ("beats", "commits", "bodies", "executions", "virtual_seconds"):
            self._sums[name] += getattr(outcome, name)
        if outcome.broken:
            self._failed.append(outcome)
            if len(self._failed) <= FAILURES_TOLD:
                print(f"seed {outcome.seed} breaks a promise: {outcome.broken[:400]}", flush=True)

    def _report(self, seconds: float) -> None:
        sums = self._sums
        print(
            f"{self._done} schedules in {seconds:.0f} s ({self._done / max(seconds, 0.001) * 60:.0f} a minute),"
            f" {len(self._failed)} failed; {sums['beats']} beats, {sums['executions']} executions,"
            f" {sums['bodies']} step bodies, {sums['commits']} requests of the Mirror,"
            f" {sums['virtual_seconds'] / 3600:.1f} virtual hours"
        )
        print("drawn: " + ", ".join(f"{name} {count}" for name, count in sorted(self._faults.items())))
        if self._failed:
            print("failed seeds: " + " ".join(str(each.seed) for each in self._failed[:50]))

    def _explain(self, outcome: Outcome) -> None:
        """The shortest schedule that was found to fail in the same way, in words."""
        logging.disable(logging.CRITICAL)
        print(
            f"\nseed {outcome.seed}: looking for a shorter schedule that fails ({SHRINK_SECONDS:g} s) ...", flush=True
        )
        shorter = shrink(draw(outcome.seed), outcome, SHRINK_SECONDS, _REAL_TIME)
        print(f"{len(shorter.beats)} beats are left of {outcome.beats}; {shorter.setting}")
        again = carry_out(shorter, print)
        print(f"seed {outcome.seed} breaks a promise: {again.broken}\n{again.where}")
        print(f"replay with: make sim SEED={outcome.seed}")
