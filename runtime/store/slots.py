"""Which master of a Redis Cluster holds which key: pure bookkeeping over what the nodes say."""

from __future__ import annotations

import binascii
from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from stepwell.store.replies import items_of, number, text
from stepwell.store.requests import Command

__all__ = ["SLOTS", "Address", "SlotMap", "key_of", "slot_of"]

SLOTS: Final = 16384

Address: TypeAlias = tuple[str, int]
"""Host and port."""

_KEYLESS: Final = frozenset(
    {"CLIENT", "CLUSTER", "CONFIG", "DBSIZE", "ECHO", "INFO", "PING", "PUBLISH", "ROLE", "SCRIPT", "TIME", "WAIT"}
    | {"WAITAOF", "FLUSHALL"}
)
_SUBCOMMANDS: Final = frozenset({"MEMORY", "OBJECT", "XGROUP", "XINFO"})


def slot_of(key: str | bytes) -> int:
    """The slot of a key: of its hash tag, where it has one."""
    raw = key.encode() if isinstance(key, str) else key
    begin = raw.find(b"{") + 1
    if begin:
        end = raw.find(b"}", begin)
        if end > begin:
            raw = raw[begin:end]
    return binascii.crc_hqx(raw, 0) % SLOTS


def key_of(command: Command) -> str | bytes | None:
    """The first key of a command; None where it has none."""
    name = command[0]
    if name in ("EVALSHA", "EVAL"):
        return _named(command[3]) if number(command[2]) else None
    if name in _KEYLESS or len(command) < 2:
        return None
    if name in ("XREAD", "XREADGROUP"):
        return _named(command[command.index("STREAMS") + 1])
    return _named(command[2] if name in _SUBCOMMANDS else command[1])


def _named(key: str | bytes | int) -> str | bytes:
    return str(key) if isinstance(key, int) else key


class SlotMap:
    """Who serves which slot, as CLUSTER SLOTS said, corrected by what MOVED told since."""

    def __init__(self, ranges: Collection[tuple[int, int, Address]]) -> None:
        ordered = sorted(ranges)
        self._starts = [first for first, _, _ in ordered]
        self._ranges = ordered
        self._moved: dict[int, Address] = {}
        self.masters: tuple[Address, ...] = tuple(dict.fromkeys(address for _, _, address in ordered))
        """All masters that serve slots, in the order of their slots."""

    @classmethod
    def read(cls, raw: object, asked: Address) -> SlotMap:
        """From the reply to CLUSTER SLOTS; a node that does not know its own host has the one that was `asked`."""
        ranges = []
        for entry in items_of(raw):
            first, last, master = items_of(entry)[:3]
            host, port = items_of(master)[:2]
            ranges.append((number(first), number(last), (text(host).replace("?", "") or asked[0], number(port))))
        return cls(ranges)

    def moved(self, slot: int, address: Address) -> None:
        """A node has said that a slot is served elsewhere."""
        self._moved[slot] = address
        if address not in self.masters:
            self.masters += (address,)

    def master_of(self, slot: int) -> Address | None:
        """Who serves a slot; None where nobody is known to."""
        found = self._moved.get(slot) if self._moved else None
        if found is None:
            place = bisect_right(self._starts, slot) - 1
            if place >= 0 and slot <= self._ranges[place][1]:
                found = self._ranges[place][2]
        return found

    @property
    def unserved(self) -> int:
        """How many slots no master serves."""
        return SLOTS - sum(last - first + 1 for first, last, _ in self._ranges)

    def key_at(self, master: Address, prefix: str) -> str | None:
        """A key with this prefix that a master serves; None where it is not found soon."""
        names = (f"{prefix}:{number}" for number in range(SLOTS * 4))
        return next((name for name in names if self.master_of(slot_of(name)) == master), None)

    def any_master(self, avoided: Collection[Address] = ()) -> Address | None:
        """The first master in the order of slots that is not to be avoided: the same one for everybody."""
        usable = [address for address in self.masters if address not in avoided]
        return next(iter(usable or self.masters), None)

    def route(self, commands: Sequence[Command], avoided: Collection[Address]) -> list[Address | None]:
        """Where each command goes; one without a key to `any_master`."""
        keys = [key_of(command) for command in commands]
        home = self.any_master(avoided)
        return [home if key is None else self.master_of(slot_of(key)) for key in keys]
