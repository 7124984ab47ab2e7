"""Which attempts may go on to a body: most pass gates that let in only so many, of their step or of where they run.

An attempt that waits at a gate holds no thread and no task, and can be withdrawn like any that has not begun. Flows
take turns at each gate, so that none waits behind the crowd of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwell.core.fair import FairQueue
from stepwell.core.limits import LANE_SIZE

if TYPE_CHECKING:
    from stepwell.actors.runner.attempts import Attempt

__all__ = ["Gate", "Gates"]


class Gate:
    """Lets `capacity` attempts through at a time; others wait in a queue."""

    __slots__ = ("capacity", "queue", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.queue: FairQueue[Attempt] = FairQueue()


class Gates:
    """All gates of a runner. `bodies` is how many async bodies run at once, `processes` how many in processes of their
    own, of those in the lane apart; sync ones take turns for their threads. Not locked: whoever keeps the attempts does
    that."""

    def __init__(self, bodies: int, processes: int) -> None:
        self._bodies = (Gate(bodies),)
        self._processes = (Gate(processes),)
        self._lane = (Gate(LANE_SIZE),)
        self._steps: dict[tuple[str, str], Gate] = {}

    def enter(self, attempt: Attempt) -> bool:
        """True: it may begin now. False: it waits, and some `leave` will return it."""
        step, lane = attempt.order.call.step, attempt.order.lane
        gates: tuple[Gate, ...] = ()
        if lane:
            gates = self._lane
        elif step.isolation == "process":
            gates = self._processes
        elif step.is_async:
            gates = self._bodies
        if step.max_running is not None:
            key = (getattr(step.fn, "__module__", ""), step.name)
            gate = self._steps.setdefault(key, Gate(step.max_running))
            gate.capacity = step.max_running
            # Who waits for the lane keeps no place of its step from those under no suspicion.
            gates = (*gates, gate) if lane else (gate, *gates)
        attempt.gates = gates
        return self._go_on(attempt)

    @property
    def lane_in_use(self) -> bool:
        """Whether any attempt is in the lane, or waits for it."""
        return self._lane[0].used > 0

    def leave(self, attempt: Attempt) -> list[Attempt]:
        """It has ended, or shall not begin. Those whose turn it is now; calling it again changes nothing."""
        gates, attempt.gates = attempt.gates, ()
        passed, attempt.passed = attempt.passed, 0
        ready: list[Attempt] = []
        for gate in reversed(gates[:passed]):
            gate.used -= 1
            while gate.used < gate.capacity and gate.queue:
                following = gate.queue.pop()
                if following is not None and not following.withdrawn:
                    gate.used += 1
                    following.passed += 1
                    if self._go_on(following):
                        ready.append(following)
        return ready

    def clear(self) -> list[Attempt]:
        """Nobody waits any more: those who did."""
        waiting: list[Attempt] = []
        for gate in (*self._bodies, *self._processes, *self._lane, *self._steps.values()):
            waiting += [attempt for attempt in gate.queue if not attempt.withdrawn]
            gate.queue = FairQueue()
        return waiting

    def _go_on(self, attempt: Attempt) -> bool:
        while attempt.passed < len(attempt.gates):
            gate = attempt.gates[attempt.passed]
            if gate.used >= gate.capacity:
                gate.queue.push(attempt.order.context.flow, attempt)
                return False
            gate.used += 1
            attempt.passed += 1
        return True
