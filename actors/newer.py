"""What a newer version of the runtime has written, and this one can't read: it is left where it is, for a newer worker.

Nothing of it is applied, changed or buried. It is said once and counted, and not looked at again while the partition is
ours; whoever owns it next finds it there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from stepwell.core.formats import FORMAT, entry_format, row_format
from stepwell.metrics.saying import say

__all__ = ["Newer"]

logger = logging.getLogger("stepwell.newer")
_SHOWN: Final = {"row": "row of execution", "entry": "entry", "ingress": "entry"}


class Newer:
    """For one thread; `count` may be read by any. `reads`: the newest format that this shard reads."""

    def __init__(self, reads: int = FORMAT) -> None:
        self.reads = reads
        self.count = 0
        """Entries and rows of our partitions that are left alone."""
        self._entries: dict[int, set[str]] = {}
        self._rows: dict[int, dict[str, bool]] = {}  # by partition: whether its last owner's end was a clean one
        self._said: set[tuple[str, int]] = set()

    def has_entry(self, partition: int, entry_id: str) -> bool:
        """Whether that inbox entry is left alone."""
        return entry_id in self._entries.get(partition, ())

    def has_row(self, partition: int, execution_id: str) -> bool:
        """Whether the row of that execution is left alone."""
        return execution_id in self._rows.get(partition, ())

    def entry(self, partition: int, entry_id: str, fields: Mapping[str, bytes]) -> bool:
        """Whether an inbox entry is of a newer format; then it is left alone from now on."""
        found = entry_format(fields)
        if found is None or found <= self.reads:
            return False
        self.leave_entry(partition, entry_id)
        self.say("entry" if partition >= 0 else "ingress", entry_id, found)
        return True

    def leave_entry(self, partition: int, entry_id: str) -> None:
        """That entry is for a row which is left alone."""
        entries = self._entries.setdefault(partition, set())
        self.count += entry_id not in entries
        entries.add(entry_id)

    def row(self, partition: int, execution_id: str, fields: Mapping[str, bytes], clean: bool) -> bool:
        """Whether a row is of a newer format; then it is left alone from now on. `clean`: nothing of that execution can
        have been interrupted."""
        found = row_format(fields)
        rows = self._rows.get(partition, {})
        if found <= self.reads:
            self.count -= rows.pop(execution_id, None) is not None
            return False
        self.count += execution_id not in rows
        self._rows.setdefault(partition, rows)[execution_id] = clean
        self.say("row", execution_id, found)
        return True

    def unmet(self) -> set[int]:
        """Partitions in which an earlier owner's end may have interrupted what only a newer one can see to."""
        return {partition for partition, rows in self._rows.items() if not all(rows.values())}

    def forget(self, partition: int) -> None:
        """It is not ours any more."""
        self.count -= len(self._entries.pop(partition, ())) + len(self._rows.pop(partition, ()))

    def say(self, kind: str, name: str, found: int) -> None:
        """Tell people, once for each kind and format."""
        if (kind, found) not in self._said:
            self._said.add((kind, found))
            say(
                logger,
                "LeftAlone",
                "%s %s has format %d, and this version reads up to %d: it and all like it are left alone, until a newer"
                " worker owns them; upgrade this one",
                _SHOWN[kind],
                name,
                found,
                self.reads,
                kind=kind,
                entry=None if kind == "row" else name,
                execution=name if kind == "row" else None,
            )
