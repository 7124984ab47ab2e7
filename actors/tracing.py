"""What a shard asks of whoever makes spans, if anybody does."""

from __future__ import annotations

from typing import Protocol

from stepwell.core.checkpoint import Checkpoint
from stepwell.core.events import Event
from stepwell.flow.context import StepContext
from stepwell.metrics.tracing import TraceSetup


class Tracing(Protocol):
    """Makes spans. Its methods are called on any thread, never block and never raise."""

    @property
    def setup(self) -> TraceSetup:
        """How a step process is to trace, so that its spans fit."""

    def follow(self, event: Event, checkpoint: Checkpoint) -> None:
        """What happened to an execution, and what that made of it."""

    def flags(self, checkpoint: Checkpoint) -> int:
        """Flags of the execution's trace, as in a `traceparent`: whether its spans are wanted."""

    def trace(self, execution_id: str) -> str:
        """Id of the trace of the execution that was followed last, in hex, if it is that one and its spans are wanted;
        else empty. For those who are told of the same event, on the thread that follows."""

    def close(self) -> None:
        """Hand over what is left, at the end of the shard; this may take a few seconds."""

    def enter(self, context: StepContext) -> None:
        """Make the attempt's span the active one, in the context that calls."""
