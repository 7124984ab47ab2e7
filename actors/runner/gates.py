"""Which attempts may go on to a body: those of a limited step, and async ones, pass gates that let in only so many.

An attempt that waits at a gate holds no thread and no task, and can be withdrawn like any that has not begun. Flows
take turns at each gate, so that none waits behind the crowd of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepwell.core.fair import FairQueue

if TYPE_CHECKING:
    from stepwell.actors.runner.attempts import Attempt
    from stepwell.flow.definitions import Step

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
    own; sync ones take turns for their threads. Not locked: whoever keeps the attempts does that."""

    def __init__(self, bodies: int, processes: int) -> None:
        self._bodies = (Gate(bodies),)
        self._processes = (Gate(processes),)
        self._steps: dict[tuple[str, str], Gate] = {}

    def enter(self, attempt: Attempt) -> bool:
        """True: it may begin now. False: it waits, and some `leave` will return it."""
        order = attempt.order
        step = order.call.step
        if order.lane:
            gates: tuple[Gate, ...] = ()  # whoever runs those lets in only a few
        elif step.isolation == "process":
            gates = self._processes
        else:
            gates = self._bodies if step.is_async else ()
        if step.max_running is not None:
            gates = (self._gate_of(step), *gates)
        attempt.gates = gates
        return self._go_on(attempt)

    def _gate_of(self, step: Step[..., object]) -> Gate:
        assert step.max_running is not None
        key = (getattr(step.fn, "__module__", ""), step.name)
        gate = self._steps.setdefault(key, Gate(step.max_running))
        gate.capacity = step.max_running
        return gate

    def leave(self, attempt: Attempt) -> Sequence[Attempt]:
        """It has ended, or shall not begin. Those whose turn it is now; calling it again changes nothing."""
        gates, passed = attempt.gates, attempt.passed
        attempt.gates, attempt.passed = (), 0
        if passed == 1 and not gates[0].queue:  # so it is for most
            gates[0].used -= 1
            return ()
        ready: list[Attempt] = []
        for gate in reversed(gates[:passed]):
            gate.used -= 1
            while gate.queue and gate.used < gate.capacity:
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
        for gate in (*self._bodies, *self._processes, *self._steps.values()):
            waiting += [attempt for attempt in gate.queue if not attempt.withdrawn]
            gate.queue = FairQueue()
        return waiting

    def _go_on(self, attempt: Attempt) -> bool:
        for gate in attempt.gates[attempt.passed :]:
            if gate.used >= gate.capacity:
                gate.queue.push(attempt.order.context.flow, attempt)
                return False
            gate.used += 1
            attempt.passed += 1
        return True
