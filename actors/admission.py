"""What waits to be let in, in which order, and how fast. The dispatcher asks; nothing in here acts.

Three kinds wait: doorbells of new executions, unfinished executions that are overdue, and unfinished ones that only
rest. The kinds take turns, so that none waits for the end of another's crowd. Commands never come here.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias, TypeVar

import msgspec

from stepwell.core.fair import FairQueue
from stepwell.core.ramp import Ramp

__all__ = ["Admission", "Comeback", "Start", "take_one"]

K = TypeVar("K")

BURST = 1000
DOUBLING_SECONDS = 1.0
CALM_SECONDS = 10.0


class Start(msgspec.Struct, gc=False):
    """The doorbell of an execution; `flow` is '' where the entry does not tell it, `made_at` (ms) is 0 then."""

    execution_id: str
    partition: int
    entry_id: str
    flow: str
    made_at: int = 0


class Comeback(msgspec.Struct, gc=False):
    """An unfinished execution that no actor holds. `busy`: it will run steps at once."""

    execution_id: str
    busy: bool


Candidate: TypeAlias = Start | Comeback


class Admission:
    """Queues before the limits. Flows take turns; `flow_max` says how many executions of a flow may run (None: any)."""

    def __init__(self, running_max: int, flow_max: Callable[[str], int | None]) -> None:
        self.draining = False
        self._recovering = False
        self._running_max = running_max
        self._flow_max = flow_max
        self._starts: FairQueue[Start] = FairQueue()
        self._entries: dict[int, dict[str, str]] = {}  # of those that still count: by partition and entry, who it is
        self._start_ids: set[str] = set()
        self._overdue: list[tuple[float, str]] = []  # heaps: by due time
        self._resting: list[tuple[float, str]] = []
        self._returning: dict[str, int] = {}  # both, with their partitions
        self._return_to: Counter[int] = Counter()  # how many of each partition
        self._ramp = Ramp(BURST, DOUBLING_SECONDS, CALM_SECONDS)
        self._ramp_until: float | None = None
        self._running = 0
        self._by_flow: Counter[str] = Counter()
        self._turns: deque[Callable[[float], Candidate | None]] = deque(
            (self._next_resting, self._next_overdue, self._next_start)
        )

    # Who runs.

    @property
    def running(self) -> int:
        """Executions that count as running."""
        return self._running

    @property
    def full(self) -> bool:
        """Whether nobody may begin to run."""
        return self.draining or self._running >= self._running_max

    def began(self, flow: str) -> None:
        """An execution of that flow runs steps (or is about to)."""
        self._running += 1
        self._by_flow[flow] += 1

    def rested(self, flow: str) -> None:
        """It does so no longer."""
        self._running -= 1
        take_one(self._by_flow, flow)
        if flow:
            self._starts.unblock(flow)
        else:
            self._look_again()

    @property
    def recovering(self) -> bool:
        """Whether unfinished executions may still come that ran before; whoever looks for them sets it."""
        return self._recovering

    @recovering.setter
    def recovering(self, recovering: bool) -> None:
        self._recovering = recovering
        self._look_again()

    # Who waits.

    @property
    def waiting(self) -> bool:
        """Whether anybody waits here."""
        return bool(self._entries or self._resting or self._overdue)

    @property
    def ramp_until(self) -> float | None:
        """When the ramp lets the next one in, in monotonic seconds; None: it holds nobody up."""
        return self._ramp_until

    def has_entry(self, partition: int, entry_id: str) -> bool:
        """Whether that doorbell waits here."""
        return entry_id in self._entries.get(partition, ())

    def knows(self, execution_id: str) -> bool:
        """Whether that execution waits here."""
        return execution_id in self._start_ids or execution_id in self._returning

    def ring(self, start: Start) -> None:
        """A doorbell."""
        self._starts.push(start.flow, start)
        self._entries.setdefault(start.partition, {})[start.entry_id] = start.execution_id
        self._start_ids.add(start.execution_id)

    def bring_back(self, partition: int, executions: Iterable[tuple[str, float]], now_ms: float) -> None:
        """Unfinished executions of a partition with their due times in ms, none of which is known yet."""
        for execution_id, due in executions:
            if execution_id in self._returning:
                continue
            heapq.heappush(self._overdue if due <= now_ms else self._resting, (due, execution_id))
            self._returning[execution_id] = partition
            self._return_to[partition] += 1

    def next_starts(self) -> dict[str, str]:
        """Of each flow whose starts wait here: the entry of the one that is let in next."""
        heads = self._starts.heads(self._counts)
        return {flow: start.entry_id for flow, start in heads.items()}

    def next(self, now: float) -> Candidate | None:
        """Who is let in next at that monotonic second; it is not here any more then. None: nobody may."""
        if self.draining:
            return None
        self._ramp_until = None
        turns = self._turns
        for _ in range(len(turns)):
            candidate = turns[0](now)
            turns.rotate(-1)
            if candidate is not None:
                return candidate
        return None

    @property
    def returning(self) -> set[int]:
        """The partitions of unfinished executions that wait here."""
        return set(self._return_to)

    def drop_partitions(self, partitions: Collection[int]) -> None:
        """They are not ours any more, or about to be another one's. Costs as much as they have waiting: they may go one
        by one, and the crowd of the others may be large."""
        for partition in partitions:
            self._start_ids.difference_update(self._entries.pop(partition, {}).values())
        self._sweep_out()
        if sum([self._return_to.pop(partition, 0) for partition in partitions]):
            self._returning = {each: of for each, of in self._returning.items() if of not in partitions}
            for heap in (self._overdue, self._resting):
                heap[:] = [item for item in heap if item[1] in self._returning]
                heapq.heapify(heap)
        self._look_again()

    def _sweep_out(self) -> None:
        """Doorbells that count no more stay in their lines until their turn, but never as many as those that do."""
        count = sum(map(len, self._entries.values()))
        if not count:
            self._starts = FairQueue()
            self._start_ids.clear()  # a set keeps the size of its largest crowd until then
        elif len(self._starts) > 2 * count:
            self._starts.keep(self._counts)

    def _counts(self, start: Start) -> bool:
        return self.has_entry(start.partition, start.entry_id)

    def _next_start(self, _now: float) -> Start | None:
        if self.full:
            return None
        while (start := self._starts.pop(self._has_room)) is not None:
            entries = self._entries.get(start.partition)
            if entries is None or entries.pop(start.entry_id, None) is None:
                continue  # its partition has left meanwhile
            self._start_ids.discard(start.execution_id)
            if not entries:
                del self._entries[start.partition]
                if not self._entries:
                    self._sweep_out()
            return start
        return None

    def _has_room(self, flow: str) -> bool:
        most = self._flow_max(flow)
        return most is None or (not self._strangers and self._by_flow[flow] < most)

    @property
    def _strangers(self) -> bool:
        """Whether somebody may run, or has the older right to, whose flow is not known: it might be any."""
        return self._recovering or bool(self._overdue) or self._by_flow[""] > 0

    def _look_again(self) -> None:
        if not self._strangers:
            self._starts.unblock_all()

    def _next_overdue(self, now: float) -> Comeback | None:
        # In due order: whoever may still come of a partition that has become ours may be the most overdue.
        if not self._overdue or self._recovering or self.full:
            return None
        if not self._ramp.take(now):
            self._ramp_until = self._ramp.next_at
            return None
        comeback = self._taken(self._overdue, busy=True)
        self._look_again()
        return comeback

    def _next_resting(self, _now: float) -> Comeback | None:
        return self._taken(self._resting, busy=False) if self._resting else None

    def _taken(self, heap: list[tuple[float, str]], busy: bool) -> Comeback:
        _, execution_id = heapq.heappop(heap)
        partition = self._returning.pop(execution_id)
        take_one(self._return_to, partition)
        return Comeback(execution_id, busy)


def take_one(counts: Counter[K], key: K) -> bool:
    """Count one down, and keep no zero; False if there is none."""
    left = counts.get(key, 0)
    if left > 1:
        counts[key] = left - 1
    elif left:
        del counts[key]
    return left > 0
