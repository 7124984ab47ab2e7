"""What a runner is asked to run."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall


class StepOrder(msgspec.Struct, gc=False):
    """One attempt of one step of an execution in `partition`, declared under `lease`.

    `ready_at`: since when (ms) its body might run.
    `lane`: it has cut short a shard before, or may have: it runs in a process of its own, whatever its isolation.
    """

    partition: int
    lease: str
    call: StepCall[Any]
    context: StepContext
    lane: bool = False
    ready_at: int = 0

    @property
    def isolated(self) -> bool:
        """Whether its body runs in a process of its own."""
        return self.lane or self.call.step.isolation == "process"
