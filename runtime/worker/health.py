"""Why a worker is not alive or not ready, in the words of /healthz and /readyz."""

from __future__ import annotations

from typing import Final

__all__ = ["NO_PARTITION", "silence"]

SILENCE_SECONDS_MAX: Final = 10.0
NO_PARTITION: Final = "no partition is owned: this has just begun, stands by, or can't reach Redis"
"""Why who owns nothing is not ready."""


def silence(seconds: float) -> str:
    """What is wrong with a lease thread that came round so long ago; empty where it lives."""
    return (
        f"the thread that renews leases has not come round for {seconds:.1f} s" if seconds > SILENCE_SECONDS_MAX else ""
    )
