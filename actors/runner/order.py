"""What a runner is asked to run."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.flow.context import StepContext
from stepwell.flow.operations import StepCall


class StepOrder(msgspec.Struct, gc=False):
    """One attempt of one step of an execution in `partition`, declared under `lease`."""

    partition: int
    lease: str
    call: StepCall[Any]
    context: StepContext
