"""The right to write partitions: granted under growing epochs, renewed, released, taken from the dead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import redis

from stepwell.core.errors import StoreError
from stepwell.store.keys import Keys
from stepwell.store.link import Link
from stepwell.store.replies import Broken, Refused, items_of, number, text, time_us
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts
from stepwell.store.suspects import NO_SUSPECTS, Suspects, suspects_of
from stepwell.store.troubles import kind_of_refusal

__all__ = [
    "TTL_MS",
    "Grant",
    "Held",
    "LeaseHolder",
    "LeaseStore",
    "Lost",
    "Renewed",
    "Unanswered",
    "parse_lease",
    "server_time_ms",
]

TTL_MS: Final = 10_000
"""How long a lease is good for when it is not renewed."""


class Grant(msgspec.Struct, frozen=True):
    """A partition is ours. `value` fences every write, `clean` says that the holder before released it, `boxed` that it
    died and its black box was read: only those steps were interrupted that `suspects` has.

    `seq` is the partition's commit counter at that moment.
    """

    partition: int
    epoch: int
    value: str
    clean: bool
    seq: int
    boxed: bool = False
    suspects: Suspects = NO_SUSPECTS


class Held(msgspec.Struct, frozen=True):
    """Another one holds the partition, under that lease value."""

    partition: int
    value: str


class Renewed(msgspec.Struct, frozen=True):
    """The lease is good for another TTL. `retaken`: it had vanished, but nobody was granted it since."""

    partition: int
    seq: int
    retaken: bool


class Lost(msgspec.Struct, frozen=True):
    """The lease is no longer ours; `holder` is the one there is, '' for none."""

    partition: int
    holder: str


class Unanswered(msgspec.Struct, frozen=True):
    """Nothing is known of this partition now: its master in a cluster can't be reached, its slot is on the move, or one
    of its keys is a stranger's. `kind` is the word for that (`stepwell.store.troubles`)."""

    partition: int
    reason: str
    kind: str = "refused"


class LeaseHolder(msgspec.Struct, frozen=True):
    """What a lease value says about its holder; `host_info` is `host,boot,pid,start`."""

    owner: str
    epoch: int
    incarnation: str
    host_info: str


def parse_lease(value: str) -> LeaseHolder | None:
    """Takes a lease value apart; None where Stepwell did not write it."""
    parts = value.split("|")
    if len(parts) != 4 or not (parts[1].isascii() and parts[1].isdigit()):
        return None
    return LeaseHolder(parts[0], int(parts[1]), parts[2], parts[3])


