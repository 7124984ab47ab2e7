"""What suits a process that is a worker and nothing else."""

from __future__ import annotations

import gc


def calm_the_collector() -> None:
    """Collect seldom: a worker holds many long-lived objects and makes few cycles, so full collections take long
    (tens of milliseconds with 10,000 executions) and find little."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
