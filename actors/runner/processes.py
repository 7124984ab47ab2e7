"""Runs bodies in step processes: a bounded pool for `isolation="process"`, and the lane for orders under suspicion.

One thread with an event loop of its own attends all of them, so that nobody's async step delays a kill or hides a
death. A process of the pool serves many attempts, one after another; one of the lane serves a single attempt.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final

from stepwell.actors.messages import StepDone
from stepwell.actors.processes import wire
from stepwell.actors.processes.code import Codes, StepCode
from stepwell.actors.processes.handle import ProcessGone, StepProcess
from stepwell.actors.runner.attempts import Attempt, Attempts, Outcome
from stepwell.actors.runner.order import StepOrder
from stepwell.actors.runner.outcome import context_with_deadline, erred, told
from stepwell.core.clock import Clock
from stepwell.core.errors import DefinitionError, PayloadError, StepCrashed, StepTimeout
from stepwell.core.limits import LANE_SIZE
from stepwell.core.records import Failure
from stepwell.flow.arguments import PackedArguments, pack, travels
from stepwell.flow.attempt import AttemptError
from stepwell.metrics.logs import current_setup
from stepwell.metrics.saying import say
from stepwell.metrics.tracing import TraceSetup

logger = logging.getLogger("stepwell.runner")
ATTEMPTS_MAX: Final = 1000  # then a process makes room for a fresh one
IDLE_SECONDS: Final = 60.0
LOAD_SECONDS: Final = 120.0  # the interpreter's start, and the import of the user's modules


class NotLoaded(Exception):
    """A process could not load the step's code."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class ProcessPool:
    """`size` bounds the pool's processes at once. `inside` runs an attempt within the shard, as `Attempts.submit` does.

    Nothing is started before the first attempt.
    """

    def __init__(
        self,
        clock: Clock,
        attempts: Attempts,
        size: int,
        inside: Callable[[Attempt], bool],
        traces: TraceSetup | None = None,
    ) -> None:
        self._clock = clock
        self._attempts = attempts
        self._inside = inside
        self._traces = traces
        self._codes = Codes()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        # What follows belongs to the loop's thread.
        self._tasks: set[asyncio.Task[None]] = set()
        self._living: set[StepProcess] = set()
        self._idle: list[StepProcess] = []
        self._timer: asyncio.TimerHandle | None = None
        # Gates let in as many. Those who come after one that was withdrawn wait here while its process still starts.
        self._slots = asyncio.Semaphore(size)
        self._lane = asyncio.Semaphore(LANE_SIZE)

    def submit(self, attempt: Attempt) -> bool:
        """Have an attempt run; False: the system gives no thread, try again later."""
        with self._lock:
            if self._stopping:
                return False
            if self._loop is None and not self._begin():
                return False
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._spawn, self._attend(attempt))
        return True

    def stop(self, timeout: float) -> None:
        """Kill what still runs, whose outcomes are dropped; let idle processes end. Returns when all are reaped."""
        with self._lock:
            self._stopping = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(self._spawn, self._wind_down())
        thread.join(timeout + 5.0)

    # On the loop's thread, but for `_begin`.

    def _begin(self) -> bool:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._run, args=(loop,), name="stepwell-processes", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            say(logger, "StepsHeldBack", "no thread for step processes: %s", error, part="processes", error=error)
            loop.close()
            return False
        self._loop, self._thread = loop, thread
        return True

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, attempt: Attempt) -> None:
        async with self._lane if attempt.order.lane else self._slots:
            started = self._clock.now_ms()
            try:
                await self._run_one(attempt)
            except OSError as error:
                what, of = "no step process can be started: %s", attempt.order.context.log_fields
                say(logger, "StepsHeldBack", what, error, part="processes", error=error, of=of)
                self._attempts.hold_back(attempt)
            except NotLoaded as error:
                self._never_ran(attempt, told(attempt.order, started, AttemptError(error.failure, True), self._clock))
            except (PayloadError, DefinitionError, StepCrashed) as error:
                self._never_ran(attempt, erred(attempt.order, started, error, self._clock))
            except Exception as error:
                # A fault of ours must not leave an execution waiting for ever.
                what, of = _of(attempt.order, "could not be attended"), attempt.order.context.log_fields
                say(logger, "PartErred", "%s", what, traceback=error, part="processes", of=of)
                if attempt.outcome is None:
                    self._attempts.finish(attempt, erred(attempt.order, started, error, self._clock))

    async def _run_one(self, attempt: Attempt) -> None:
        order = attempt.order
        step = order.call.step
        if attempt.withdrawn or self._attempts.closed:
            self._attempts.may_begin(attempt, self._clock.now_ms(), "process")
            return
        try:
            arguments = pack(order.call)
            code = self._codes.of(step)
        except (PayloadError, DefinitionError):
            if step.isolation == "process":
                raise
            self._run_inside(attempt)
            return
        if step.isolation != "process" and not travels(order.call, arguments):
            self._run_inside(attempt)
            return
        try:
            async with self._process(order, code) as process:
                if self._attempts.may_begin(attempt, self._clock.now_ms(), "process"):
                    self._attempts.finish(attempt, await self._outcome(attempt.order, process, code, arguments))
        except NotLoaded:
            if step.isolation == "process":
                raise
            self._run_inside(attempt)

    def _run_inside(self, attempt: Attempt) -> None:
        """What can't be sent to a process runs as it would without the lane."""
        if not self._inside(attempt):
            self._attempts.hold_back(attempt)

    def _never_ran(self, attempt: Attempt, outcome: Outcome) -> None:
        if self._attempts.may_begin(attempt, self._clock.now_ms(), "process"):
            self._attempts.finish(attempt, None if self._stopping else outcome)

    async def _outcome(
        self, order: StepOrder, process: StepProcess, code: StepCode, arguments: PackedArguments
    ) -> Outcome | None:
        step = order.call.step
        started = self._clock.now_ms()
        process.attempts += 1
        try:
            async with asyncio.timeout(step.timeout):
                context = context_with_deadline(order)
                answer = await process.ask(wire.Run(code.number, context, arguments))
        except TimeoutError:
            await process.kill()
            late = StepTimeout(f"attempt took longer than {step.timeout:g} s; its process was killed")
            return erred(order, started, late, self._clock)
        except ProcessGone as gone:
            return None if self._stopping else erred(order, started, _crashed(order, gone), self._clock)
        assert isinstance(answer, wire.Ended)
        if answer.error is not None:
            return told(order, started, answer.error, self._clock)
        ended, queued = self._clock.now_ms(), max(0, started - order.ready_at)
        return StepDone(order.context.path, order.context.attempt, started, ended, answer.value, queued)

    @asynccontextmanager
    async def _process(self, order: StepOrder, code: StepCode) -> AsyncIterator[StepProcess]:
        """A process that has the step's code, for one attempt.

        Raises:
            OSError: the system gives none.
            StepCrashed: it died while it loaded the code.
            NotLoaded: it could not load the code.
        """
        process = await self._fresh() if order.lane or not self._idle else self._idle.pop()
        try:
            await self._load(order, process, code)
            yield process
        finally:
            self._give_back(process, last=order.lane)

    async def _fresh(self) -> StepProcess:
        process = await StepProcess.start(current_setup(), self._traces)
        self._living.add(process)
        process.gone.add_done_callback(lambda _: self._lost(process))
        return process

    async def _load(self, order: StepOrder, process: StepProcess, code: StepCode) -> None:
        if code.number in process.known:
            return
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                answer = await process.ask(wire.Load(code.number, code.name, code.pickled))
        except TimeoutError as error:
            await process.kill()
            raise StepCrashed(_of(order, f"did not load its code within {LOAD_SECONDS:g} s")) from error
        except ProcessGone as gone:
            raise _crashed(order, gone, " while it loaded the code") from gone
        assert isinstance(answer, wire.Loaded)
        if answer.failure is not None:
            raise NotLoaded(answer.failure)
        process.known.add(code.number)

    def _give_back(self, process: StepProcess, last: bool) -> None:
        if process.gone.done():
            return
        if last or self._stopping or process.attempts >= ATTEMPTS_MAX:
            self._spawn(process.retire())
            return
        process.idle_since = asyncio.get_running_loop().time()
        self._idle.append(process)
        self._arm()

    def _arm(self) -> None:
        """One timer for all: for the process that has been idle longest, which is the first."""
        if self._idle and self._timer is None:
            at = self._idle[0].idle_since + IDLE_SECONDS
            self._timer = asyncio.get_running_loop().call_at(at, self._look_for_rested)

    def _look_for_rested(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0].idle_since >= IDLE_SECONDS:
            self._spawn(self._idle.pop(0).retire())
        self._arm()

    def _lost(self, process: StepProcess) -> None:
        self._living.discard(process)
        if process in self._idle:
            self._idle.remove(process)

    async def _wind_down(self) -> None:
        idle, self._idle = self._idle, []
        busy = self._living - set(idle)
        ends = [*(process.kill() for process in busy), *(process.retire() for process in idle)]
        await asyncio.gather(*ends, return_exceptions=True)
        others = self._tasks - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=1.0)
        asyncio.get_running_loop().stop()


def _crashed(order: StepOrder, gone: ProcessGone, when: str = "") -> StepCrashed:
    return StepCrashed(_of(order, f"{gone.how}{when}"))


def _of(order: StepOrder, what: str) -> str:
    return f"step {order.context.path} of execution {order.context.execution_id}: its process {what}"
