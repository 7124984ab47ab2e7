"""Run flows in memory, for tests: no Redis, no thread, and no waiting.

`run_local(flow, input)` runs a flow to its end. Step bodies really run; backoffs, sleeps and the timeouts of
`wait_for` only advance a virtual clock. `LocalRun` is the same one turn at a time, for tests that look closer:
it keeps the row that Redis would hold, and can be rebuilt from it at any moment.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import weakref
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any

from msgspec.structs import replace

from stepwell.core import codec, row
from stepwell.core.checkpoint import Checkpoint
from stepwell.core.durations import SECONDS_MAX
from stepwell.core.durations import seconds as checked_seconds
from stepwell.core.effects import ArmTimer, DisarmTimer, StartAttempt
from stepwell.core.errors import Diverged, ExecutionCancelled, ExecutionFailed, StepFailed, StepTimeout, UsageError
from stepwell.core.events import Event
from stepwell.core.inputs import (
    AttemptFailed,
    AttemptSucceeded,
    CancelAsked,
    Input,
    NotStarted,
    RetryAsked,
    SignalSent,
    TimerFired,
)
from stepwell.core.names import check_execution_id
from stepwell.core.records import SIGNAL, Meta, Outcome, TerminalError
from stepwell.core.status import CANCELLED, ERROR, PARKED, QUEUED
from stepwell.core.token import SECRET_BYTES, token_seed
from stepwell.core.view import error_shown, view
from stepwell.flow.attempt import context_of, copied_arguments, failure_of
from stepwell.flow.context import running_step
from stepwell.flow.definitions import Flow, FlowLike, Step
from stepwell.flow.machine import Machine, Turn

__all__ = ["Causes", "LocalRun", "local_execution", "run_local"]

START_MS = 1_750_000_000_000
TURNS_MAX = 100_000
REPLAYS_ALWAYS = 100
_SECRET = bytes(SECRET_BYTES)
SentSignal = tuple[str, Any] | tuple[float, str, Any]


def run_local(
    flow: FlowLike,
    input: Mapping[str, object] | None = None,
    *,
    execution_id: str = "local",
    secret: bytes = _SECRET,
    signals: Iterable[SentSignal] = (),
    max_steps: int = TURNS_MAX,
    raise_on_error: bool = True,
    replay: bool = True,
) -> Any:
    """Run a flow to its end in memory and return its result as plain JSON data.

    Args:
        input: the flow's keyword arguments.
        secret: what step tokens (and so idempotency keys) are made from, 32 bytes.
        signals: `(name, payload)` is there from the start, `(seconds, name, payload)` comes that much later.
        max_steps: most turns (attempts, timers, signals) that the run may take.
        raise_on_error: False returns a failed execution's error record (`type message attempts failed_step`
            `open`) instead of raising.
        replay: whether to rebuild the flow from its record again and again, as a worker that takes it over would,
            and see that its code takes the same way.

    Raises:
        InvalidInput: the input does not fit the flow.
        ExecutionFailed: it ended in `error`; what the step or the flow raised is its `__cause__`.
        ExecutionCancelled: it was cancelled.
        Diverged: rebuilt from its record, the flow's code took another way.
        UsageError: it waits for a signal that never comes, or takes more than `max_steps` turns.
    """
    run = LocalRun(flow, input, execution_id=execution_id, secret=secret, replay=replay, causes=Causes())
    try:
        for sent in signals:
            at, name, payload = sent if len(sent) == 3 else (0.0, *sent)
            run.signal_later(at, name, payload)
        run.run(max_steps)
        error = run.checkpoint.error
        if run.checkpoint.status == ERROR and error is not None and not raise_on_error:
            return error_shown(error)
        return run.result()
    finally:
        run.close()


def local_execution(flow: FlowLike, input: Mapping[str, object] | None = None, **options: Any) -> LocalRun:
    """A `LocalRun` that has begun: the flow's code stands at its first operations."""
    return LocalRun(flow, input, **options).begin()


