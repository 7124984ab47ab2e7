"""One attempt of a step: the arguments it gets, what its body may know of itself, what its error means.

Whoever runs step bodies (in a worker, or in memory for tests) does so by these functions.
"""

from __future__ import annotations

import copy
import sysconfig
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.errors import PayloadError, StepCrashed, StepTimeout
from stepwell.core.messages import message_of
from stepwell.core.records import Failure, FailureKind, OpenOp
from stepwell.core.retry import classify
from stepwell.core.token import idempotency_key
from stepwell.core.tracing import SpanRef, attempt_span, trace_of
from stepwell.flow.context import StepContext
from stepwell.flow.definitions import StepLike
from stepwell.flow.operations import StepCall

LIBRARY_FOLDERS = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where what is not the user's own code lies."""
TraceFlags: TypeAlias = Callable[[Checkpoint], int]
"""Flags of an execution's trace, as in a `traceparent`: 1 where its spans are wanted."""
_LIBRARIES = ("<frozen", *LIBRARY_FOLDERS)
_ATOMIC = frozenset({str, int, float, bool, type(None), bytes})


class AttemptError(msgspec.Struct, frozen=True, gc=False):
    """What a failed attempt means: fields of `inputs.AttemptFailed`. `retry_after` is in seconds."""

    error: Failure
    retryable: bool
    retry_after: float | None = None
    kind: FailureKind = "error"


def failure_of(error: BaseException, step: StepLike) -> AttemptError:
    """Judge what an attempt raised by the step's policy.

    Call it with the exception as it was caught around the call of the body: a `TypeError` whose traceback never
    entered the step's function means wrong arguments, which no retry can mend.
    """
    verdict = classify(error, step.retry)
    if verdict.retryable and isinstance(error, TypeError) and _never_entered(error, step):
        return AttemptError(Failure("TypeError", message_of(error), "arguments"), False)
    failure = Failure(type(error).__name__, message_of(error), verdict.reason, where_raised(error))
    return AttemptError(failure, verdict.retryable, verdict.retry_after, _kind_of(error))


def _kind_of(error: BaseException) -> FailureKind:
    if isinstance(error, StepTimeout):
        return "timeout"
    return "crash" if isinstance(error, StepCrashed) else "error"


def copied_arguments(call: StepCall[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments, copied, so that a body that changes them can't change what the flow holds.

    Raises:
        PayloadError: an argument can't be copied; the message names step and argument.
    """
    if _nothing_to_copy(call):
        return call.args, call.kwargs
    args = tuple(_copied(value, str(index + 1), call) for index, value in enumerate(call.args))
    kwargs = {name: _copied(value, repr(name), call) for name, value in call.kwargs.items()}
    return args, kwargs


def as_called(call: StepCall[Any]) -> StepCall[Any]:
    """The call with its arguments as they are now: the flow may change them before a later attempt gets its copy.

    Where they can't be copied the call is returned as it is, and its attempt says so.
    """
    if _nothing_to_copy(call):
        return call
    try:
        args, kwargs = copied_arguments(call)
    except PayloadError:
        return call
    return StepCall(call.step, args, kwargs)


def context_of(
    checkpoint: Checkpoint,
    op: OpenOp,
    path: str,
    step: StepLike,
    epoch: int,
    deadline: float | None = None,
    flags: TraceFlags | None = None,
) -> StepContext:
    """What `current_step()` gives in the body. `epoch` is the fencing token; `deadline` as in `StepContext`; `flags`:
    given where spans are made."""
    context = StepContext(
        execution_id=checkpoint.execution_id,
        flow=checkpoint.meta.flow,
        step=step.name,
        path=path,
        attempt=op.attempt,
        token=op.token,
        idempotency_key=idempotency_key(checkpoint.root, op.token),
        fencing_token=epoch,
        deadline=deadline,
        attributes={**checkpoint.meta.attributes} if checkpoint.meta.attributes else {},
    )
    return _traced(context, checkpoint, op, flags) if flags is not None or checkpoint.meta.trace else context


def _traced(context: StepContext, cp: Checkpoint, op: OpenOp, flags: TraceFlags | None) -> StepContext:
    """With the attempt's span. Where nobody makes spans the caller's is passed on as it came: ours would be a parent
    that is nowhere."""
    trace = trace_of(cp)
    if flags is not None:
        span = SpanRef(trace.trace_id, attempt_span(op.token, op.attempt, op.cuts), flags(cp))
        return replace(context, traceparent=span.header, tracestate=trace.state)
    if trace.caller is None:
        return context
    return replace(context, traceparent=trace.caller.header, tracestate=trace.state)


def _never_entered(error: TypeError, step: StepLike) -> bool:
    code = getattr(step.fn, "__code__", None)
    trace = error.__traceback__
    if code is None or trace is None:
        return False
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return False
        trace = trace.tb_next
    return True


def where_raised(error: BaseException) -> str:
    """The last place in the user's own code that the error passed; empty if it passed none."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        frame = trace.tb_frame
        code = frame.f_code
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != "stepwell" and not code.co_filename.startswith(_LIBRARIES):
            place = f"{'/'.join(PurePath(code.co_filename).parts[-2:])}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return place


def _nothing_to_copy(call: StepCall[object]) -> bool:
    for value in call.args:
        if type(value) not in _ATOMIC:
            return False
    return not call.kwargs or all(type(value) in _ATOMIC for value in call.kwargs.values())


def _copied(value: Any, place: str, call: StepCall[Any]) -> Any:
    if type(value) in _ATOMIC:
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise PayloadError(
            f"argument {place} of step {call.step.name} can't be copied: it is of type {type(value).__qualname__}"
            f" ({message_of(error, 200)}); pass plain data and open such things inside the step"
        ) from error
