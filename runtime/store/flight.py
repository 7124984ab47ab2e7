"""One pipeline on one connection: packed by hiredis, sent in one write, its replies read in order.

Less than half of what redis-py's pipeline object costs in CPU. There is no repetition here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import hiredis
import redis
from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from stepwell.core.errors import StoreUnreachable
from stepwell.store.durability import RELAXED, Durability
from stepwell.store.replies import Refused, failure
from stepwell.store.requests import Command

__all__ = ["Flight", "LinkDown", "NotDurable", "Parcel", "moves_away", "pack", "require_safe"]

# After these the address may lead to another server (a failover): connect anew.
_RECONNECT_ON: Final = frozenset({"READONLY", "MASTERDOWN", "CLUSTERDOWN"})


# Typed by hiredis as a tuple of exactly one argument.
_pack = cast(Callable[[tuple[str | bytes | int, ...]], bytes], hiredis.pack_command)


class LinkDown(StoreUnreachable):
    """There was no connection, or it broke; whether the batch was executed is unknown. Send it again. `sent`: there was
    one."""

    def __init__(self, message: str, sent: bool = True) -> None:
        self.sent = sent
        super().__init__(message)

    def __reduce__(self) -> tuple[type[LinkDown], tuple[object, ...]]:
        return (type(self), (str(self), self.sent))


class NotDurable(LinkDown):
    """The server has executed the batch, but it is not as safe as was asked for. Send it again."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"what was written is not safe yet: {why}")

    def __reduce__(self) -> tuple[type[LinkDown], tuple[object, ...]]:
        return (type(self), (self.why,))


class _Connection(Protocol):
    """What is used of redis-py's connection."""

    def send_packed_command(self, command: list[bytes]) -> None: ...

    def can_read(self, timeout: float) -> bool: ...

    def read_response(self, *, disconnect_on_error: bool) -> object: ...

    def disconnect(self) -> None: ...


class Parcel:
    """Commands as they go over the wire, and behind them the wait that `durability` wants.

    A value of a wrong type is refused here, before anything is sent.
    """

    __slots__ = ("answers", "durability", "packed", "waits")

    def __init__(self, commands: Sequence[Command], durability: Durability = RELAXED) -> None:
        wait = durability.wait_for(commands)
        self.packed = pack(commands if wait is None else [*commands, wait])
        self.durability = durability
        self.waits = wait is not None
        self.answers = len(commands) + self.waits


class Flight:
    """A parcel under way. Making one sends it; `land` (or `abandon`) must follow, once.

    Both raise LinkDown: the fate of all commands is unknown then. `land` raises NotDurable too.
    """

    __slots__ = ("_connection", "_parcel", "_pool", "_taken")

    def __init__(self, pool: redis.ConnectionPool, parcel: Parcel) -> None:
        self._parcel = parcel
        self._pool = pool
        try:
            self._taken = pool.get_connection()
        except (RedisError, OSError) as error:
            # Also a server that answers, but refuses the handshake for now (busy, another password, no rights).
            raise LinkDown(f"no connection to Redis: {error}", sent=False) from error
        self._connection = cast(_Connection, self._taken)
        try:
            self._connection.send_packed_command([parcel.packed])
        except BaseException as error:
            self._end(reusable=False)
            if isinstance(error, RedisError | OSError):
                raise self._broken(0, error) from error
            raise

    def land(self, patience: float | None = None) -> list[object]:
        """The replies, in order; error replies are among them. `patience` limits the wait for the first, in seconds."""
        raws: list[object] = []
        reusable = False
        try:
            if patience is not None and not self._connection.can_read(patience):
                raise TimeoutError("no answer in time")
            reusable = self._read_into(raws)
        except (RedisError, OSError) as error:
            raise self._broken(len(raws), error) from error
        finally:
            self._end(reusable)
        if self._parcel.waits:
            require_safe(raws, self._parcel.durability)
        return raws

    def abandon(self) -> None:
        """Close the connection: nobody will read the replies."""
        self._end(reusable=False)

    def _read_into(self, raws: list[object]) -> bool:
        """Wait for replies as redis-py does; those that came along with one are taken out of its reader at once.

        Returns whether the connection may serve again.
        """
        answers = self._parcel.answers
        read = self._connection.read_response
        next_arrived = _reader_of(self._connection)
        errors: list[RedisError] = []
        while len(raws) < answers:
            try:
                raws.append(read(disconnect_on_error=False))
            except (ResponseError, BusyLoadingError) as error:
                raws.append(error)
                errors.append(error)
            while len(raws) < answers:
                raw = next_arrived()
                if raw is False or type(raw) is object:
                    break
                if isinstance(raw, RedisError):
                    if not isinstance(raw, ResponseError | BusyLoadingError):
                        raise raw
                    errors.append(raw)
                raws.append(raw)
        return not any(map(moves_away, errors))

    def _broken(self, answered: int, error: Exception) -> LinkDown:
        asked = self._parcel.answers - self._parcel.waits
        return LinkDown(f"the connection to Redis broke after {answered} of {asked} replies: {error}")

    def _end(self, reusable: bool) -> None:
        # A connection with unread replies must never serve another batch.
        if not reusable:
            self._connection.disconnect()
        self._pool.release(self._taken)


def _reader_of(connection: object) -> Callable[[], object]:
    """Gives out the replies that a connection has received and nobody has read, then False or an `object`.

    redis-py takes 3 us for each, on the path of every step. Where it reads in another way (RESP3, whose pushes it looks
    after; no hiredis), nothing is given out.
    """
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    if isinstance(reader, hiredis.Reader) and str(getattr(connection, "protocol", "")) == "2":
        return cast(Callable[[], object], reader.gets)
    return bool


def require_safe(raws: list[object], durability: Durability) -> None:
    """Takes the answer to the wait off the replies. Raises NotDurable where it falls short of something written."""
    why = durability.shortfall(raws.pop())
    if why and not all(isinstance(raw, RedisError) for raw in raws):
        raise NotDurable(why)


def pack(commands: Sequence[Command]) -> bytes:
    """Commands as they go over the wire."""
    return b"".join([_pack(tuple(command)) for command in commands])


def moves_away(error: RedisError) -> bool:
    """Whether the address may lead to another server by now, so that its connections must be made anew."""
    wrong = failure(error)
    return isinstance(wrong, Refused) and wrong.kind in _RECONNECT_ON
