"""The ingress: one stream into which any program, in any language, may XADD what it wants started or told.

A consumer group shares its entries among the shards. An entry stays in the stream until its effect is in Redis; only
then is it removed. Whoever takes one up and dies leaves it pending, and another claims it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from stepwell.core.errors import StoreError
from stepwell.store.inbox import START
from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown, StoreRefused, block_ms_max
from stepwell.store.replies import (
    Broken,
    Buried,
    Reply,
    entries_of,
    items_of,
    number,
    order,
    pairs_of,
    streams_of,
    text,
)
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["GROUP", "START", "BuryIngress", "IngressEntry", "IngressStore"]

GROUP: Final = "stepwell"
# How many entries are looked at in one search for those that nobody holds.
SEARCH: Final = 200


class IngressEntry(msgspec.Struct):
    """One entry. Anyone may write to the stream, so any field may be missing or odd; a removed entry has none."""

    entry_id: str
    fields: dict[str, bytes]


class BuryIngress(msgspec.Struct):
    """Moves an entry that can't be taken in to the ingress' dead letters; `kind` is a word for `reason`."""

    entry_id: str
    kind: str
    reason: str
    now_ms: int

    def args(self, keys: Keys, scripts: Scripts) -> Command:
        """The command."""
        return [
            "EVALSHA",
            scripts.dead_letter,
            2,
            keys.ingress_dead,
            keys.ingress,
            "",
            self.entry_id,
            self.kind,
            self.reason,
            self.now_ms,
            "",
            "",
            GROUP,
        ]

    def parse(self, raw: object) -> Reply:
        """Buried."""
        if raw in (b"OK", b"DUP"):
            return Buried(dup=raw == b"DUP")
        return Broken(f"the server answered {raw!r:.200} to the burial of {self.entry_id}")


class IngressStore:
    """Reads the ingress as one consumer of its group. Raises LinkDown, StoreRefused or StoreError."""

    def __init__(self, link: Link, consumer: str) -> None:
        self._link = link
        self._keys = link.keys
        self._scripts = link.scripts
        self._consumer = consumer
        self.block_ms_max = block_ms_max(link.client)
        """The longest that `read` blocks: longer would look like a dead connection."""

    def ensure(self) -> None:
        """Makes the stream and its group where they are not there; what lies in the stream already is for us."""
        try:
            self._link.call([["XGROUP", "CREATE", self._keys.ingress, GROUP, "0", "MKSTREAM"]])
        except StoreError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def read(self, block_ms: int | None, count: int) -> list[IngressEntry]:
        """Entries that nobody has taken up; waits up to `block_ms` for the first one (None does not wait)."""
        command: Command = ["XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count]
        if block_ms is not None:
            # BLOCK 0 would wait for ever.
            command += ["BLOCK", max(1, min(block_ms, self.block_ms_max))]
        return self._read([*command, "STREAMS", self._keys.ingress, ">"])

    def mine(self, after: str, count: int) -> list[IngressEntry]:
        """Entries that this consumer took up and has not finished, after an id (`START` for all)."""
        command: Command = ["XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count]
        return self._read([*command, "STREAMS", self._keys.ingress, after])

    def claim(self, idle_ms: int, count: int) -> list[IngressEntry]:
        """Takes over entries that others took up so long ago that they won't finish them."""
        key = self._keys.ingress
        # By their ids, and read then: with the entries, Redis 6.2 does not say which ones are there no more.
        command: Command = ["XAUTOCLAIM", key, GROUP, self._consumer, idle_ms, START, "COUNT", count, "JUSTID"]
        ids = [text(each) for each in items_of(items_of(self._call([command])[0])[1])]
        found = self._link.call([["XRANGE", key, each, each] for each in ids]) if ids else []
        return [IngressEntry(each, dict(entries_of(raw)).get(each, {})) for each, raw in zip(ids, found, strict=True)]

    def adopt(self) -> list[IngressEntry]:
        """Takes up entries that were delivered to somebody and belong to nobody: their consumer was removed."""
        key = self._keys.ingress
        # In this order: what is finished or delivered meanwhile is not taken for an orphan, or is found to be gone.
        lying, groups, pending = self._call(
            [
                ["XRANGE", key, "-", "+", "COUNT", SEARCH],
                ["XINFO", "GROUPS", key],
                ["XPENDING", key, GROUP, "-", "+", 10 * SEARCH],
            ]
        )
        delivered = next((_facts(each)["last-delivered-id"] for each in items_of(groups) if _is_ours(each)), START)
        held = {text(items_of(each)[0]) for each in items_of(pending)}
        if len(held) >= 10 * SEARCH:
            return []
        orphans = [
            entry_id
            for entry_id, _ in entries_of(lying)
            if entry_id not in held and order(entry_id) <= order(text(delivered))
        ]
        if not orphans:
            return []
        (raw,) = self._call([["XCLAIM", key, GROUP, self._consumer, 0, *orphans, "FORCE"]])
        return [IngressEntry(*entry) for entry in entries_of(raw)]  # XCLAIM answers nil for a removed one

    def oldest(self) -> str | None:
        """The id of the oldest entry that is not finished."""
        (raw,) = self._call([["XRANGE", self._keys.ingress, "-", "+", "COUNT", 1]])
        return next((entry_id for entry_id, _ in entries_of(raw)), None)

    def finish(self, entry_ids: Sequence[str]) -> None:
        """Removes entries whose effects are in Redis. May be repeated."""
        if entry_ids:
            key = self._keys.ingress
            # Removed first: what is removed and still pending is found out; the reverse would lie there for ever.
            self._call([["XDEL", key, *entry_ids], ["XACK", key, GROUP, *entry_ids]])

    def idlers(self, idle_ms: int) -> list[str]:
        """Other consumers that have not been heard of for so long."""
        (raw,) = self._call([["XINFO", "CONSUMERS", self._keys.ingress, GROUP]])
        found = [_facts(each) for each in items_of(raw)]
        return [
            text(each["name"])
            for each in found
            if text(each["name"]) != self._consumer and number(each["idle"]) >= idle_ms
        ]

    def forget(self, consumer: str) -> bool:
        """Removes a consumer that has no entries; False where it has some."""
        (raw,) = self._call([["EVALSHA", self._scripts.ingress_forget, 1, self._keys.ingress, GROUP, consumer]])
        return number(raw) == 1

    def leave(self) -> None:
        """Removes this consumer, unless it has entries: another one claims them then, and removes it."""
        self.forget(self._consumer)

    def _read(self, command: Command) -> list[IngressEntry]:
        (raw,) = self._call([command])
        return [IngressEntry(*entry) for _, entries in streams_of(raw) for entry in entries]

    def _call(self, commands: Sequence[Command]) -> list[object]:
        """Somebody may have removed the stream or its group: then it is made again, and asked once more."""
        try:
            return self._link.call(commands)
        except (LinkDown, StoreRefused):
            raise
        except StoreError as error:
            if not any(
                sign in str(error) for sign in ("NOGROUP", "UNBLOCKED", "requires the key to exist", "no such key")
            ):
                raise
        self.ensure()
        return self._link.call(commands)


def _facts(raw: object) -> dict[str, object]:
    """What XINFO tells of a group or of a consumer."""
    return {text(name): value for name, value in pairs_of(raw)}


def _is_ours(group: object) -> bool:
    return text(_facts(group).get("name")) == GROUP
