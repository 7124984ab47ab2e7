"""`current_step()`: what a running step knows of itself."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec

from stepwell.core.attributes import Attributes
from stepwell.core.errors import UsageError

_logger = logging.getLogger("stepwell.step")


class StepContext(msgspec.Struct, frozen=True, gc=False):
    """One attempt of one step.

    Attributes:
        execution_id: the execution.
        flow: its flow's name.
        step: the step's name.
        path: the step's place in the execution, such as `charge` or `gather#2.0/ship`.
        attempt: number of this try, from 1.
        token: id of the logical step, the same for all its attempts.
        idempotency_key: send it to receivers as `Idempotency-Key`: the same for all attempts, for ever.
        fencing_token: grows with every change of owner; a receiver may refuse a smaller one.
        deadline: when the attempt times out, on the `time.monotonic()` clock, in seconds; None: never.
        traceparent: the attempt's span as a W3C header, for receivers; empty where nothing is traced.
        tracestate: what goes with it.
        attributes: those that the execution was started with.
    """

    execution_id: str
    flow: str
    step: str
    path: str
    attempt: int
    token: str
    idempotency_key: str
    fencing_token: int
    deadline: float | None = None
    traceparent: str = ""
    tracestate: str = ""
    attributes: Attributes = {}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry execution, flow, step, path, attempt and key; more come with `fields={...}`."""
        return _StepLogger(_logger, self.log_fields)

    @property
    def log_fields(self) -> dict[str, object]:
        """What a log line says about where it comes from; `trace` where the attempt is traced."""
        place: dict[str, object] = {
            "execution": self.execution_id,
            "flow": self.flow,
            "step": self.step,
            "path": self.path,
            "attempt": self.attempt,
            "key": self.idempotency_key,
        }
        if self.traceparent:
            place["trace"] = self.trace_id
        return place

    @property
    def trace_id(self) -> str:
        """The id of the trace that the attempt is in, in hex; '' where it is not traced."""
        return self.traceparent.split("-")[1] if self.traceparent else ""


class _StepLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {"fields": {**(self.extra or {}), **kwargs.pop("fields", {})}}
        return msg, kwargs


running_step: ContextVar[StepContext] = ContextVar("stepwell_running_step")


def current_step() -> StepContext:
    """The attempt that this code runs in.

    Raises:
        UsageError: called outside a step's body.
    """
    context = running_step.get(None)
    if context is None:
        raise UsageError("current_step() works inside the body of a running @step only")
    return context
