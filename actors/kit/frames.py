"""Where a thread is in the code, as people are told."""

from __future__ import annotations

from types import FrameType

__all__ = ["place_of"]


def place_of(frame: FrameType) -> str:
    """The place at which it is just now: `at FILE:LINE in NAME`."""
    return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
