"""Reading the inboxes of a Redis Cluster: one XREAD each, since no command may span slots.

Nothing here waits: the last XREAD of a round blocks for a few milliseconds on its server, longer while nothing comes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from stepwell.store.keys import Keys
from stepwell.store.replies import Broken, Refused
from stepwell.store.requests import Command

__all__ = ["START", "ScatteredReads"]

# Where a stream begins: reading after it yields the first entry.
START: Final = "0-0"

WAIT_MS: Final = (5, 50)


class ScatteredReads:
    """One round is `commands`, sent together, and `answers`. A partition that gave none is read from the start next."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._asked: list[int] = []
        self._silent: set[int] = set()
        self._wait_ms = WAIT_MS[0]
        self.broken: dict[int, str] = {}
        self.refused: frozenset[int] = frozenset()

    def commands(self, after: Mapping[int, str], block_ms: int | None, count: int) -> list[Command]:
        """One XREAD for each partition; the last blocks, for one whose server has answered before."""
        self._asked = sorted(after, key=lambda partition: partition not in self._silent)
        made: list[Command] = []
        for partition in self._asked:
            last = START if partition in self._silent else after[partition]
            made.append(["XREAD", "COUNT", count, "STREAMS", self._keys.inbox(partition), last])
        if block_ms is not None:
            made[-1][3:3] = ["BLOCK", max(1, min(block_ms, self._wait_ms))]
        return made

    def answers(self, raws: Sequence[object]) -> list[object]:
        """The replies but for those that were refused for now, and those that are none."""
        answered = [not isinstance(raw, Refused | Broken) for raw in raws]
        asked = zip(self._asked, raws, strict=True)
        self.broken = {partition: raw.said for partition, raw in asked if isinstance(raw, Broken)}
        self.refused = frozenset(p for p, raw in zip(self._asked, raws, strict=True) if isinstance(raw, Refused))
        self._silent -= set(self._asked)
        self._silent.update(itertools.compress(self._asked, [not each for each in answered]))
        found = list(itertools.compress(raws, answered))
        self._wait_ms = WAIT_MS[0] if any(found) else min(self._wait_ms * 2, WAIT_MS[1])
        return found
