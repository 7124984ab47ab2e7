"""What a shard's own parts observe, as log lines: one for each change, none for what goes on as it should.

Most is told where it is noticed, by whoever knows the whole sentence (`stepwell.metrics.saying`); here is the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from stepwell.actors import store_events as e
from stepwell.actors.store_events import StoreEvent
from stepwell.metrics.logs import LimitedLog
from stepwell.metrics.saying import LEVELS

__all__ = ["ShardLog"]

_logger = logging.getLogger("stepwell.shard")


class ShardLog:
    """Called with each of a shard's observations, from any thread."""

    def __init__(self, logger: logging.Logger = _logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = LimitedLog(logger, monotonic)
        self.tick, self.flush = self._log.tick, self._log.flush
        self._lock = threading.Lock()
        self._to_recover: dict[int, str] = {}
        self._recovered: list[tuple[str, float]] = []

    def __call__(self, event: StoreEvent) -> None:
        """Log it, if it is to be logged here."""
        if type(event).__name__ not in LEVELS:
            return  # only counted: it happens all the time
        match event:
            case e.PartitionGained():
                self._gained(event)
            case e.PartitionGone():
                self._gone(event.partition)
            case e.PartitionRecovered():
                self._seen_to(event.partition, event.seconds)
            case e.DuplicateSuppressed():
                told = f"a repeated {event.kind} had no second effect"
                self._say(event, told, {"execution": event.execution_id}, ("kind", event.kind))
            case e.Healed():
                self._say(event, "row restored from memory: Redis had lost it", {"execution": event.execution_id})
            case e.RowDiverged():
                told = "somebody else has changed a row: what memory has of it is dropped, it is read again"
                self._say(event, told, {"execution": event.execution_id})
            case e.Fenced(lost=False):
                told = "writes met no lease of ours, but the partition is ours still: they are sent again"
                self._say(event, told, {"partition": event.partition})
            case e.SweepFound():
                told = (
                    f"a sweep found what nobody held (inbox entries: {event.entries}, executions: {event.executions})"
                )
                fields = {"entries": event.entries, "executions": event.executions}
                self._say(event, f"{told}: they are taken care of now", fields)
            case e.DeadLettered():
                told = f"dead letter: {event.reason}; to do: stepwell dead list"
                self._say(event, told, {}, ("reason", event.kind))
            case e.StepOverran():
                self._overran(event)
            case e.GuaranteeSeen():
                self._say(event, "the guarantee in force", {**event.labels})

    def _overran(self, event: e.StepOverran) -> None:
        took = f"attempt {event.attempt} took {event.seconds:.1f} s, its timeout is {event.timeout:g} s"
        told = f"{took}: it could not be stopped, its outcome counts"
        fields: dict[str, object] = {
            "execution": event.execution_id,
            "path": event.path,
            "attempt": event.attempt,
            "key": event.key,
            "duration_s": round(event.seconds, 3),
            "timeout_s": event.timeout,
        }
        if event.trace:
            fields["trace"] = event.trace
        self._say(event, told, fields, ("flow", event.flow), ("step", event.step))

    def _gained(self, event: e.PartitionGained) -> None:
        with self._lock:
            if event.cause:
                self._to_recover[event.partition] = event.cause

    def _gone(self, partition: int) -> None:
        with self._lock:
            self._to_recover.pop(partition, None)
        self._tell_recovered()

    def _seen_to(self, partition: int, seconds: float) -> None:
        with self._lock:
            cause = self._to_recover.pop(partition, None)
            if cause is not None:
                self._recovered.append((cause, seconds))
        self._tell_recovered()

    def _tell_recovered(self) -> None:
        """Once all is seen to that was taken over from the dead: in one line, however many partitions."""
        with self._lock:
            if self._to_recover or not self._recovered:
                return
            recovered, self._recovered = self._recovered, []
        longest = max(seconds for _, seconds in recovered)
        fields: dict[str, object] = {"partitions": len(recovered), "duration_s": round(longest, 3)}
        causes = ",".join(sorted({cause for cause, _ in recovered}))
        told = f"recovered: what earlier owners left in {len(recovered)} partitions is seen to"
        self._write("PartitionRecovered", told, fields | {"cause": causes})

    def _say(self, event: StoreEvent, message: str, fields: Mapping[str, object], *more: tuple[str, str]) -> None:
        kind = type(event).__name__
        execution = str(fields.get("execution", ""))
        if self._log.admits(LEVELS[kind], (("event", kind), *more), execution):
            self._write(kind, message, {**fields, **dict(more)})

    def _write(self, kind: str, message: str, fields: dict[str, object]) -> None:
        self._log.write(LEVELS[kind], message, fields | {"event": kind})
