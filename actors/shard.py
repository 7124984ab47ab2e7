"""What the actors of one shard share."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from stepwell.actors.afterlife import Afterlife
from stepwell.actors.blackbox import NO_BOX, BlackBox
from stepwell.actors.bus import Bus
from stepwell.actors.holdings import Holdings
from stepwell.actors.kit.ref import AnyRef
from stepwell.actors.mirror import Mirror
from stepwell.actors.newer import Newer
from stepwell.actors.runner import StepRunner
from stepwell.actors.store_events import StoreObserver
from stepwell.core.clock import Clock
from stepwell.core.limits import Limits
from stepwell.flow.attempt import TraceFlags
from stepwell.flow.registry import Registry
from stepwell.store.keys import Keys


@dataclass(slots=True)
class Shard:
    """What the actors of one shard share. Everything in here is injected by the composition root."""

    clock: Clock
    keys: Keys
    secret: bytes
    registry: Registry
    bus: Bus
    holdings: Holdings
    mirror: Mirror
    runner: StepRunner
    observer: StoreObserver
    incarnation: str
    limits: Limits = field(default_factory=Limits)
    box: BlackBox = NO_BOX
    trace_flags: TraceFlags | None = None  # where somebody makes spans
    dispatcher: AnyRef = field(init=False)
    supervisor: AnyRef = field(init=False)
    healer: AnyRef = field(init=False)
    afterlife: Afterlife = field(default_factory=Afterlife)
    newer: Newer = field(default_factory=Newer)
    _commits: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def commit_id(self) -> str:
        """A name for a commit that no other commit has."""
        return f"{self.incarnation}-{next(self._commits)}"
