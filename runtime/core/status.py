"""Statuses of executions and of steps, and their named sets."""

from __future__ import annotations

from typing import Final

QUEUED: Final = "queued"
RUNNING: Final = "running"
WAITING: Final = "waiting"
PARKED: Final = "parked"
COMPLETED: Final = "completed"
ERROR: Final = "error"
CANCELLED: Final = "cancelled"

STATUSES: Final = (QUEUED, RUNNING, WAITING, PARKED, COMPLETED, ERROR, CANCELLED)
TERMINAL: Final = frozenset({COMPLETED, ERROR, CANCELLED})
SETTLED: Final = TERMINAL | {PARKED}  # nothing goes on by itself
STATUSES_OF_BACKOFFS: Final = (RUNNING, WAITING)  # of what is parked nothing is tried again, so nothing of it backs off

STEP_READY: Final = "ready"  # would run, but the execution is parked or ended
STEP_RUNNING: Final = "running"  # its start is mirrored: the body may be running
STEP_BACKOFF: Final = "backoff"
STEP_COMPLETED: Final = "completed"
STEP_FAILED: Final = "failed"
STEP_CANCELLED: Final = "cancelled"
OP_WAITING: Final = "waiting"  # timers and signals
OP_TIMED_OUT: Final = "timed_out"

PARK_DIVERGED: Final = "code diverged"
PARK_NOT_DEPLOYED: Final = "not deployed here"
PARK_UNREADABLE: Final = "unreadable row"
PARK_CRASHED: Final = "crashed"
PARK_KILLS_SHARD: Final = "crashes its shard"
PARK_REASONS: Final = (PARK_DIVERGED, PARK_NOT_DEPLOYED, PARK_UNREADABLE, PARK_CRASHED, PARK_KILLS_SHARD)
