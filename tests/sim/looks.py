"""What stands in the server of a simulated world, as tests look at it."""

from __future__ import annotations

from typing import Any

import redis

from stepwell.core.records import Outcome, decode_outcome
from stepwell.core.view import view
from stepwell.store import letters, queries
from stepwell.store.catalog import Catalog
from stepwell.store.inbox import InboxStore
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.scripts import Scripts


class Looks:
    """A part of `World`."""

    client: redis.Redis
    keys: Keys
    scripts: Scripts
    replays = 0
    _link: Link

    def outcome(self, execution_id: str, command_id: str) -> Outcome | None:
        partition = self.keys.partition_of(execution_id)
        query = queries.outcome(self.keys, partition, command_id)
        found = query.parse(self._link.call(query.commands))
        return None if found is None else decode_outcome(found.outcome)

    def row(self, execution_id: str) -> dict[str, bytes]:
        query = queries.row(self.keys, execution_id)
        return query.parse(self._link.call(query.commands))

    def show(self, execution_id: str) -> dict[str, Any]:
        return view(execution_id, self.row(execution_id))

    def status(self, execution_id: str) -> str:
        return self.row(execution_id).get("status", b"").decode()

    def names(self) -> set[str]:
        """All keys that there are: most of those that there could be are not, and need no question each."""
        return {name.decode(errors="replace") for name in self.client.keys("*")}

    def statuses(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        names = self.names()
        for part in self.keys.parts:
            for status, key in part.by.items():
                members = self.client.zrange(key, 0, -1) if key in names else ()
                found.setdefault(status, []).extend(member.decode() for member in members)
        return found

    def inbox(self) -> list[dict[str, str]]:
        return self.inbox_of(*range(self.keys.partitions))

    def inbox_of(self, *partitions: int) -> list[dict[str, str]]:
        store = InboxStore(self.client, self.keys, self.scripts)
        return [
            {name: value.decode(errors="replace") for name, value in entry.fields.items()}
            for entry in store.read(dict.fromkeys(partitions, "0-0"), None, 100_000)
        ]

    def dead_letters(self) -> list[dict[str, str]]:
        return [
            {"entry": letter.entry, "kind": letter.kind, "reason": letter.reason, "fields": str(letter.fields)}
            for letter in Catalog(self.client, self.keys, self.scripts).dead(10_000)
        ]

    def replay_letters(self) -> None:
        """Send all dead letters again, the oldest first."""
        for letter in reversed(Catalog(self.client, self.keys, self.scripts).dead(10_000)):
            query = letters.replay(self.keys, self.scripts, letter.source, letter.letter_id)
            query.parse(self._link.call(query.commands))
            self.replays += 1
