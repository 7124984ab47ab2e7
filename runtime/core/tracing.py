"""Which trace an execution belongs to, and the ids of its spans.

Ids are derived and not minted: an execution outlives its processes, and whichever of them has a hand in it arrives at
the same ids, after a crash, a takeover or a retry too. They derive from what names the execution and its steps; keys
and tokens never derive from a trace.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

import msgspec

from stepwell.core.checkpoint import Checkpoint, retries_of

SAMPLED: Final = 1
RANDOM: Final = 2  # the trace's id was drawn
STATE_CHARS_MAX: Final = 512  # of a `tracestate`; longer ones may be dropped, says W3C Trace Context
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class SpanRef(msgspec.Struct, frozen=True, gc=False):
    """A span of some process, as a `traceparent` names it. `flags`: 1 = sampled."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED

    @property
    def header(self) -> str:
        """The value of a `traceparent` header."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def read_traceparent(text: str) -> SpanRef | None:
    """What a `traceparent` says; None where it is none (then there is no caller, as the standard wants it)."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    return SpanRef(trace_id, span_id, int(found[4], 16)) if trace_id and span_id else None


def bounded_state(tracestate: str) -> str:
    """The `tracestate`, or nothing where it is longer than anybody has to keep."""
    return tracestate if len(tracestate) <= STATE_CHARS_MAX else ""


class ExecutionTrace(msgspec.Struct, frozen=True, gc=False):
    """The trace of an execution. `caller`: the span that started it, None if nobody's.

    `episode` tells what a retry by hand brought back from what failed before: how many of them there were.
    """

    trace_id: int
    caller: SpanRef | None
    state: str
    episode: int


def trace_of(cp: Checkpoint) -> ExecutionTrace:
    """The trace that an execution belongs to: its caller's, else one of its own."""
    caller = read_traceparent(cp.meta.trace) if cp.meta.trace else None
    trace_id = caller.trace_id if caller is not None else _number(b"\0trace", cp.seed, 16)
    return ExecutionTrace(trace_id, caller, cp.meta.trace_state if caller is not None else "", retries_of(cp))


def execution_span(seed: bytes, episode: int) -> int:
    """Id of an execution's span. It has one for each episode, since each of them ends."""
    return _number(f"\0execution\0{episode}".encode(), seed, 8)


def step_span(token: str, episode: int) -> int:
    """Id of a step's span, which has one for each episode that it is open in."""
    return _number(f"step\0{episode}".encode(), token.encode(), 8)


def attempt_span(token: str, attempt: int, interruptions: int) -> int:
    """Id of the span of one run of an attempt: an interrupted one keeps its number and runs again, as another span."""
    return _number(f"attempt\0{attempt}\0{interruptions}".encode(), token.encode(), 8)


def moment_span(seed: bytes, name: str, at_ms: int) -> int:
    """Id of the span of something that happened to an execution at that time."""
    return _number(f"\0{name}\0{at_ms}".encode(), seed, 8)


def _number(what: bytes, key: bytes, size: int) -> int:
    return int.from_bytes(blake2b(what, key=key, digest_size=size).digest(), "big") or 1
