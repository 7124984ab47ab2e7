"""How an execution's last owner left it, and what brings it back."""

from __future__ import annotations

from typing import Final

import msgspec

from stepwell.core.records import CutShort
from stepwell.store.suspects import Strike

__all__ = ["LEFT_BOXED", "LEFT_CLEAN", "LEFT_UNKNOWN", "Left"]


class Left(msgspec.Struct, frozen=True):
    """`clean`: no step of it can have been interrupted. Else `cut` is what the black box of a dead shard showed; None:
    nobody knows. `suspect`: the store holds something against it; `strike`: shards died on it. `called`: a message
    brings it back.
    """

    clean: bool
    cut: tuple[CutShort, ...] | None = None
    suspect: bool = False
    strike: Strike | None = None
    called: bool = False


LEFT_CLEAN: Final = Left(True)
LEFT_BOXED: Final = Left(False, ())
LEFT_UNKNOWN: Final = Left(False)
