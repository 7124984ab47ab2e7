"""Stepwell: a durable flow runtime on Redis or Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.core.errors import (
    Cancelled,
    CommandRefused,
    DefinitionError,
    Diverged,
    ExecutionCancelled,
    ExecutionExists,
    ExecutionFailed,
    FatalError,
    InvalidInput,
    InvalidName,
    PayloadError,
    RetryAfter,
    SignalTimeout,
    StepCrashed,
    StepFailed,
    StepTimeout,
    StepwellError,
    StoreError,
    StoreUnfit,
    StoreUnreachable,
    UnknownExecution,
    UnknownFlow,
    UnknownLetter,
    UsageError,
)
from stepwell.core.redact import hide_secrets
from stepwell.core.retry import Retry
from stepwell.flow.context import current_step
from stepwell.flow.definitions import Flow, Step, flow, step
from stepwell.flow.operations import days, gather, hours, minutes, sleep, wait_for

if TYPE_CHECKING:
    from stepwell.client import AsyncClient, Client
    from stepwell.worker.worker import Worker

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "CommandRefused",
    "DefinitionError",
    "Diverged",
    "ExecutionCancelled",
    "ExecutionExists",
    "ExecutionFailed",
    "FatalError",
    "Flow",
    "InvalidInput",
    "InvalidName",
    "PayloadError",
    "Retry",
    "RetryAfter",
    "SignalTimeout",
    "Step",
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
    "Worker",
    "current_step",
    "days",
    "flow",
    "gather",
    "hide_secrets",
    "hours",
    "minutes",
    "sleep",
    "step",
    "wait_for",
]

_LATE = {"Client": "stepwell.client", "AsyncClient": "stepwell.client", "Worker": "stepwell.worker.worker"}
_LATE_MODULES = ("http", "testing")


def __getattr__(name: str) -> Any:
    # What needs Redis is imported when it is first used, so that flow files import quickly.
    from importlib import import_module

    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    if name in _LATE_MODULES:
        return import_module(f"stepwell.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("stepwell")
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
