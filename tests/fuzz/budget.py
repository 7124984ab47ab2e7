"""How many examples a fuzz test tries: a fixed set in `make test`, fresh ones for as long as `make fuzz` is told to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings

SCALE = int(os.environ.get("STEPWELL_FUZZ_SCALE", "0"))
"""0: the fixed set. Else fresh examples, so many times as many."""
PHASES = (Phase.explicit, Phase.generate)  # explaining takes longer than it helps


def fuzz(examples: int, *, steps: int = 50) -> Callable[[Any], Any]:
    """Settings of one fuzz test. `steps`: the most that a state machine takes in one example."""
    return settings(
        max_examples=examples * max(1, SCALE),
        derandomize=not SCALE,
        deadline=None,
        database=None,
        phases=PHASES,
        print_blob=True,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
