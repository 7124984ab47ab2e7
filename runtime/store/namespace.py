"""The facts of a namespace that must never change: its format, its partition count and its secret.

They are in `ns:meta`. Whoever comes first writes them, field by field only where there is none, so that two who open
a new namespace at the same moment agree. The secret is what idempotency keys are derived from: with another one, or
with other partitions, every promise would be void, so a difference is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import redis

from stepwell.core.errors import StoreUnfit
from stepwell.core.partition import DEFAULT_PARTITIONS
from stepwell.store.keys import MAX_PARTITIONS, Keys
from stepwell.store.leases import server_time_ms
from stepwell.store.link import Link
from stepwell.store.replies import items_of, number, text
from stepwell.store.requests import Command
from stepwell.store.scripts import Scripts

__all__ = ["FORMAT", "SECRET_BYTES", "Namespace", "open_namespace", "remember"]

FORMAT: Final = 1
SECRET_BYTES: Final = 32


class Namespace(msgspec.Struct, frozen=True):
    """An opened namespace. `secret` is 256 bits; it does not show in a repr."""

    keys: Keys
    secret: bytes
    partitions: int
    created_ms: int

    def __repr__(self) -> str:
        return f"Namespace({self.keys.namespace!r}, partitions={self.partitions}, created_ms={self.created_ms})"


def open_namespace(
    client: redis.Redis,
    namespace: str,
    partitions: int | None = DEFAULT_PARTITIONS,
    secret: bytes | None = None,
    *,
    new_secret: Callable[[], bytes],
) -> Namespace:
    """Opens a namespace, or makes it: with `secret` or else a new one, and with that many partitions.

    `partitions=None` takes whatever the namespace has. Raises StoreUnfit where it differs from what is asked for, or
    where a newer version made it; LinkDown, StoreRefused or StoreError as Link does.
    """
    if secret is not None and len(secret) != SECRET_BYTES:
        raise StoreUnfit(f"the namespace secret must have {SECRET_BYTES} bytes, got {len(secret)}")
    keys = Keys(namespace, DEFAULT_PARTITIONS if partitions is None else partitions)
    link = Link(client, keys, Scripts())
    stored = _read(link, keys)
    if None in stored:
        # Checked first, so that a newer namespace is left alone.
        _check_format(keys, stored[0])
        fresh = Namespace(keys, secret or new_secret(), keys.partitions, server_time_ms(link))
        _write(link, fresh)
        stored = _read(link, keys)
    return _checked(keys, stored, partitions, secret)


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
    )
    commands: list[Command] = [["HSETNX", facts.keys.meta, name, value] for name, value in values]
    return any(number(raw) for raw in link.call(commands))


def _read(link: Link, keys: Keys) -> list[object]:
    (raw,) = link.call([["HMGET", keys.meta, "format", "partitions", "secret", "created"]])
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
    return Namespace(fitting, known, found, _whole(keys, "created", stored[3]))


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
