"""What is asked for, under way, and done: the bookkeeping of attempts, apart from how bodies are run.

One attempt per execution and path. Its outcome is kept until its actor says that it is settled (recorded or of no
use), so that an actor that is rebuilt, or an execution that was parked meanwhile, gets it instead of running the
body again. An attempt whose body has not begun can be withdrawn; one whose body runs is waited for. Which may begin
when there are more than the limits let is decided by `Gates`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from stepwell.actors.blackbox import NO_BOX, BlackBox
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.messages import BodyBegan, GraceOver, StepDone, StepErred, StepHeld
from stepwell.actors.runner.gates import Gate, Gates
from stepwell.actors.runner.order import StepOrder

Outcome: TypeAlias = StepDone | StepErred
Place: TypeAlias = Literal["loop", "thread", "process"]
PLACES: Final[tuple[Place, ...]] = get_args(Place)


class Attempt(msgspec.Struct, eq=False):
    """One attempt. `body` is whatever the runner needs to remember of it; `then` is what was asked for meanwhile;
    `slot` is its place in the black box, once it has begun; `gates` are on its way to a body, and it is through
    `passed` of them. `forsaken`: nobody wants its outcome, unless it is asked for once more. `began_at`: when its body
    began (ms), in that `place`."""

    order: StepOrder
    ref: AnyRef
    then: tuple[StepOrder, AnyRef] | None = None
    begun: bool = False
    began_at: int = 0
    place: Place = "loop"
    withdrawn: bool = False
    forsaken: bool = False
    outcome: Outcome | None = None
    body: object = None
    slot: int = -1
    gates: tuple[Gate, ...] = ()
    passed: int = 0

    @property
    def number(self) -> int:
        """The attempt's number within its step."""
        return self.order.context.attempt


