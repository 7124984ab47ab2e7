"""Drives a flow's code by `.send()`: no event loop, no thread, no clock.

The driver gives every operation its path when the code yields it, counted per name and branch, and answers it
with the recorded fact. The same facts in the same order always lead to the same operations; a fact that does
not fit what the code waits for is divergence.

A gather that fails starts nothing new: its other branches get `Cancelled` as what they wait for ends, and when
all have ended the first failure is raised where the gather is awaited.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Coroutine, Iterator
from typing import Any, TypeAlias

import msgspec

from stepwell.core import codec
from stepwell.core.errors import (
    Cancelled,
    Diverged,
    DriverClosing,
    PayloadError,
    SignalTimeout,
    StepFailed,
    UsageError,
)
from stepwell.core.inputs import Declaration, FlowRaised, FlowReturned
from stepwell.core.messages import message_of
from stepwell.core.names import branch_prefix, numbered
from stepwell.core.records import SIGNAL, STEP, TIMER, Fact, Failure, OpKind
from stepwell.core.status import OP_TIMED_OUT, STEP_CANCELLED, STEP_COMPLETED
from stepwell.flow.attempt import as_called
from stepwell.flow.definitions import FlowLike
from stepwell.flow.operations import Driving, Gather, Operation, Sleep, StepCall, WaitFor, driving

logger = logging.getLogger("stepwell.flow")
Leaf = StepCall[Any] | Sleep | WaitFor
_LEAVES = (StepCall, Sleep, WaitFor)  # a tuple: `A | B` would be made anew at each operation
_PLAIN = codec.decoder(None)


class _Branch:
    """One coroutine of the flow: its root or a branch of a gather. `op`: what it waits for, while it is pending."""

    __slots__ = ("answers_failure", "cancelled", "code", "counts", "given_failure", "index", "op", "parent", "prefix")

    op: Leaf

    def __init__(
        self, code: Coroutine[Any, Any, Any], prefix: str, parent: _OpenGather | None, index: int, cancelled: bool
    ) -> None:
        self.code = code
        self.prefix = prefix
        self.parent = parent
        self.index = index
        self.cancelled = cancelled  # Cancelled was raised in it: what it does since is cleanup
        self.given_failure = False
        self.answers_failure = False  # what it declares first is what its owner does about a failure
        self.counts: dict[str, int] = {}

    def next_path(self, name: str) -> str:
        count = self.counts.get(name, 0) + 1
        self.counts[name] = count
        return self.prefix + numbered(name, count)


_Ready: TypeAlias = tuple[_Branch, object, BaseException | None]
"""A branch that can go on, with what its operation came to."""


class _OpenGather:
    """A gather whose branches have not all ended."""

    __slots__ = ("branches", "failure", "given_failure", "left", "owner", "path", "results")

    def __init__(self, path: str, owner: _Branch, size: int) -> None:
        self.path = path
        self.owner = owner
        self.left = size
        self.results: list[Any] = [None] * size
        self.failure: BaseException | None = None
        self.given_failure = False  # a branch was given one, so what the owner does next may be a consequence
        self.branches: list[_Branch] = []


class Moves(msgspec.Struct, eq=False):
    """What the code did with one fact: operations it began, paths to wind up, its end."""

    declared: dict[str, Declaration] = {}
    wind_up: list[str] = []
    end: FlowReturned | FlowRaised | None = None


NO_MOVES = Moves()
NONE_READY: list[_Ready] = []  # of all drivers whose code waits: a list for each would cost 56 bytes a flow


class Driver(Driving):
    """Runs one execution's flow code. All calls come from one thread at a time."""

    __slots__ = ("_execution_id", "_flow", "_moves", "_pending", "_ready", "_root", "ended")

    def __init__(self, flow: FlowLike, arguments: dict[str, Any], execution_id: str) -> None:
        self._flow = flow
        self._execution_id = execution_id
        super().__init__()
        self._pending: dict[str, _Branch] = {}
        self._ready = NONE_READY
        self._moves = NO_MOVES
        self.ended = True
        before, driving.driver = driving.driver, self
        try:
            self._root = _Branch(flow.fn(**arguments), "", None, 0, False)
        finally:
            driving.driver = before
        self.ended = False

    def __del__(self) -> None:
        # A coroutine that is collected runs its `finally` code, where steps would be plain calls.
        if not self.ended:
            self.close()

    def begin(self) -> Moves:
        """Run the code to its first operations."""
        return self._run((self._root, None, None))

    def deliver(self, path: str, fact: Fact) -> Moves:
        """Answer the operation at `path` with its outcome and run the code until all branches wait again.

        Raises:
            Diverged: the code does not wait for that operation.
            PayloadError: the recorded value does not fit the code's annotation.
        """
        branch = self._pending.get(path)
        if branch is None:
            raise Diverged(f"the record has an outcome of {path}, but the code waits for {self._waits()}", path)
        op = branch.op
        if type(op) is not StepCall or fact.kind != STEP:
            require_same(path, fact.kind, fact.name, op)
        value, error = outcome_of(op, path, fact)
        del self._pending[path]
        return self._run((branch, value, error))

    def pending(self) -> dict[str, Leaf]:
        """What the code waits for now: path -> operation."""
        return {path: branch.op for path, branch in self._pending.items()}

    def step_call(self, path: str) -> StepCall[Any]:
        """The call of the step that the code waits for at `path`."""
        op = self._pending[path].op
        assert isinstance(op, StepCall), f"{path} is no step"
        return op

    def winding(self) -> list[str]:
        """Paths that belong to failing gathers and whose branches have not been cancelled yet."""
        return [path for path, branch in self._pending.items() if not branch.cancelled and _failing(branch)]

    def close(self) -> None:
        """Take the code out of memory. Operations awaited by cleanup code raise, so nothing is declared."""
        if self.ended:
            return
        self.closing = True
        before, driving.driver = driving.driver, self
        try:
            for branch, waits_at in self._live_branches():
                self._close(branch, waits_at)
        finally:
            driving.driver = before
        self._pending.clear()
        self.ended = True

    def _close(self, branch: _Branch, waits_at: str) -> None:
        try:
            branch.code.close()
        except (DriverClosing, GeneratorExit):
            return
        except BaseException as error:
            what, flow = type(error).__name__, self._flow.name
            place = {"execution": self._execution_id, "flow": flow} | ({"path": waits_at} if waits_at else {})
            logger.warning(
                "flow %s raised %s while it was taken out of memory: in a flow, `finally` may only await steps",
                flow,
                what,
                extra={"fields": {**place, "error": what, "event": "CleanupRaised"}},
            )

    def _live_branches(self) -> Iterator[tuple[_Branch, str]]:
        """Each with the path at which it waits; '' of one that does not wait."""
        seen: set[int] = set()
        for path, branch in self._pending.items():
            while True:
                if id(branch) not in seen:
                    seen.add(id(branch))
                    yield branch, path
                if branch.parent is None:
                    break
                path = branch.parent.path
                branch = branch.parent.owner
        if not self._pending:
            yield self._root, ""

    def _waits(self) -> str:
        return ", ".join(sorted(self._pending)) or "nothing"

    def _run(self, first: _Ready) -> Moves:
        self._ready = ready = [first]
        self._moves = moves = Moves()
        before, driving.driver = driving.driver, self
        try:
            while ready:
                branch, value, error = ready.pop(0)
                if error is None and not branch.cancelled and branch.parent is not None and _failing(branch):
                    error = Cancelled()
                self._advance(branch, value, error)
        finally:
            driving.driver = before
            self._moves, self._ready = NO_MOVES, NONE_READY  # a waiting flow keeps nothing of its last move
        return moves

    def _advance(self, branch: _Branch, value: Any, error: BaseException | None) -> None:
        while True:
            if error is not None:
                branch.given_failure = branch.given_failure or isinstance(error, StepFailed | Cancelled)
                branch.cancelled = branch.cancelled or isinstance(error, Cancelled)
            try:
                op = branch.code.send(value) if error is None else branch.code.throw(error)
            except StopIteration as stop:
                self._ended(branch, stop.value, None)
                return
            except BaseException as raised:
                self._ended(branch, None, _plainer(raised))
                return
            value, error = None, None
            if isinstance(op, _LEAVES):
                self._declare(branch, op)
                return
            if isinstance(op, Gather):
                if op.branches:
                    self._open_gather(branch, op)
                    return
                value = []
            else:
                error = _foreign(op)

    def _declare(self, branch: _Branch, op: Leaf) -> None:
        kind, name = describe(op)
        seconds = None
        if isinstance(op, StepCall):
            op = as_called(op)
            path = branch.next_path(name)
        else:
            seconds = op.seconds
            path = branch.next_path("sleep" if kind == TIMER else "wait")
        branch.op = op
        self._pending[path] = branch
        after_failure = branch.given_failure or branch.answers_failure
        branch.answers_failure = False  # later ones may come after failures that are another branch's
        self._moves.declared[path] = Declaration(path, kind, name, seconds, after_failure, branch.cancelled)

    def _open_gather(self, owner: _Branch, op: Gather) -> None:
        path = owner.next_path("gather")
        gather = _OpenGather(path, owner, len(op.branches))
        after_failure = owner.given_failure or owner.answers_failure
        owner.answers_failure = False
        for index, awaitable in enumerate(op.branches):
            self.awaited(awaitable)
            code = awaitable if inspect.iscoroutine(awaitable) else _await(awaitable)
            branch = _Branch(code, branch_prefix(path, index), gather, index, owner.cancelled)
            branch.answers_failure = after_failure
            gather.branches.append(branch)
            self._ready.append((branch, None, None))

    def _ended(self, branch: _Branch, value: Any, error: BaseException | None) -> None:
        gather = branch.parent
        if gather is None:
            self.ended = True
            self._moves.end = self._returned(value) if error is None else _raised(error)
            return
        gather.results[branch.index] = value
        gather.given_failure = gather.given_failure or branch.given_failure
        gather.left -= 1
        if error is not None and gather.failure is None:
            gather.failure = error
            self._wind_up(gather)
        if gather.left == 0:
            gather.owner.given_failure = gather.owner.given_failure or gather.given_failure
            self._ready.append((gather.owner, gather.results, gather.failure))

    def _wind_up(self, gather: _OpenGather) -> None:
        """What was declared in this very move has not begun and is taken back; the rest is asked to end. Cleanup
        of branches that are cancelled already goes on."""
        inside = gather.path + "."
        for path, branch in list(self._pending.items()):
            if branch.cancelled or not path.startswith(inside):
                continue
            if path in self._moves.declared:
                del self._moves.declared[path]
                del self._pending[path]
                self._ready.append((branch, None, Cancelled()))
            else:
                self._moves.wind_up.append(path)

    def _returned(self, value: Any) -> FlowReturned | FlowRaised:
        forgotten = self.forgotten()
        if forgotten:
            calls = ", ".join(sorted({repr(operation) for operation in forgotten}))
            told = f"flow {self._flow.name} called {calls} and never awaited it: write `await` before the call"
            return FlowRaised(Failure("UsageError", told))
        try:
            return FlowReturned(codec.encode(value, f"the result of flow {self._flow.name}"))
        except PayloadError as error:
            return FlowRaised(Failure("PayloadError", str(error)))


