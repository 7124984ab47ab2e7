"""What callers ask and change without owning anything: starting, describing and listing executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import redis

from stepwell.core.errors import StoreError
from stepwell.store import letters, queries
from stepwell.store.keys import Keys
from stepwell.store.letters import Letter
from stepwell.store.link import Link, StoreRefused
from stepwell.store.queries import Outcome, Query
from stepwell.store.requests import Broken, Create, Created, Exists, Refused
from stepwell.store.scripts import Scripts

__all__ = ["Catalog", "Letter", "Outcome"]

T = TypeVar("T")


class Catalog:
    """Executions as callers see them. Raises LinkDown, StoreRefused or StoreError."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._keys = keys

    def create(self, request: Create) -> Created | Exists:
        """Makes a queued execution, or tells what holds the id. May be repeated after LinkDown."""
        (reply,) = self._link.execute([request])
        if isinstance(reply, Created | Exists):
            return reply
        if isinstance(reply, Refused):
            raise StoreRefused(reply.reason, reply.kind)
        reason = reply.message if isinstance(reply, Broken) else repr(reply)
        raise StoreError(f"execution {request.execution_id} could not be created: {reason}")

    def row(self, execution_id: str) -> dict[str, bytes]:
        """All fields of an execution's row; empty where there is none."""
        return self._ask(queries.row(self._keys, execution_id))

    def rows(self, execution_ids: Iterable[str]) -> list[dict[str, bytes]]:
        """The same for many, in one round trip."""
        return self._ask(queries.rows(self._keys, execution_ids))

    def heads(self, execution_ids: Iterable[str], names: Sequence[str]) -> list[dict[str, bytes]]:
        """Some fields of many rows, in one round trip; a field that a row lacks is left out."""
        return self._ask(queries.heads(self._keys, execution_ids, names))

    def outcome(self, partition: int, command_id: str) -> Outcome | None:
        """How a command ended; None while it waits, and again an hour after it ended."""
        return self._ask(queries.outcome(self._keys, partition, command_id))

    def dead(self, limit: int) -> list[Letter]:
        """The newest dead letters of the ingress and all partitions, newest first."""
        before = dict.fromkeys(letters.sources(self._keys), "+")
        pages = self._ask(letters.pages(self._keys, before, limit))
        return letters.newest(pages, limit)

    def counts(self) -> dict[str, int]:
        """How many executions there are of each status."""
        return self._ask(queries.counts(self._keys))

    def _ask(self, query: Query[T]) -> T:
        return query.parse(self._link.call(query.commands))
