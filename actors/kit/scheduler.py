"""Who runs next: one interface, two implementations.

`ThreadScheduler` is what a shard runs on, `VirtualScheduler` what tests and simulations run on. Both run the same
cells with the same turns and the same timer heap, so what holds under virtual time holds in a shard, apart from what
other threads do meanwhile.
"""

from __future__ import annotations

from stepwell.actors.kit.scheduler_base import OnDeadLetter, Scheduler
from stepwell.actors.kit.scheduler_thread import ThreadScheduler
from stepwell.actors.kit.scheduler_virtual import ActorCrashed, VirtualScheduler

__all__ = ["ActorCrashed", "OnDeadLetter", "Scheduler", "ThreadScheduler", "VirtualScheduler"]