def describe(op: Leaf) -> tuple[OpKind, str]:
    """Kind and name of an operation."""
    if isinstance(op, StepCall):
        return STEP, op.step.name
    if isinstance(op, WaitFor):
        return SIGNAL, op.name
    return TIMER, ""


def require_same(path: str, kind: OpKind, name: str, found: Leaf) -> None:
    """Check that the code has at `path` what the record has there.

    Raises:
        Diverged: another kind of operation, or a wait for another signal.
    """
    has, called = describe(found)
    if has != kind or (has == SIGNAL and called != name):
        there = f"but the code has {has} {called or path} there"
        raise Diverged(f"the record has {kind} {name or path} at {path}, {there}", path)


def outcome_of(op: Leaf, path: str, fact: Fact) -> tuple[Any, BaseException | None]:
    """The value or the exception that a fact stands for.

    Raises:
        PayloadError: the recorded value does not fit the step's annotation.
    """
    if fact.cancel or fact.status == STEP_CANCELLED:
        return None, Cancelled()
    if fact.status == STEP_COMPLETED:
        if isinstance(op, StepCall):
            return op.step.decode_result(fact.value), None
        return codec.decode(fact.value, _PLAIN, f"what is recorded at {path}"), None
    if fact.status == OP_TIMED_OUT:
        seconds, name = (op.seconds, op.name) if isinstance(op, WaitFor) else (None, "")
        return None, SignalTimeout(path, seconds or 0.0, name)
    error = fact.error or Failure("Unknown", "")
    return None, StepFailed(error.type, error.message, fact.attempt, path)


def _failing(branch: _Branch) -> bool:
    gather = branch.parent
    while gather is not None:
        if gather.failure is not None:
            return True
        gather = gather.owner.parent
    return False


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _foreign(op: object) -> UsageError:
    what = repr(op) if isinstance(op, Operation) else f"a {type(op).__module__}.{type(op).__qualname__}"
    return UsageError(f"the flow awaited {what}, which is no Stepwell operation: move it into a @step and await that")


def _plainer(error: BaseException) -> BaseException:
    if isinstance(error, RuntimeError) and "event loop" in str(error):
        return UsageError(f"the flow used asyncio ({error}): move that code into a @step and await that")
    return error


def _raised(error: BaseException) -> FlowRaised:
    if isinstance(error, Cancelled):
        return FlowRaised(Failure("Cancelled", ""), cancelled=True)
    if isinstance(error, StepFailed):
        return FlowRaised(Failure(error.type, error.message), path=error.path, attempts=error.attempts)
    return FlowRaised(Failure(type(error).__name__, message_of(error)), detail=_where(error))


def _where(error: BaseException) -> str:
    """The last place in the flow's code that the exception passed: `file:line in function`."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.endswith(("flow/driver.py", "flow/operations.py")):
            place = f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return place
