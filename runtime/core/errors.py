"""The one error tree.

    StepwellError
     |- UsageError               a caller's mistake: the message says what to change (CLI exit code 2)
     |   |- UnknownFlow          no such flow is registered or served by a living worker
     |   |- InvalidInput         the input does not fit the flow's signature
     |   |- InvalidName          an execution id, flow, step or signal name with odd characters
     |   |- ExecutionExists      the id is taken by an execution with another flow or input
     |   |- UnknownExecution     no row for this id
     |   |- UnknownLetter        no dead letter with this id
     |   |- CommandRefused       the execution's state does not allow the command
     |   |- FlowLoadError        a file or module with flows can't be loaded
     |   `- DefinitionError      a @flow or @step is declared wrongly
     |- PayloadError             a value can't be encoded, does not fit its annotation, or is too large
     |- StoreError               Redis can't be used as it is
     |   |- StoreUnreachable     no connection, wrong password, wrong URL
     |   `- StoreUnfit           too old, evicting, read-only, full, foreign secret or partitions
     |- ExecutionFailed          `result()` of an execution that ended in `error`
     |- ExecutionCancelled       `result()` of an execution that was cancelled
     |- Diverged                 flow code and record disagree: the execution is parked
     |- StepFailed               a step used up its budget or failed for good; raised into the flow
     |- StepTimeout              one attempt took longer than the step's timeout (retryable)
     |- StepCrashed              the process of a step ended in the middle of an attempt (retryable)
     |- SignalTimeout            `wait_for(..., timeout=)` ran out; also a TimeoutError
     |- RetryAfter               raised by a step: try again, not before that many seconds
     `- FatalError               raised by a step: do not try again

Control flow (`Cancelled`, `DriverClosing`) derives from BaseException, so that `except Exception` in a
flow does not swallow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

__all__ = [
    "Cancelled",
    "CommandRefused",
    "DefinitionError",
    "Diverged",
    "DriverClosing",
    "ExecutionCancelled",
    "ExecutionExists",
    "ExecutionFailed",
    "FatalError",
    "FlowLoadError",
    "InvalidInput",
    "InvalidName",
    "PayloadError",
    "RetryAfter",
    "SignalTimeout",
    "StepCrashed",
    "StepFailed",
    "StepTimeout",
    "StepwellError",
    "StoreError",
    "StoreUnfit",
    "StoreUnreachable",
    "UnknownExecution",
    "UnknownFlow",
    "UnknownLetter",
    "UsageError",
]


class StepwellError(Exception):
    """Base of every error that Stepwell raises on purpose."""


class UsageError(StepwellError):
    """A caller's mistake; the message is one sentence that says what to change."""


class UnknownFlow(UsageError):
    """No flow of that name is registered here or served by a living worker."""


class InvalidInput(UsageError):
    """The input is not a JSON object that fits the flow's parameters."""


class InvalidName(UsageError):
    """An execution id, flow, step or signal name that is empty or has odd characters."""


class ExecutionExists(UsageError):
    """The execution id is taken by an execution with another flow or another input."""


class UnknownExecution(UsageError):
    """There is no execution with that id."""


class UnknownLetter(UsageError):
    """There is no dead letter with that id (any more)."""


class CommandRefused(UsageError):
    """The execution's state does not allow the command; the message gives the reason."""


class FlowLoadError(UsageError):
    """A file or module that should define flows can't be loaded."""


class DefinitionError(UsageError):
    """A `@flow` or `@step` is declared wrongly (name, signature, policy)."""


class PayloadError(StepwellError):
    """A value can't be encoded, does not fit its annotation, or is over the size limit."""


class StoreError(StepwellError):
    """Redis can't be used as it is."""


class StoreUnreachable(StoreError):
    """No connection to Redis: address, password, TLS or network."""


class StoreUnfit(StoreError):
    """Redis answers, but a promise could not be kept on it (version, eviction, read-only, full, foreign namespace)."""


class ExecutionFailed(StepwellError):
    """The execution ended in `error`; `error` is its terminal record (`type message attempts failed_step open`)."""

    def __init__(self, execution_id: str, error: Mapping[str, Any]) -> None:
        self.execution_id = execution_id
        self.error = dict(error)
        super().__init__(f"execution {execution_id} failed: {error.get('type')}: {error.get('message')}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.execution_id, self.error))


class ExecutionCancelled(StepwellError):
    """The execution was cancelled before it could return a result."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        super().__init__(f"execution {execution_id} was cancelled")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.execution_id,))


class Diverged(StepwellError):
    """Flow code and record disagree, at `path` if that can be said; both paths are in the message."""

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        super().__init__(message)

    def __reduce__(self) -> tuple[type[Diverged], tuple[str, str]]:
        return (type(self), (str(self), self.path))


class StepFailed(StepwellError):
    """A step failed for good. Raised into the flow, which may catch it and compensate.

    `type` and `message` describe the last attempt's error, `attempts` counts the tries, `path` names the
    step inside its execution.
    """

    def __init__(self, type: str, message: str, attempts: int, path: str = "") -> None:
        self.type = type
        self.message = message
        self.attempts = attempts
        self.path = path
        super().__init__(f"step {path} failed after {attempts} attempt{'s' * (attempts != 1)}: {type}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.__class__, (self.type, self.message, self.attempts, self.path))


class StepTimeout(StepwellError):
    """One attempt of a step took longer than the step's timeout. It is retried like any failure."""


class StepCrashed(StepwellError):
    """The process that ran an attempt ended before the attempt did. It is retried like any failure.

    The message names step, execution, and the signal or exit code.
    """


class SignalTimeout(StepwellError, TimeoutError):
    """`wait_for(name, timeout=...)` ran out before the signal came."""

    def __init__(self, path: str, seconds: float, name: str = "") -> None:
        self.path = path
        self.seconds = seconds
        self.name = name
        which = f"signal {name!r}" if name else "the signal"
        super().__init__(f"{which} did not come within {seconds:g} s ({path})")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.seconds, self.name))


class RetryAfter(StepwellError):
    """Raised by a step: this attempt failed, try again but not before `seconds` (or a timedelta) have passed."""

    def __init__(self, seconds: float | timedelta, message: str = "asked to retry later") -> None:
        self.seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        self.message = message
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.seconds, self.message))


class FatalError(StepwellError):
    """Raised by a step: trying again is pointless; the step fails at once."""


class Cancelled(BaseException):
    """Raised at a flow's current await when the execution, or the gather around it, is being wound up."""


class DriverClosing(BaseException):
    """Raised by operations while the driver takes a flow out of memory; user code must let it pass."""
