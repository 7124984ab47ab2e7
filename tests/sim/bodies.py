"""Runs step bodies by hand under virtual time, and keeps a ledger of every body that ever ran.

`SimRunner` stands in for the product's StepRunner: the same calls, the same adoption of attempts, no thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import heapq
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import msgspec
from sim.dying import ShardDied, SimBox

from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.messages import StepDone, StepErred
from stepwell.actors.runner import StepOrder
from stepwell.actors.runner.attempts import Attempt, Attempts, Place
from stepwell.actors.runner.gates import Gates
from stepwell.actors.runner.outcome import told
from stepwell.actors.tracing import Tracing
from stepwell.core.clock import Clock
from stepwell.core.errors import StepTimeout
from stepwell.core.limits import Limits
from stepwell.flow.attempt import copied_arguments, failure_of
from stepwell.flow.context import running_step


@types.coroutine
def work(seconds: float) -> Generator[float, None, None]:
    """Inside a step's body: take so much virtual time."""
    yield seconds


@dataclasses.dataclass
class Run:
    """One body that began."""

    execution_id: str
    path: str
    attempt: int
    key: str
    at_ms: int
    shard: str
    epoch: int
    ended_ms: int | None = None
    value: bytes | None = None  # what it returned, as JSON
    error: tuple[str, str] | None = None  # type and message of what it raised
    cut_off: bool = False  # a part of its shard has failed, and nobody waits for it


class Ledger:
    """All bodies that ever ran, over all shards; `on_run` looks at each as it begins."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.on_run: list[Callable[[Run], None]] = []

    def of(self, execution_id: str, path: str | None = None) -> list[Run]:
        return [r for r in self.runs if r.execution_id == execution_id and (path is None or r.path == path)]

    def attempts(self, execution_id: str, path: str) -> list[int]:
        return [run.attempt for run in self.of(execution_id, path)]

    def keys(self, execution_id: str, path: str) -> set[str]:
        return {run.key for run in self.of(execution_id, path)}


class Body:
    """A body under way."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.code: Coroutine[Any, Any, Any] | None = None
        self.context = contextvars.copy_context()
        self.deadline: float | None = None
        self.late = False


def body_of(attempt: Attempt) -> Body:
    """What the runner remembers of an attempt."""
    assert isinstance(attempt.body, Body)
    return attempt.body


