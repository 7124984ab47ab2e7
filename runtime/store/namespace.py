"""The facts of a namespace that must never change: its format, its partition count and its secret. And one that may,
while no worker lives: its durability, by which all who write agree on what an acknowledgement is worth.

They are in `ns:meta`. Whoever comes first writes them, field by field only where there is none, so that two who open
a new namespace at the same moment agree. The secret is what idempotency keys are derived from: with another one, or
with other partitions, every promise would be void, so a difference is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import redis
from msgspec.structs import replace

from stepwell.core.errors import StoreUnfit, UsageError
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.store.durability import RELAXED, Durability, parse_durability
from stepwell.store.keys import MAX_PARTITIONS, Keys
from stepwell.store.leases import server_time_ms
from stepwell.store.link import Link
from stepwell.store.replies import items_of, number, text
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts
from stepwell.store.workers import heartbeats_of, living_of

__all__ = ["FORMAT", "SECRET_BYTES", "Namespace", "durability_of", "open_namespace", "remember"]

FORMAT: Final = 1
SECRET_BYTES: Final = 32


class Namespace(msgspec.Struct, frozen=True):
    """An opened namespace. `secret` is 256 bits; it does not show in a repr."""

    keys: Keys
    secret: bytes
    partitions: int
    created_ms: int
    durability: Durability = RELAXED

    def __repr__(self) -> str:
        return f"Namespace({self.keys.namespace!r}, partitions={self.partitions}, created_ms={self.created_ms})"


def open_namespace(
    client: redis.Redis,
    namespace: str,
    partitions: int | None = DEFAULT_PARTITIONS,
    secret: bytes | None = None,
    *,
    new_secret: Callable[[], bytes],
    durability: Durability | None = None,
) -> Namespace:
    """Opens a namespace, or makes it: with `secret` or else a new one, and with that many partitions.

    `partitions=None` and `durability=None` take whatever the namespace has. Another durability becomes the namespace's,
    unless workers live that write with the one before. Raises StoreUnfit where something differs from what is asked
    for, or where a newer version made it; LinkDown, StoreRefused or StoreError as Link does.
    """
    if secret is not None and len(secret) != SECRET_BYTES:
        raise StoreUnfit(f"the namespace secret must have {SECRET_BYTES} bytes, got {len(secret)}")
    keys = Keys(namespace, DEFAULT_PARTITIONS if partitions is None else partitions)
    link = Link(client, keys, Scripts())
    stored = _read(link, keys)
    if None in stored:
        # Checked first, so that a newer namespace is left alone.
        _check_format(keys, stored[0])
        now = server_time_ms(link)
        fresh = Namespace(keys, secret or new_secret(), keys.partitions, now, durability or RELAXED)
        _write(link, fresh)
        stored = _read(link, keys)
    found = _checked(keys, stored, partitions, secret)
    if durability is None or durability == found.durability:
        return found
    _change_durability(link, found, durability)
    return replace(found, durability=durability)


def remember(link: Link, namespace: Namespace) -> bool:
    """Writes the facts back where Redis lost them (then True). Raises StoreUnfit where Redis has others by now."""
    written = _write(link, namespace)
    _checked(namespace.keys, _read(link, namespace.keys), namespace.partitions, namespace.secret)
    return written


def _write(link: Link, facts: Namespace) -> bool:
    values: tuple[tuple[str, str | int], ...] = (
        ("format", FORMAT),
        ("partitions", facts.partitions),
        ("secret", facts.secret.hex()),
        ("created", facts.created_ms),
        ("durability", str(facts.durability)),
    )
    commands: list[Command] = [["HSETNX", facts.keys.meta, name, value] for name, value in values]
    return any(number(raw) for raw in link.call(commands))


def _read(link: Link, keys: Keys) -> list[object]:
    (raw,) = link.call([["HMGET", keys.meta, "format", "partitions", "secret", "created", "durability"]])
    return items_of(raw)


def _check_format(keys: Keys, raw: object) -> None:
    found = _whole(keys, "format", raw) if raw is not None else FORMAT
    if found > FORMAT:
        raise StoreUnfit(
            f"the namespace {keys.namespace!r} has format {found}, made by a newer version of Stepwell; "
            f"this one knows format {FORMAT}: upgrade it"
        )


def _checked(keys: Keys, stored: list[object], partitions: int | None, secret: bytes | None) -> Namespace:
    name = keys.namespace
    _check_format(keys, stored[0])
    found = _whole(keys, "partitions", stored[1])
    if partitions is not None and found != partitions:
        raise StoreUnfit(
            f"the namespace {name!r} was made with {found} partitions, not {partitions}; "
            f"set partitions to {found}, or use another namespace"
        )
    if not 1 <= found <= MAX_PARTITIONS:
        raise StoreUnfit(f"the namespace {name!r} claims {found} partitions; {keys.meta} in Redis is damaged")
    known = _secret_of(keys, stored[2])
    if secret is not None and known != secret:
        raise StoreUnfit(
            f"the namespace {name!r} has another secret than the one given here, so idempotency keys would change; "
            "give the secret it was made with, or use another namespace"
        )
    fitting = keys if found == keys.partitions else Keys(name, found)
    return Namespace(fitting, known, found, _whole(keys, "created", stored[3]), durability_of(keys, stored[4]))


def durability_of(keys: Keys, raw: object) -> Durability:
    """The durability in `ns:meta`; relaxed where an older version made the namespace."""
    if raw is None:
        return RELAXED
    try:
        return parse_durability(text(raw))
    except UsageError:
        raise StoreUnfit(f"{keys.meta} in Redis is damaged: its 'durability' is {text(raw)!r:.80}") from None


def _change_durability(link: Link, space: Namespace, durability: Durability) -> None:
    keys, before = space.keys, space.durability
    (beats,) = link.call([["HGETALL", keys.workers]])
    living = living_of(heartbeats_of(beats), server_time_ms(link))
    if living:
        raise StoreUnfit(
            f"the workers of namespace {keys.namespace!r} that live write with durability {before}, not {durability}:"
            f" stop them first (the last one left a sign of life a moment ago), or use {before} too"
        )
    link.call([["HSET", keys.meta, "durability", str(durability)]])


def _whole(keys: Keys, field: str, raw: object) -> int:
    try:
        return number(raw)
    except ValueError:
        raise StoreUnfit(f"{keys.meta} in Redis is damaged: its {field!r} is {text(raw)!r:.80}, not a number") from None


def _secret_of(keys: Keys, raw: object) -> bytes:
    try:
        known = bytes.fromhex(text(raw))
    except ValueError:
        known = b""
    if len(known) != SECRET_BYTES:
        raise StoreUnfit(f"{keys.meta} in Redis is damaged: its 'secret' is not {SECRET_BYTES} bytes in hex")
    return known
