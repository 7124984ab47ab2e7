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

from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.messages import StepDone, StepErred, StepHeld
from stepwell.actors.runner import StepOrder
from stepwell.core.clock import Clock
from stepwell.core.errors import StepTimeout
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


class Attempt:
    """One attempt under way."""

    def __init__(self, order: StepOrder, ref: AnyRef) -> None:
        self.order = order
        self.ref = ref
        self.then: tuple[StepOrder, AnyRef] | None = None
        self.run: Run | None = None
        self.code: Coroutine[Any, Any, Any] | None = None
        self.context = contextvars.copy_context()
        self.deadline: float | None = None
        self.late = False


class SimRunner:
    """What an ExecutionActor needs of a StepRunner. `step()` moves one body on; `next_due()` says when one can."""

    def __init__(self, clock: Clock, holdings: Holdings, ledger: Ledger, shard: str) -> None:
        self._clock = clock
        self._holdings = holdings
        self._ledger = ledger
        self._shard = shard
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._heap: list[tuple[float, int, Attempt]] = []
        self._number = 0
        self._closed = False
        self._became_idle: Callable[[], None] | None = None
        self.most_running = 0

    @property
    def running(self) -> int:
        return len(self._attempts)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def at_work(self) -> list[tuple[str, str]]:
        return list(self._attempts)

    def start(self, order: StepOrder, ref: AnyRef) -> None:
        if self._closed:
            return
        key = (order.context.execution_id, order.context.path)
        current = self._attempts.get(key)
        if current is not None:
            if current.order.context.attempt == order.context.attempt:
                current.ref = ref
            else:
                current.then = (order, ref)
            return
        attempt = self._attempts[key] = Attempt(order, ref)
        self.most_running = max(self.most_running, len(self._attempts))
        self._push(attempt, 0.0)

    def adopt(self, execution_id: str, path: str, attempt: int, ref: AnyRef) -> bool:
        current = self._attempts.get((execution_id, path))
        if current is None or current.order.context.attempt != attempt:
            return False
        current.ref = ref
        return True

    def close_intake(self, became_idle: Callable[[], None]) -> None:
        self._closed = True
        self._became_idle = became_idle
        if not self._attempts:
            became_idle()

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def step(self) -> bool:
        """Move the body that is due first; False if none is due."""
        if not self._heap or self._heap[0][0] > self._clock.monotonic():
            return False
        self._move(heapq.heappop(self._heap)[2])
        return True

    def drop_all(self) -> None:
        """Close what is left of the bodies at the end of a test."""
        for attempt in self._attempts.values():
            if attempt.code is not None:
                attempt.code.close()
        self._attempts.clear()
        self._heap.clear()

    def _push(self, attempt: Attempt, delay: float) -> None:
        self._number += 1
        at = self._clock.monotonic() + delay
        if attempt.deadline is not None and not attempt.late:
            at = min(at, attempt.deadline)
        heapq.heappush(self._heap, (at, self._number, attempt))

    def _move(self, attempt: Attempt) -> None:
        order = attempt.order
        step = order.call.step
        fresh = attempt.run is None
        if fresh:
            if not self._holdings.may_act(order.partition):
                self._finish(attempt, StepHeld(order.context.path, order.context.attempt))
                return
            self._begin(attempt)  # outside of the try: what an audit raises is no failure of the step
        try:
            if fresh:
                args, kwargs = copied_arguments(order.call)
                if not step.is_async:
                    self._returned(attempt, attempt.context.run(step.fn, *args, **kwargs))
                    return
                attempt.code = step.fn(*args, **kwargs)
                asked = attempt.context.run(attempt.code.send, None)
            else:
                asked = self._resume(attempt)
        except StopIteration as stop:
            try:
                self._returned(attempt, stop.value)
            except BaseException as error:
                self._raised(attempt, error)
        except BaseException as error:
            late = attempt.late and isinstance(error, asyncio.CancelledError)
            self._raised(attempt, StepTimeout(f"attempt took longer than {step.timeout:g} s") if late else error)
        else:
            self._push(attempt, asked)

    def _begin(self, attempt: Attempt) -> None:
        context = attempt.order.context
        timeout = attempt.order.call.step.timeout
        if timeout is not None:
            attempt.deadline = self._clock.monotonic() + timeout
            context = dataclasses.replace(context, deadline=attempt.deadline)
        attempt.context.run(running_step.set, context)
        run = Run(
            context.execution_id,
            context.path,
            context.attempt,
            context.idempotency_key,
            self._clock.now_ms(),
            self._shard,
            context.fencing_token,
        )
        attempt.run = run
        self._ledger.runs.append(run)
        for look in self._ledger.on_run:
            look(run)

    def _resume(self, attempt: Attempt) -> float:
        assert attempt.code is not None
        if attempt.deadline is not None and not attempt.late and self._clock.monotonic() >= attempt.deadline:
            attempt.late = True
            return float(attempt.context.run(attempt.code.throw, asyncio.CancelledError()))
        return float(attempt.context.run(attempt.code.send, None))

    def _returned(self, attempt: Attempt, value: object) -> None:
        context = attempt.order.context
        raw = attempt.order.call.step.encode_result(value)
        assert attempt.run is not None
        self._finish(attempt, StepDone(context.path, context.attempt, attempt.run.at_ms, raw))

    def _raised(self, attempt: Attempt, error: BaseException) -> None:
        judged = failure_of(error, attempt.order.call.step)
        context = attempt.order.context
        started = None if attempt.run is None else attempt.run.at_ms
        self._finish(
            attempt,
            StepErred(
                context.path,
                context.attempt,
                started,
                judged.error,
                judged.retryable,
                attempt.order.call.step.retry,
                judged.retry_after,
            ),
        )

    def _finish(self, attempt: Attempt, outcome: StepDone | StepErred | StepHeld) -> None:
        context = attempt.order.context
        del self._attempts[(context.execution_id, context.path)]
        if attempt.run is not None:
            attempt.run.ended_ms = self._clock.now_ms()
        attempt.ref.tell(outcome)
        if attempt.then is not None:
            self.start(*attempt.then)
        if self._closed and not self._attempts and self._became_idle is not None:
            self._became_idle()
