"""The Supervisor decides what becomes of an execution's actor that failed."""

from __future__ import annotations

import logging

from stepwell.actors import messages as m
from stepwell.actors import store_events
from stepwell.actors.kit.pooled import PooledActor
from stepwell.actors.kit.supervision import ChildFailed, RestartIntensity
from stepwell.actors.shard import Shard
from stepwell.core.redact import redact
from stepwell.core.status import PARK_CRASHED
from stepwell.metrics.saying import say

logger = logging.getLogger("stepwell.supervisor")
TRACEBACK_CHARACTERS_MAX = 4000


class Supervisor(PooledActor):
    """A failing execution is rebuilt from its row; the third failure in 60 s parks it."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._intensity = RestartIntensity(max_restarts=2, window_seconds=60.0)

    def on_receive(self, message: object) -> None:
        """One message."""
        if isinstance(message, ChildFailed):
            self._child_failed(message)
        else:
            raise TypeError(f"{self} does not know what to do with {message!r}")

    def _child_failed(self, failure: ChildFailed) -> None:
        execution_id = failure.name
        again = self._intensity.record(execution_id, self._shard.clock.monotonic())
        # What a user's code raises may hold an address with its password.
        error = redact(f"{type(failure.error).__name__}: {failure.error}")
        traceback = redact(failure.traceback)
        say(
            logger,
            "ActorFailed",
            "the actor of execution %s failed in %s (%s); %s",
            execution_id,
            failure.where,
            error,
            "it is rebuilt from its row" if again else "it failed too often and is parked",
            traceback=traceback,
            execution=execution_id,
            where=failure.where,
            error=error,
            reason="reloaded" if again else "parked",
        )
        self._shard.observer(store_events.ActorFailed(execution_id, error, not again))
        if not again and isinstance(failure.message, m.CommandMail):
            partition = self._shard.keys.partition_of(execution_id)
            poison = m.BadCommand(execution_id, partition, failure.message, f"it made {error}")
            self._shard.dispatcher.tell(poison)
        park = None if again else m.Park(PARK_CRASHED, traceback[-TRACEBACK_CHARACTERS_MAX:])
        self._shard.dispatcher.tell(m.ActorGone(execution_id, failure.ref, park))