class LocalRun:
    """One execution in memory, under virtual time.

    Attributes:
        row: the fields that Redis would hold after the last commit.
        commits: the fields that each commit wrote (None: erased), the oldest first.
        events: what was told to metrics and logs.
        now_ms: the virtual clock, milliseconds since the epoch.
        running: attempts that have started and not ended: path -> attempt number.
        timers: when armed timers fire: path -> `now_ms`.
    """

    def __init__(
        self,
        flow: FlowLike,
        input: Mapping[str, object] | None = None,
        *,
        execution_id: str = "local",
        secret: bytes = _SECRET,
        now_ms: int = START_MS,
        replay: bool = False,
        causes: Causes | None = None,
    ) -> None:
        if not isinstance(flow, Flow):
            raise UsageError(_no_flow(flow))
        check_execution_id(execution_id)
        raw = flow.input.encode(input)
        meta = Meta(flow.name, now_ms, "")
        cp = Checkpoint(execution_id, meta, raw, token_seed(execution_id, 0, secret), QUEUED, rev=1)
        self.now_ms = now_ms
        self.row = dict(row.fields_of(cp))
        self.commits: list[dict[str, bytes | None]] = []
        self.events: list[Event] = []
        self.running: dict[str, int] = {}
        self.timers: dict[str, int] = {}
        self._secret = secret
        self._began_ms = now_ms
        self._later: list[tuple[int, str, bytes]] = []
        self._commands = 0
        self._replay = replay
        self._causes = causes
        self._machine = Machine(self._watched(flow), cp)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._write({})

    @property
    def checkpoint(self) -> Checkpoint:
        """The execution's state."""
        return self._machine.checkpoint

    @property
    def ended(self) -> bool:
        """Whether it is completed, in error or cancelled."""
        return self.checkpoint.terminal

    def show(self) -> dict[str, Any]:
        """The row as `stepwell show --json` gives it."""
        return view(self.checkpoint.execution_id, self.row)

    def result(self) -> Any:
        """The result as plain JSON data.

        Raises:
            ExecutionFailed, ExecutionCancelled: it ended so.
            Diverged: it is parked.
            UsageError: it has not ended.
        """
        cp = self.checkpoint
        if cp.status == ERROR and cp.error is not None:
            cause = None if self._causes is None else self._causes.of(cp.error)
            raise ExecutionFailed(cp.execution_id, error_shown(cp.error)) from cause
        if cp.status == CANCELLED:
            raise ExecutionCancelled(cp.execution_id)
        if cp.status == PARKED and cp.error is not None:
            raise Diverged(f"execution {cp.execution_id} is parked: {cp.error.type}: {cp.error.message}")
        if cp.result is None:
            raise UsageError(f"execution {cp.execution_id} has not ended, it is {cp.status}: {self._waits()}")
        return codec.decode_plain(cp.result)

    # Driving it.

    def begin(self) -> LocalRun:
        """Start the flow's code; returns the run itself."""
        self._apply(self._machine.start(self.now_ms, clean=True))
        return self

    def run(self, max_steps: int = TURNS_MAX) -> LocalRun:
        """Go on until it has ended or is parked; returns the run itself.

        Raises:
            UsageError: it waits for a signal that never comes, or needs more than `max_steps` turns.
        """
        if self.checkpoint.status == QUEUED:
            self.begin()
        for _ in range(max_steps):
            if self.ended or self.checkpoint.status == PARKED:
                return self
            if not self.step_once():
                name = self.checkpoint.meta.flow
                raise UsageError(f"flow {name} never ends: {self._waits()}; send the signal with signals=[(name, ...)]")
        if self.ended:
            return self
        raise UsageError(f"flow {self.checkpoint.meta.flow} did not end within {max_steps} steps: {self._waits()}")

    def step_once(self) -> bool:
        """End the oldest running attempt; without one, let time pass to what is due next. False: nothing is."""
        if self.running:
            self.finish(next(iter(self.running)))
            return True
        due = min(self.timers.items(), key=lambda timer: timer[1], default=None)
        if self._later and (due is None or self._later[0][0] <= due[1]):
            at, name, payload = self._later.pop(0)
            self.now_ms = max(self.now_ms, at)
            self.feed(SignalSent(self.now_ms, self._command_id(), name, payload))
            return True
        if due is None:
            return False
        self.fire(due[0])
        return True

    def finish(self, path: str) -> None:
        """Run the body of the running step at `path` and record its outcome."""
        self.feed(self.execute(path))

    def execute(self, path: str) -> AttemptSucceeded | AttemptFailed:
        """Run the body of the running step at `path`; its outcome is not recorded unless it is `feed`-ed."""
        call = self._machine.step_call(path)
        step = call.step
        op = self.checkpoint.open[path]
        context = contextvars.copy_context()
        context.run(running_step.set, context_of(self.checkpoint, op, path, step, epoch=1))
        started = self.now_ms
        if step.is_async:
            _check_no_loop_runs()
        try:
            args, kwargs = copied_arguments(call)
            if step.is_async:
                value = self._await(_limited(step.fn(*args, **kwargs), step.timeout), context)
            else:
                value = context.run(step.fn, *args, **kwargs)
            raw = step.encode_result(value)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if self._causes is not None:
                self._causes.by_path[path] = error
            judged = failure_of(error, step)
            return AttemptFailed(
                self.now_ms,
                path,
                op.attempt,
                started,
                self.now_ms,
                judged.error,
                judged.retryable,
                step.retry,
                judged.retry_after,
                judged.kind,
            )
        return AttemptSucceeded(self.now_ms, path, op.attempt, started, self.now_ms, raw)

    def fire(self, path: str) -> None:
        """Let time pass until the timer at `path` is due, and fire it."""
        self.now_ms = max(self.now_ms, self.timers.pop(path))
        self.feed(TimerFired(self.now_ms, path))

    def advance(self, seconds: float) -> None:
        """Let time pass without anything happening; less than 0: the clock is set back."""
        self.now_ms += round(checked_seconds(seconds, "advance()", least=-SECONDS_MAX) * 1000)

    def feed(self, event: Input) -> Turn:
        """Give the execution one event; what comes of it is committed and followed at once."""
        if isinstance(event, AttemptSucceeded | AttemptFailed) and self.running.get(event.path) == event.attempt:
            del self.running[event.path]
        turn = self._machine.feed(event)
        self._apply(turn)
        return turn

    # Commands. Each returns what its sender would be told.

    def signal(self, name: str, payload: object = None, command_id: str = "") -> Outcome | None:
        """Send a signal; None: a command with this id was applied before."""
        raw = codec.encode(payload, f"the payload of signal {name}")
        return self._command(SignalSent(self.now_ms, command_id or self._command_id(), name, raw))

    def signal_later(self, seconds: float, name: str, payload: object = None) -> None:
        """Send a signal `seconds` after the execution was created."""
        at = self._began_ms + round(checked_seconds(seconds, "the time of a signal") * 1000)
        self._later.append((at, name, codec.encode(payload, f"the payload of signal {name}")))
        self._later.sort(key=lambda sent: sent[0])

    def cancel(self, command_id: str = "") -> Outcome | None:
        """Ask for a cancel; None: a command with this id was applied before."""
        return self._command(CancelAsked(self.now_ms, command_id or self._command_id()))

    def retry(self, command_id: str = "") -> Outcome | None:
        """Ask for a retry; None: a command with this id was applied before."""
        return self._command(RetryAsked(self.now_ms, command_id or self._command_id()))

    # Leaving memory.

    def reload(self, *, clean: bool = False, flow: FlowLike | None = None) -> LocalRun:
        """Rebuild everything from the row; returns the run itself.

        `clean`: as after a long wait out of memory, nothing had been running; else as after a crash, what ran was
        cut short. `flow`: other code than before, as after a deploy.
        """
        self._machine.close()
        cp = row.parse(self.checkpoint.execution_id, self.row, self._secret)
        self._machine = Machine(self._watched(flow) if flow else self._machine.flow, cp)
        self.running.clear()
        self.timers.clear()
        self._apply(self._machine.start(self.now_ms, clean))
        return self

    def close(self) -> None:
        """Take the flow's code out of memory and close the event loop of async steps."""
        self._machine.close()
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None

    def _command(self, event: SignalSent | CancelAsked | RetryAsked) -> Outcome | None:
        return next((answer.outcome for answer in self.feed(event).answers), None)

    def _command_id(self) -> str:
        self._commands += 1
        return f"command-{self._commands}"

    def _apply(self, turn: Turn) -> None:
        if not turn.empty:
            self._machine.checkpoint = replace(self.checkpoint, rev=self.checkpoint.rev + 1)
            self.commits.append(turn.fields)
            self._write(turn.fields)
            if self._replay and _is_checked(len(self.commits)):
                self._check_replay()
        self.events += turn.events
        never_begun: list[StartAttempt] = []
        for effect in turn.follow:
            if isinstance(effect, StartAttempt):
                op = self.checkpoint.open.get(effect.path)
                if op is not None and op.winding and self.running.get(effect.path) != effect.attempt:
                    never_begun.append(effect)
                else:
                    self.running[effect.path] = effect.attempt
            elif isinstance(effect, ArmTimer):
                self.timers[effect.path] = self.now_ms + effect.delay_ms
            elif isinstance(effect, DisarmTimer):
                self.timers.pop(effect.path, None)
        for start in never_begun:
            self.feed(NotStarted(self.now_ms, start.path, start.attempt))

    def _watched(self, flow: FlowLike) -> FlowLike:
        return flow if self._causes is None else self._causes.watching(flow)

    def _check_replay(self) -> None:
        """Drive the code anew from the row, beside the one that goes on. Raises Diverged."""
        cp = self.checkpoint
        if cp.terminal or cp.status in (QUEUED, PARKED):
            return
        again = Machine(self._machine.flow, row.parse(cp.execution_id, self.row, self._secret))
        try:
            again.start(self.now_ms, clean=True)
            found = again.checkpoint
        finally:
            again.close()
        if found.status == PARKED and found.error is not None:
            why = found.error.message
        elif found.terminal:
            why = f"it ended there ({found.status})"
        else:
            new = sorted(set(found.open) - set(cp.open))
            why = f"it came to {', '.join(new)}" if new else ""
        if why:
            raise Diverged(
                f"flow {cp.meta.flow} took another way when it was rebuilt from its record: {why}; what it does may"
                " depend on nothing but its input and what it awaits: move time, chance and I/O into a @step"
                " (replay=False leaves this check out)"
            )

    def _write(self, fields: Mapping[str, bytes | None]) -> None:
        for field, value in fields.items():
            if value is None:
                self.row.pop(field, None)
            else:
                self.row[field] = value
        self.row["status"] = self.checkpoint.status.encode()
        self.row["rev"] = str(self.checkpoint.rev).encode()
        self.row["updated_at"] = str(self.now_ms).encode()

    def _await(self, body: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            # A run that is in a cycle would be collected together with its loop, in any order.
            weakref.finalize(self, self._loop.close)
        return self._loop.run_until_complete(self._loop.create_task(body, context=context))

    def _waits(self) -> str:
        opened = self.checkpoint.open.items()
        waits = [
            f"signal {op.name!r} at {path}" if op.kind == SIGNAL else f"{path} ({op.status})" for path, op in opened
        ]
        return f"it waits for {', '.join(waits)}" if waits else "it waits for nothing"


class Causes:
    """The exceptions behind an execution's failures, of which a record keeps the text only.

    For runs that are closed: what the exceptions passed through, the run itself too, lives as long as they do.
    """

    def __init__(self) -> None:
        self.by_path: dict[str, BaseException] = {}
        self._raised: Exception | None = None

    def watching(self, flow: FlowLike) -> FlowLike:
        """The same flow; what leaves its code is remembered."""
        fn = flow.fn

        @wraps(fn)
        async def watched(**arguments: object) -> object:
            try:
                return await fn(**arguments)
            except Exception as error:
                if isinstance(error, StepFailed) and error.__cause__ is None:
                    error.__cause__ = self.by_path.get(error.path)
                self._raised = error
                raise

        seen = copy.copy(flow)
        seen.fn = watched
        return seen

    def of(self, error: TerminalError) -> BaseException | None:
        """What is behind a terminal error."""
        failed = error.failed_step
        return self._raised or (None if failed is None else self.by_path.get(failed.path))


def _no_flow(given: object) -> str:
    if isinstance(given, Step):
        return f"{given.name!r} is a step: call it like any function, or give run_local a flow that awaits it"
    return f"expected a function decorated with @flow, got {given!r:.200}"


def _is_checked(commit: int) -> bool:
    """Each replay costs as much as the record is long: of a long one every hundredth commit is enough."""
    return commit <= REPLAYS_ALWAYS or commit % REPLAYS_ALWAYS == 0


def _check_no_loop_runs() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("async steps can't run here inside a running event loop: call run_local from a plain `def` test")


async def _limited(body: Awaitable[Any], seconds: float | None) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await body
    except TimeoutError as error:
        if limit.expired():
            raise StepTimeout(f"attempt took longer than {seconds:g} s") from error
        raise
