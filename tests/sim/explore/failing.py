"""A part of a shard fails by a bug, and what the main thread of its process does then: what `RunningShard` does.

Whatever was at work and is not told of ends with the process, and not before: until then nobody may run it again, and
then it counts as interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sim.dying import PartFailed

from stepwell.actors.kit.cell import Cell
from stepwell.actors.kit.scheduler import ActorCrashed
from stepwell.core.errors import StoreError

if TYPE_CHECKING:
    from sim.explore.world import ExploredShard

T = TypeVar("T")
THREADS: Final = ("mirror", "reader", "leases", "ingress", "scheduler")
ACTORS: Final = (":dispatcher", ":supervisor", ":healer")
PARTS: Final = (*THREADS, *ACTORS)
# Whose connection it is.
PART_OF_LINK: Final = {
    "mirror": "mirror",
    "inbox": "reader",
    "leases": "leases",
    "members": "leases",
    "ingress": "ingress",
}
# How long the main thread waits, in seconds. Where all answer it needs no time at first.
FIRST_WAITS: Final = (0.0, 0.0, 0.0, 0.0, 0.1, 5.0)
LAST_WAITS: Final = (0.0, 0.0, 0.1, 2.0, 12.0)


class Bug:
    """The bug of a shard. `part`: where it is, '' while there is none."""

    def __init__(self, shard: ExploredShard) -> None:
        self._shard = shard
        self.part = ""
        self._after = 0
        self._late = self._amid = False

    def plant(self, part: str, after: int, late: bool, amid: bool) -> bool:
        """That part fails at its next message or exchange but `after`; `late`: when it is done; `amid`: only those
        count at which bodies run. False: it can't be there."""
        if part in ACTORS and not self._meets(part):
            return False
        self.part, self._after, self._late, self._amid = part, after, late, amid
        return True

    def mend(self) -> None:
        """It will not strike any more."""
        self.part = ""

    def passes(self, part: str, act: Callable[[], T]) -> T:
        """That part does something."""
        if part != self.part or not self._may_strike():
            return act()
        if self._after > 0:
            self._after -= 1
            return act()
        if self._late:
            act()
        self.part = ""
        raise PartFailed(part)

    def strikes(self) -> bool:
        """A turn in which a thread fails though it has nothing to do; False: none does."""
        if self.part not in THREADS or self._late or self._after or not self._may_strike():
            return False
        part, self.part = self.part, ""
        raise PartFailed(part)

    def _may_strike(self) -> bool:
        return not self._amid or any(self._shard.runner.bodies.values())

    def _meets(self, name: str) -> bool:
        actor: Any = next((cell.actor for cell in self._shard.scheduler._living if cell.name == name), None)
        if actor is None:  # it has had no turn yet
            return False
        receive = type(actor).on_receive
        actor.on_receive = lambda message: self.passes(name, lambda: receive(actor, message))
        return True


class Failing:
    """What has failed in a shard, and how far its main thread is. `at`: when that one goes on (its clock's seconds)."""

    def __init__(self, shard: ExploredShard) -> None:
        self._shard = shard
        self._steps = self._wind_down()
        self.parts: set[str] = set()
        self.at: float | None = None

    def has(self, error: PartFailed | ActorCrashed) -> bool:
        """Whether what a turn has raised is on purpose: the end of a part, or what comes of an earlier one."""
        cause = error.__cause__ if isinstance(error, ActorCrashed) else error
        if isinstance(cause, PartFailed):
            if not self.parts:
                self.at = self._shard.clock.monotonic()
            self._ends(cause.part)
        return bool(self.parts)

    def go_on(self) -> bool:
        """A turn of the main thread; False if it has nothing to do."""
        now = self._shard.clock.monotonic()
        if self.at is None or now < self.at:
            return False
        wait = next(self._steps, None)
        self.at = None if wait is None else now + wait
        return True

    def _ends(self, *parts: str) -> None:
        """They get no turn any more."""
        shard = self._shard
        self.parts.update(parts)
        shard.paused.update(parts)
        if "scheduler" in parts:
            shard.scheduler._end(Cell.abandon)
            shard.scheduler._runnable.clear()

    def _wind_down(self) -> Iterator[float]:
        """Yields how long it waits then."""
        shard, world = self._shard, self._shard.explored
        draining = shard.leaves
        yield self._pause()
        if not draining:
            shard.leases.leave(hand_over=shard.leases.has_heirs)
        shard.drain()
        world.weather.tell(f"{shard!r} winds down, as {', '.join(sorted(self.parts))} failed")
        yield self._pause()
        if draining:
            shard.runner.cut_short()
            yield self._pause()
        told = draining and self._is_flushed()
        unquiet: set[int] = set()
        if not told:
            shard.leases.hold_on()
            unquiet = shard.runner.cut_off()
        yield self._pause(LAST_WAITS)
        with suppress(ActorCrashed):
            shard.scheduler.stop()
        self._ends(*THREADS)
        with suppress(StoreError):
            shard.leases.release(unquiet)
        shard.in_order = told
        world.weather.tell(f"{shard!r} gives back what is quiet, and keeps {unquiet or 'nothing'}")
        yield self._pause(LAST_WAITS)
        if world.chance.random() < 0.8:
            shard.runner.stop()
            yield self._pause(LAST_WAITS)
        world.weather.tell(f"the process of {shard!r} ends")
        world.crash(shard)

    def _is_flushed(self) -> bool:
        """Whether what the actors were told is written."""
        shard = self._shard
        if "mirror" in self.parts or ":dispatcher" not in shard.scheduler.living:
            return False
        return shard.mirror.idle and not shard.scheduler._runnable

    def _pause(self, waits: Sequence[float] = FIRST_WAITS) -> float:
        seconds: float = self._shard.explored.chance.choice(waits)
        return seconds