class LeaseStore:
    """Leases of many partitions at once, one round trip each call. Raises LinkDown, StoreRefused or StoreError."""

    def __init__(self, client: redis.Redis, keys: Keys, scripts: Scripts) -> None:
        self._link = Link(client, keys, scripts)
        self._keys = keys
        self._scripts = scripts

    def acquire(
        self,
        partitions: Sequence[int],
        owner: str,
        incarnation: str,
        host_info: str,
        ttl_ms: int,
        now_ms: int | None = None,
    ) -> list[Grant | Held | Unanswered]:
        """Asks for partitions; one answer each, in order. Asking again after a lost reply gets the same grants.

        `now_ms` (default: the server's time) only sees to it that epochs grow even when Redis lost the last one.
        """
        for name, given in (("owner", owner), ("incarnation", incarnation), ("host_info", host_info)):
            if not given or "|" in given:
                raise ValueError(f"{name} must be text without '|', got {given!r}")
        now = self.server_time_ms() if now_ms is None else now_ms
        script = self._scripts.lease_acquire
        asked: Command = [now, ttl_ms, owner, incarnation, host_info]
        parts = [self._keys.parts[partition] for partition in partitions]
        raws = self._link.call_each(
            [["EVALSHA", script, 4, part.lease, part.epoch, part.seq, part.suspects, *asked] for part in parts]
        )
        return [
            _unanswered(partition, raw) or _acquired(partition, raw)
            for partition, raw in zip(partitions, raws, strict=True)
        ]

    def renew(self, grants: Sequence[Grant], ttl_ms: int) -> list[Renewed | Lost | Unanswered]:
        """Lengthens leases; one answer each, in order."""
        script = self._scripts.lease_renew
        parts = [self._keys.parts[grant.partition] for grant in grants]
        raws = self._link.call_each(
            [
                ["EVALSHA", script, 3, part.lease, part.epoch, part.seq, grant.value, grant.epoch, ttl_ms, _seen(grant)]
                for grant, part in zip(grants, parts, strict=True)
            ]
        )
        return [
            _unanswered(grant.partition, raw) or _renewed(grant.partition, raw)
            for grant, raw in zip(grants, raws, strict=True)
        ]

    def release(self, grants: Sequence[Grant]) -> list[bool]:
        """Gives leases back, remembering that nothing was interrupted; False where one was not ours any more."""
        parts = [self._keys.parts[grant.partition] for grant in grants]
        raws = self._link.call_ours(
            [
                ["EVALSHA", self._scripts.lease_release, 2, part.lease, part.epoch, grant.value, grant.epoch]
                for grant, part in zip(grants, parts, strict=True)
            ]
        )
        return [_is_ok(raw) for raw in raws]

    def pass_on(self, grants: Sequence[Grant]) -> None:
        """Gives leases back as they were got: what the holder before ours left is for the next one to see to."""
        parts = [self._keys.parts[grant.partition] for grant in grants]
        reap: Command = ["EVALSHA", self._scripts.lease_reap, 3]
        self._link.call_ours(
            [
                [*reap, part.lease, part.epoch, part.suspects, grant.value, grant.epoch, "", _mark(grant), 0]
                for grant, part in zip(grants, parts, strict=True)
            ]
        )

    def free(self, partition: int, value: str) -> bool:
        """Removes a dead process' lease; False where another one holds the partition."""
        lease = self._keys.lease(partition)
        (raw,) = self._link.call([["EVALSHA", self._scripts.lease_free, 1, lease, value]])
        return _is_ok(raw)

    def read(self, partitions: Iterable[int]) -> dict[int, str]:
        """The lease values of those partitions that are held."""
        wanted = list(partitions)
        raws = self._link.call_ours([["GET", self._keys.lease(partition)] for partition in wanted])
        return {partition: text(raw) for partition, raw in zip(wanted, raws, strict=True) if raw is not None}

    def server_time_ms(self) -> int:
        """The server's wall clock in milliseconds since the epoch, rounded down."""
        return server_time_ms(self._link)


def server_time_ms(link: Link) -> int:
    """The server's wall clock in milliseconds since the epoch, rounded down."""
    ask: Command = ["TIME"]
    return time_us(link.call([ask])[0]) // 1000


def _unanswered(partition: int, raw: object) -> Unanswered | None:
    """One partition without an answer holds up no other: its master is away, or one of its keys is a stranger's."""
    if isinstance(raw, Refused):
        return Unanswered(partition, raw.reason, kind_of_refusal(raw.kind))
    return Unanswered(partition, f"partition {partition}: {raw.said}") if isinstance(raw, Broken) else None


def _number(raw: object) -> int | None:
    try:
        return number(raw)
    except ValueError:
        return None


def _no_count(partition: int) -> Unanswered:
    return Unanswered(partition, f"partition {partition}: its key `seq` in Redis holds no number: remove it")


def _acquired(partition: int, raw: object) -> Grant | Held | Unanswered:
    answer = items_of(raw)
    if answer and answer[0] == b"GRANTED":
        left, suspects = answer[3], suspects_of(answer[5])
        epoch, value, seq = number(answer[1]), text(answer[2]), _number(answer[4])
        if seq is None:
            return _no_count(partition)
        return Grant(partition, epoch, value, left == b"clean", seq, left == b"boxed", suspects)
    if answer and answer[0] == b"HELD":
        return Held(partition, text(answer[1]))
    raise StoreError(f"asking for the lease of partition {partition}, the server answered {raw!r:.200}")


def _renewed(partition: int, raw: object) -> Renewed | Lost | Unanswered:
    answer = items_of(raw)
    if answer and answer[0] == b"OK":
        seq = _number(answer[1])
        return _no_count(partition) if seq is None else Renewed(partition, seq, answer[2] == b"1")
    if answer and answer[0] == b"LOST":
        return Lost(partition, text(answer[1]))
    raise StoreError(f"renewing the lease of partition {partition}, the server answered {raw!r:.200}")


def _seen(grant: Grant) -> str:
    return "seen" if grant.clean else ""


def _mark(grant: Grant) -> str:
    return "boxed" if grant.boxed else ""


def _is_ok(raw: object) -> bool:
    return items_of(raw)[:1] == [b"OK"]
