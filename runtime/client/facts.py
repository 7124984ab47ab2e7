"""What a client knows of its namespace: how many partitions it has, who works in it, and what time it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stepwell.client.moves import Conversation, ask
from stepwell.client.repeats import Repeats
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreUnfit
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.keys import MAX_PARTITIONS, Keys
from stepwell.store.namespace import FORMAT, durability_of
from stepwell.store.queries import Query
from stepwell.store.replies import items_of, number, text, time_us
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts
from stepwell.store.workers import heartbeats_of, living_of

__all__ = ["Facts", "NamespaceView", "Worker"]

# Heartbeats change every few seconds: asking for them at each start would double its cost.
FRESH_SECONDS: Final = 5.0

Worker = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Facts:
    """One reading of the namespace. `server_ms` is the server's time when it was made, `at` our monotonic seconds."""

    keys: Keys
    workers: Sequence[Worker]
    server_ms: int
    at: float
    durability: Durability = RELAXED


class NamespaceView:
    """Reads the facts when they are needed, and keeps them for a while. Threads may share it."""

    def __init__(
        self, namespace: str, partitions: int | None, clock: Clock, durability: Durability | None = None
    ) -> None:
        self._wanted = partitions
        self._durability = durability
        self._blank = Keys(namespace, partitions or DEFAULT_PARTITIONS)
        self._clock = clock
        self._facts: Facts | None = None
        self.scripts = Scripts()

    def keys(self) -> Conversation[Keys]:
        """The namespace's keys; its number of partitions never changes, so they are asked for once."""
        if self._facts is None:
            self._facts = yield from self._ask()
        return self._blank if self._facts is None else self._facts.keys

    def durability(self) -> Durability:
        """When a write counts as acknowledged: as asked for, else as the namespace was found to have it."""
        return self._durability or (RELAXED if self._facts is None else self._facts.durability)

    def recent(self) -> Conversation[Facts]:
        """Facts that are at most `FRESH_SECONDS` old; a namespace that has not been made is made."""
        facts = self._facts
        if facts is not None and self._clock.monotonic() - facts.at < FRESH_SECONDS:
            return facts
        return (yield from self.read())

    def read(self) -> Conversation[Facts]:
        """The facts of this moment; a namespace that has not been made is made.

        Raises StoreUnfit where it is not what this client expects.
        """
        facts = yield from self._ask()
        if facts is None:
            # Whoever comes first settles the number of partitions; the secret is for workers to make.
            meta = self._blank.meta
            settle: list[Command] = [
                ["HSETNX", meta, "format", FORMAT],
                ["HSETNX", meta, "partitions", self._blank.partitions],
            ]
            facts = yield from ask(self._query(settle))
        if facts is None:
            raise StoreUnfit(f"{self._blank.meta} in Redis is damaged: it keeps no number of partitions")
        self._facts = facts
        return facts

    def time_ms(self) -> int:
        """The namespace's time now, by the facts that were read last; 0 where there were none."""
        return 0 if self._facts is None else self.now_ms(self._facts)

    def now_ms(self, facts: Facts) -> int:
        """The namespace's time now, as far as these facts tell."""
        return facts.server_ms + int((self._clock.monotonic() - facts.at) * 1000)

    def _ask(self) -> Conversation[Facts | None]:
        return ask(self._query([]), Repeats(met=self._facts is not None))

    def _query(self, first: list[Command]) -> Query[Facts | None]:
        blank = self._blank
        commands: list[Command] = [
            *first,
            ["HMGET", blank.meta, "format", "partitions", "durability"],
            ["TIME"],
            ["HGETALL", blank.workers],
        ]

        def parse(raws: Sequence[object]) -> Facts | None:
            meta, time, beats = raws[-3:]
            format_, partitions, durability = items_of(meta)
            keys = self._checked(format_, partitions)
            now = -(-time_us(time) // 1000)
            if keys is None:
                return None
            living = living_of(heartbeats_of(beats), now)
            return Facts(keys, living, now, self._clock.monotonic(), durability_of(keys, durability))

        return Query(commands, parse)

    def _checked(self, format_: object, partitions: object) -> Keys | None:
        """The fitting keys; None for a namespace that has not been made."""
        name = self._blank.namespace
        try:
            found, made_by = number(partitions), number(format_)
        except ValueError:
            found, made_by = -1, 0
        if made_by > FORMAT:
            raise StoreUnfit(
                f"the namespace {name!r} has format {made_by}, made by a newer version of Stepwell; "
                f"this one knows format {FORMAT}: upgrade it"
            )
        if partitions is None:
            return None
        if not 1 <= found <= MAX_PARTITIONS:
            raise StoreUnfit(f"{self._blank.meta} in Redis is damaged: it says {text(partitions)!r:.80} partitions")
        if self._wanted is not None and found != self._wanted:
            raise StoreUnfit(
                f"the namespace {name!r} was made with {found} partitions, not {self._wanted}; "
                f"set partitions to {found}, or use another namespace"
            )
        return self._blank if found == self._blank.partitions else Keys(name, found)
