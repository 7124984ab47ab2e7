"""Looks straight into the fake server's memory: what a check reads costs no command, and changes nothing."""

from __future__ import annotations

import math
from typing import Any

import fakeredis

from stepwell.core.status import STATUSES
from stepwell.store.keys import Keys

Row = dict[str, bytes]


class Peek:
    """What the server holds at this moment."""

    def __init__(self, server: fakeredis.FakeServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    def _value(self, key: str) -> Any:
        item = self._server.dbs[0]._dict.get(key.encode())
        return None if item is None else item.value

    def row(self, execution_id: str) -> Row:
        """An execution's row, as `World.row` has it."""
        found = self._value(self._keys.row(execution_id))
        return {} if found is None else {name.decode(): value for name, value in found._values.items()}

    def field(self, execution_id: str, name: str) -> bytes | None:
        """One field of a row."""
        found = self._value(self._keys.row(execution_id))
        return None if found is None else found._values.get(name.encode())

    def lists(self, execution_id: str) -> list[str]:
        """The statuses under which an execution is listed."""
        by = self._keys.parts[self._keys.partition_of(execution_id)].by
        name = execution_id.encode()
        return [status for status in STATUSES if (found := self._value(by[status])) is not None and name in found]

    def places(self, execution_id: str) -> dict[str, float]:
        """On which lists an execution stands, and by which time (ms)."""
        part = self._keys.parts[self._keys.partition_of(execution_id)]
        prefixes = tuple(each.encode() for each in (*part.by.values(), part.flow, part.attribute, part.error))
        name = execution_id.encode()
        lists = {key: item.value for key, item in self._server.dbs[0]._dict.items() if key.startswith(prefixes)}
        return {key.decode(): found.get(name) for key, found in lists.items() if name in found}

    def backing_off(self, execution_id: str) -> list[tuple[str, float]]:
        """Under which flows an execution is listed as backing off, and until when (ms)."""
        part = self._keys.parts[self._keys.partition_of(execution_id)]
        flows = self._value(part.backoff)
        found: list[tuple[str, float]] = []
        for flow in sorted(each.decode() for each in flows or ()):
            due = self._value(part.backoff_of + flow).get(execution_id.encode())
            if due is not None:
                found.append((flow, due))
        return found

    def live(self, execution_id: str) -> float | None:
        """When the index says that it is due next, in ms."""
        found = self._value(self._keys.live(self._keys.partition_of(execution_id)))
        return None if found is None else found.get(execution_id.encode())

    def due_after(self, partition: int, after: float) -> float:
        """The first time in ms after that at which something of a partition is due; infinite, if there is none."""
        found = self._value(self._keys.live(partition))
        scores = () if found is None else found._bylex.values()
        return min((score for score in scores if score > after), default=math.inf)

    def entered(self) -> int:
        """How many entries lie in the ingress."""
        found = self._value(self._keys.ingress)
        return 0 if found is None else len(found._ids)

    def lease(self, partition: int) -> str:
        """Who may write a partition; '' where nobody may."""
        key = self._keys.lease(partition).encode()
        item = self._server.dbs[0]._dict.get(key)
        if item is None or (item.expireat is not None and item.expireat < self._server.dbs[0].time):
            return ""
        return str(item.value.decode())

    def epoch(self, partition: int) -> str:
        """What is known of the last grant."""
        found = self._value(self._keys.epoch(partition))
        return "" if found is None else str(found.decode())

    def unread(self, partition: int, after: str) -> bool:
        """Whether an inbox has an entry behind that one."""
        found = self._value(self._keys.inbox(partition))
        if found is None or not found._ids:
            return False
        last = found._ids[-1]
        at, _, number = after.partition("-")
        return (last.ts, last.seq) > (int(at), int(number or 0))

    def addressed(self) -> set[str]:
        """The executions for which something lies in an inbox."""
        found: set[str] = set()
        for part in self._keys.parts:
            stream = self._value(part.inbox)
            for fields in () if stream is None else stream._values_dict.values():
                pairs = dict(zip(fields[::2], fields[1::2], strict=True))
                found.add(pairs.get(b"execution", b"").decode(errors="replace"))
        return found
