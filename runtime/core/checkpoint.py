"""The checkpoint: all that is needed to go on. Plain immutable data.

Histories are chains `(field, value, earlier)`: appending shares the earlier part, so a transition costs the
same for the first step and for the five-thousandth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from stepwell.core.records import LeftOpen, Meta, OpenOp, Signal, TerminalError
from stepwell.core.status import TERMINAL

Chain: TypeAlias = "tuple[str, bytes, Chain] | None"
APPLIED_LIMIT = 64
_NOTHING: Mapping[str, OpenOp] = MappingProxyType({})
NONE_LEFT: Mapping[str, LeftOpen] = MappingProxyType({})
NO_SIGNALS: Mapping[int, Signal] = MappingProxyType({})


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """One execution's state.

    `rev` is the revision of the row that the last acknowledged commit left. `seed` and `input` are what tokens
    and the flow are made from; `facts` and `attempts` hold row fields exactly as they were mirrored.
    """

    execution_id: str
    meta: Meta
    input: bytes
    seed: bytes
    status: str
    rev: int
    seq: int = 0
    open: Mapping[str, OpenOp] = _NOTHING
    facts: Chain = None
    attempts: Chain = None
    fact_count: int = 0
    signals: Mapping[int, Signal] = NO_SIGNALS
    signal_seq: int = 0
    applied: tuple[str, ...] = ()
    cancelling: bool = False
    failed_path: str = ""  # the failure that the flow got last, while it has not declared anything since
    left: Mapping[str, LeftOpen] = NONE_LEFT  # what that failure, or a failing gather, left behind
    error: TerminalError | None = None
    failures: tuple[TerminalError, ...] = ()  # terminal errors that a retry superseded
    result: bytes | None = None
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def root(self) -> str:
        """The execution at the top of the family: its own id unless it is a child."""
        return self.meta.root or self.execution_id

    @property
    def terminal(self) -> bool:
        """Whether the execution has ended."""
        return self.status in TERMINAL


def retries_of(cp: Checkpoint) -> int:
    """How often a retry by hand brought the execution back after it had failed; the first failures may be forgotten."""
    return max(len(cp.failures), cp.failures[-1].retry) if cp.failures else 0


def newest_first(chain: Chain) -> Iterator[tuple[str, bytes]]:
    """The (field, value) entries of a chain, the latest first."""
    while chain is not None:
        field, value, chain = chain
        yield field, value


def oldest_first(chain: Chain) -> list[tuple[str, bytes]]:
    """The (field, value) entries of a chain in the order they were appended."""
    entries = list(newest_first(chain))
    entries.reverse()
    return entries