class Attempts:
    """All attempts of a runner, safe from any thread. `submit` gets one going; False: not now, ask again."""

    def __init__(
        self, holdings: Holdings, submit: Callable[[Attempt], bool], gates: Gates, box: BlackBox = NO_BOX
    ) -> None:
        self._holdings = holdings
        self._gates = gates
        self._box = box
        self._submit = submit
        self._lock = threading.Lock()
        self._by_path: dict[tuple[str, str], Attempt] = {}
        self._active = 0
        self._bodies: dict[str, int] = dict.fromkeys(PLACES, 0)
        self._closed = False
        self._cut = False
        self._became_idle: Callable[[], None] | None = None

    @property
    def active(self) -> int:
        """Attempts whose body runs or waits for its turn."""
        return self._active

    @property
    def bodies(self) -> dict[str, int]:
        """How many bodies run now, by place. From any thread."""
        return self._bodies.copy()

    @property
    def set_apart(self) -> tuple[int, int]:
        """How many of them run in processes of their own since they may have killed a shard, and how many attempts
        wait for that."""
        if not self._gates.lane_in_use:
            return 0, 0
        lane = [attempt for attempt in self.under_way() if attempt.order.lane]
        run = sum(attempt.begun and attempt.place == "process" for attempt in lane)
        return run, sum(not attempt.begun for attempt in lane)

    @property
    def closed(self) -> bool:
        """Whether nothing starts any more."""
        return self._closed

    def under_way(self) -> list[Attempt]:
        """Attempts that have no outcome yet."""
        with self._lock:
            return [attempt for attempt in self._by_path.values() if attempt.outcome is None]

    def ask(self, order: StepOrder, ref: AnyRef) -> bool:
        """Ask for an attempt; its outcome goes to `ref`. After `close` nothing starts.

        True if the attempt is a new one: an attempt that runs already is adopted, and the outcome of one that has
        ended is told again.
        """
        key = (order.context.execution_id, order.context.path)
        ready: list[Attempt] = []
        with self._lock:
            if self._closed:
                return False
            current = self._by_path.get(key)
            if current is not None and current.number == order.context.attempt:
                current.ref = ref
                current.forsaken = False
                known = current.outcome
                if not current.begun:
                    current.order = order  # declared anew, perhaps under another lease
                if known is not None:
                    ref.tell(known)
                return False
            if current is not None and current.begun and current.outcome is None:
                current.then = (order, ref)
                return True
            if current is not None:
                ready = self._take_out(key, current)
            attempt = self._by_path[key] = Attempt(order, ref)
            self._active += 1
            if self._gates.enter(attempt):
                ready.append(attempt)
        if ready:
            self._launch(ready)
        return True

    def _launch(self, ready: list[Attempt]) -> None:
        """Get them going. One that can't be now makes room for the next."""
        while ready:
            attempt = ready.pop(0)
            if not self._submit(attempt):
                ready += self._end(attempt)
                attempt.ref.tell(StepHeld(attempt.order.context.path, attempt.number))

    def adopt(self, execution_id: str, path: str, number: int, ref: AnyRef) -> bool:
        """Send the outcome of an attempt whose body has begun to `ref`; False if there is none such."""
        with self._lock:
            current = self._by_path.get((execution_id, path))
            if current is None or current.number != number or not current.begun or (self._cut and current.forsaken):
                return False
            current.ref = ref
            current.forsaken = False
            if current.outcome is not None:
                ref.tell(current.outcome)
            return True

    def withdraw(self, execution_id: str, path: str, number: int) -> bool:
        """See to it that the attempt does not begin; False if its body has begun."""
        with self._lock:
            key = (execution_id, path)
            current = self._by_path.get(key)
            if current is None:
                return True
            if current.then is not None and current.then[0].context.attempt == number:
                current.then = None
                return True
            if current.number != number:
                return True
            if current.begun:
                return False
            ready = self._take_out(key, current)
            idle = self._idle()
        self._launch(ready)
        if idle is not None:
            idle()
        return True

    def settle(self, execution_id: str, path: str, number: int) -> None:
        """The outcome is recorded, or of no use: forget it."""
        with self._lock:
            key = (execution_id, path)
            current = self._by_path.get(key)
            if current is not None and current.number == number and current.outcome is not None:
                del self._by_path[key]

    def lose(self, partition: int) -> None:
        """The partition is not ours any more: nothing of it begins, and what comes of it is of no use to us, unless it
        is ours again by then and asks for it."""
        self._give_up(lambda attempt: attempt.order.partition == partition)

    def keep(self, execution_id: str, paths: Container[str]) -> None:
        """Its actor was rebuilt from a row that has only these open: of its other attempts none begins, and what comes
        of them is recorded, or of no use."""

        def is_over(attempt: Attempt) -> bool:
            context = attempt.order.context
            return context.execution_id == execution_id and context.path not in paths

        self._give_up(is_over)

    def _give_up(self, chosen: Callable[[Attempt], bool]) -> None:
        ready: list[Attempt] = []
        with self._lock:
            for key, attempt in list(self._by_path.items()):
                if not chosen(attempt):
                    continue
                attempt.then = None
                if attempt.begun and attempt.outcome is None:
                    attempt.forsaken = True
                else:
                    ready += self._take_out(key, attempt)
            idle = self._idle()
        self._launch([attempt for attempt in ready if not attempt.withdrawn])
        if idle is not None:
            idle()

    def may_begin(self, attempt: Attempt, now_ms: int, place: Place = "loop") -> bool:
        """The last look before a body starts: still wanted, intake open, and on the very lease it was declared under,
        which can't have lapsed. Its body begins at `now_ms`, in that place."""
        order = attempt.order
        with self._lock:
            if attempt.withdrawn:
                return False
            ours = not self._closed and self._holdings.lease(order.partition) == order.lease
            if ours and self._holdings.may_act(order.partition):
                attempt.begun = True
                attempt.began_at = now_ms
                attempt.place = place
                self._bodies[place] += 1
                attempt.slot = self._box.begin(order.partition, order.context)
                if order.context.attempt > 1:
                    late = max(0, now_ms - order.ready_at)
                    attempt.ref.tell(BodyBegan(order.context.path, attempt.number, now_ms, late))
                return True
        if ours:
            self.hold_back(attempt)
        else:
            self._launch(self._end(attempt))
        return False

    def hold_back(self, attempt: Attempt) -> None:
        """It can't begin now; it has to be asked for again."""
        self._launch(self._end(attempt))
        attempt.ref.tell(StepHeld(attempt.order.context.path, attempt.number))

    def finish(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """The body has ended, or could not begin; None: its outcome is of no use."""
        if outcome is None:
            self._launch(self._end(attempt))
            return
        with self._lock:
            if attempt.forsaken:
                del self._by_path[attempt.order.context.execution_id, attempt.order.context.path]
            then, attempt.then = attempt.then, None
            attempt.outcome = outcome
            self._active -= 1
            if attempt.begun:  # else what was to run it has failed
                self._box.end(attempt.slot)
                self._bodies[attempt.place] -= 1
            ready = self._gates.leave(attempt)
            idle = self._idle() if self._closed else None
            if not attempt.forsaken:  # told under the lock: who adopts the attempt now must not be told twice
                attempt.ref.tell(outcome)
        if ready:
            self._launch(ready)
        if then is not None:
            self.ask(*then)
        if idle is not None:
            idle()

    def close(self, became_idle: Callable[[], None]) -> None:
        """Start nothing any more; call back (on any thread) when the last attempt has ended."""
        with self._lock:
            self._closed = True
            self._became_idle = became_idle
            for attempt in self._gates.clear():
                self._take_out((attempt.order.context.execution_id, attempt.order.context.path), attempt)
            idle = self._idle()
        if idle is not None:
            idle()

    def cut_short(self) -> None:
        """Wait no longer, after `close`: what comes of bodies that still run is of no use, as their actors are told."""
        with self._lock:
            self._cut = True
            for attempt in self._by_path.values():
                if attempt.begun and attempt.outcome is None and not attempt.forsaken:
                    attempt.forsaken = True
                    attempt.ref.tell(GraceOver(attempt.order.context.path, attempt.number))

    def cut_off(self) -> set[int]:
        """Start nothing any more, and leave what runs as a crash does: nothing comes of those bodies, and the black
        box shows them for good. The partitions that they are of."""
        with self._lock:
            self._closed = self._cut = True
            self._box = NO_BOX
            running = [each for each in self._by_path.values() if each.begun and each.outcome is None]
            for attempt in running:
                attempt.forsaken = True
            return {attempt.order.partition for attempt in running}

    def _end(self, attempt: Attempt) -> list[Attempt]:
        """It has ended without an outcome. Whose turn it is now."""
        with self._lock:
            order = attempt.order
            key = (order.context.execution_id, order.context.path)
            if self._by_path.get(key) is attempt:
                del self._by_path[key]
            if attempt.begun:
                self._box.end(attempt.slot)
                self._bodies[attempt.place] -= 1
            self._active -= 1
            ready = self._gates.leave(attempt)
            then, attempt.then = attempt.then, None
            idle = self._idle()
        if then is not None:
            self.ask(*then)
        if idle is not None:
            idle()
        return ready

    def _take_out(self, key: tuple[str, str], attempt: Attempt) -> list[Attempt]:
        """It shall not begin. Whose turn it is now."""
        attempt.withdrawn = True
        if attempt.outcome is None:
            self._active -= 1
        del self._by_path[key]
        return self._gates.leave(attempt)

    def _idle(self) -> Callable[[], None] | None:
        return self._became_idle if self._closed and self._active == 0 else None