class SimRunner:
    """What an ExecutionActor needs of a StepRunner. `step()` moves one body on; `next_due()` says when one can."""

    def __init__(
        self,
        clock: Clock,
        holdings: Holdings,
        ledger: Ledger,
        shard: str,
        box: SimBox,
        steps: int = 1000,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._clock = clock
        self._ledger = ledger
        self._shard = shard
        self._box = box
        self._attempts = Attempts(holdings, self._submit, Gates(steps, Limits().processes), box)
        self.adopt = self._attempts.adopt
        self.withdraw = self._attempts.withdraw
        self.settle = self._attempts.settle
        self.lose = self._attempts.lose
        self.keep = self._attempts.keep
        self.cut_short = self._attempts.cut_short
        self.given_up = 0
        self._heap: list[tuple[float, int, Attempt]] = []
        self._number = 0
        self.most_running = 0

    @property
    def running(self) -> int:
        return self._attempts.active

    @property
    def bodies(self) -> dict[str, int]:
        return self._attempts.bodies

    @property
    def set_apart(self) -> tuple[int, int]:
        return self._attempts.set_apart

    @property
    def closed(self) -> bool:
        return self._attempts.closed

    @property
    def at_work(self) -> list[tuple[str, str]]:
        under_way = self._attempts.under_way()
        return [(attempt.order.context.execution_id, attempt.order.context.path) for attempt in under_way]

    def start(self, order: StepOrder, ref: AnyRef) -> bool:
        return self._attempts.ask(order, ref)

    def close_intake(self, became_idle: Callable[[], None]) -> None:
        self._attempts.close(became_idle)

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Move the body that is due first; False if none is due."""
        if not self._heap or self._heap[0][0] > self._clock.monotonic():
            return False
        self._move(heapq.heappop(self._heap)[2])
        return True

    def cut_off(self) -> set[int]:
        for attempt in self._attempts.under_way():
            run = attempt.body.run if isinstance(attempt.body, Body) else None
            if run is not None:
                run.cut_off = True
        return self._attempts.cut_off()

    def stop(self) -> None:
        """Cancel what runs, as the end of the step loop does; what does not heed that gets no turn any more."""
        for attempt in self._attempts.under_way():
            body = attempt.body
            if isinstance(body, Body) and body.run is not None and body.code is not None:
                try:
                    body.context.run(body.code.throw, asyncio.CancelledError())
                except BaseException:
                    body.run.ended_ms = self._clock.now_ms()
                    self._attempts.finish(attempt, None)
        self._heap.clear()

    def drop_all(self) -> None:
        """Close what is left of the bodies at the end of a test."""
        for attempt in self._attempts.under_way():
            if isinstance(attempt.body, Body) and attempt.body.code is not None:
                attempt.body.code.close()
        self._heap.clear()

    def _submit(self, attempt: Attempt) -> bool:
        attempt.body = Body()
        self.most_running = max(self.most_running, self._attempts.active)
        self._push(attempt, 0.0)
        return True

    def _push(self, attempt: Attempt, delay: float) -> None:
        self._number += 1
        at = self._clock.monotonic() + delay
        body = body_of(attempt)
        if body.deadline is not None and not body.late:
            at = min(at, body.deadline)
        heapq.heappush(self._heap, (at, self._number, attempt))

    def _move(self, attempt: Attempt) -> None:
        order = attempt.order
        step = order.call.step
        body = body_of(attempt)
        fresh = body.run is None
        if fresh:
            now = self._clock.now_ms()
            place: Place = "loop" if step.is_async else "thread"
            if order.lane or step.isolation == "process":
                place = "process"
            if not self._attempts.may_begin(attempt, now, place):
                return
            order = attempt.order  # it may have been declared anew while it waited
            self._box.works(attempt.slot)
            self._begin(attempt, now)  # outside of the try: what an audit raises is no failure of the step
        self._box.works(attempt.slot)
        try:
            if fresh:
                args, kwargs = copied_arguments(order.call)
                if not step.is_async:
                    self._returned(attempt, body.context.run(step.fn, *args, **kwargs))
                    return
                body.code = step.fn(*args, **kwargs)
                asked = body.context.run(body.code.send, None)
            else:
                asked = self._resume(attempt)
        except StopIteration as stop:
            try:
                self._returned(attempt, stop.value)
            except BaseException as error:
                self._raised(attempt, error)
        except ShardDied:
            raise
        except BaseException as error:
            late = body.late and isinstance(error, asyncio.CancelledError)
            self._raised(attempt, StepTimeout(f"attempt took longer than {step.timeout:g} s") if late else error)
        else:
            self._box.rests(attempt.slot)
            self._push(attempt, asked)

    def _begin(self, attempt: Attempt, now_ms: int) -> None:
        body = body_of(attempt)
        context = attempt.order.context
        timeout = attempt.order.call.step.timeout
        if timeout is not None:
            body.deadline = self._clock.monotonic() + timeout
            context = msgspec.structs.replace(context, deadline=body.deadline)
        body.context.run(running_step.set, context)
        if self._tracing is not None:
            body.context.run(self._tracing.enter, context)
        run = Run(
            context.execution_id,
            context.path,
            context.attempt,
            context.idempotency_key,
            now_ms,
            self._shard,
            context.fencing_token,
        )
        body.run = run
        self._ledger.runs.append(run)
        for look in self._ledger.on_run:
            look(run)

    def _resume(self, attempt: Attempt) -> float:
        body = body_of(attempt)
        assert body.code is not None
        if body.deadline is not None and not body.late and self._clock.monotonic() >= body.deadline:
            body.late = True
            return float(body.context.run(body.code.throw, asyncio.CancelledError()))
        return float(body.context.run(body.code.send, None))

    def _returned(self, attempt: Attempt, value: object) -> None:
        raw = attempt.order.call.step.encode_result(value)
        run = body_of(attempt).run
        assert run is not None
        context, queued = attempt.order.context, max(0, run.at_ms - attempt.order.ready_at)
        ended = self._clock.now_ms()
        self._finish(attempt, StepDone(context.path, context.attempt, run.at_ms, ended, raw, queued))

    def _raised(self, attempt: Attempt, error: BaseException) -> None:
        judged = failure_of(error, attempt.order.call.step)
        run = body_of(attempt).run
        assert run is not None
        self._finish(attempt, told(attempt.order, run.at_ms, judged, self._clock))

    def _finish(self, attempt: Attempt, outcome: StepDone | StepErred) -> None:
        run = body_of(attempt).run
        if run is not None:
            run.ended_ms = outcome.ended_at
            if isinstance(outcome, StepDone):
                run.value = outcome.value
            else:
                run.error = (outcome.error.type, outcome.error.message)
        self._attempts.finish(attempt, outcome)
