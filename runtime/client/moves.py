"""What a caller's request is made of: a conversation, a generator that yields moves and gets their answers.

The blocking and the asyncio client differ only in how a wire carries out the four moves; every rule is here, once.
A wire raises `LinkDown`, `StoreRefused` or `StoreError` into the conversation where a move fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, cast

from stepwell.client.repeats import REPEAT_AFTER, Repeats, growing
from stepwell.core.clock import Clock
from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.queries import Query
from stepwell.store.requests import Command

__all__ = [
    "OUTAGE_SECONDS_MAX",
    "Ask",
    "Conversation",
    "Hear",
    "Listen",
    "Move",
    "Outage",
    "Peek",
    "Recover",
    "ask",
    "peek",
    "watch",
]

T = TypeVar("T")

# A published message may be lost with a connection: what is waited for is read again this often, in seconds.
NET_SECONDS: Final = 5.0
# How long somebody who waits goes on while Redis is away, in seconds.
OUTAGE_SECONDS_MAX: Final = 60.0
OUTAGE_PAUSE_MAX: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ask:
    """Send commands in one round trip; the answer is their raw replies, none of which is an error."""

    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class Peek:
    """As `Ask`, but where some commands are answered, a Refused or a Broken stands for the reply of each that is not: a
    master of a cluster may be away, a key may be a stranger's."""

    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class Listen:
    """Subscribe to a channel (instead of the one before); answered when the server has confirmed it."""

    channel: str


@dataclass(frozen=True, slots=True)
class Hear:
    """Wait for a message on the channel, at most so many seconds; the answer is whether one came."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Recover:
    """Wait so many seconds after a failure, and start the embedded server again if that is what died."""

    seconds: float


Move: TypeAlias = Ask | Peek | Listen | Hear | Recover
Conversation: TypeAlias = Generator[Move, object, T]


def ask(query: Query[T], repeats: Repeats | None = None) -> Conversation[T]:
    """Ask; what is lost on the way is sent again a few times, so it must be harmless to repeat. What a server refuses
    that has just become a replica is repeated for a few seconds: the next try may find the new primary."""
    return (yield from _repeated(Ask(query.commands), query.parse, repeats or Repeats()))


def peek(query: Query[T]) -> Conversation[T]:
    """The same, where single commands may go unanswered: `parse` finds a Refused or a Broken in their places."""
    return (yield from _repeated(Peek(query.commands), query.parse, Repeats()))


def _repeated(move: Ask | Peek, parse: Callable[[Sequence[object]], T], repeats: Repeats) -> Conversation[T]:
    while True:
        try:
            replies = yield move
            return parse(cast("list[object]", replies))
        except (LinkDown, StoreRefused) as error:
            pause = repeats.pause(error)
            if pause is None:
                raise
            yield Recover(pause)


def watch(
    channel: str, query: Query[T], done: Callable[[T], bool], clock: Clock, deadline: float
) -> Conversation[T | None]:
    """Wait until what is asked for is `done`, or until `deadline` (monotonic seconds); then give the last reading.

    Nothing is polled: a message on the channel says when to look. It is looked at once after subscribing, since the
    message may have been before, and every `NET_SECONDS`. Redis may be away for `OUTAGE_SECONDS_MAX` meanwhile.
    None where nothing could be read before the deadline.
    """
    outage = Outage(clock)
    reading: T | None = None
    listening = False
    while True:
        try:
            if not listening:
                yield Listen(channel)
                listening = True
            else:
                yield Hear(max(0.0, min(NET_SECONDS, deadline - clock.monotonic())))
            reading = yield from _ask_once(query)
            outage.over()
            if done(reading) or clock.monotonic() >= deadline:
                return reading
        except (LinkDown, StoreRefused):
            pause = outage.pause()
            if pause is None:
                raise
            left = deadline - clock.monotonic()
            if left <= 0:
                return reading
            listening = False
            yield Recover(min(pause, left))


def _ask_once(query: Query[T]) -> Conversation[T]:
    replies = yield Ask(query.commands)
    return query.parse(cast("list[object]", replies))


class Outage:
    """How long Redis has been away, and how long to wait before the next try. `limit`: seconds that it may last."""

    def __init__(self, clock: Clock, limit: float = OUTAGE_SECONDS_MAX) -> None:
        self._clock = clock
        self._limit = limit
        self.over()

    def over(self) -> None:
        self._since: float | None = None
        self._pauses = growing(REPEAT_AFTER[0], OUTAGE_PAUSE_MAX)

    def pause(self) -> float | None:
        """Seconds to wait; None when it has lasted too long."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        return None if now - self._since >= self._limit else next(self._pauses)

    @property
    def lasted(self) -> float:
        """Seconds since it began; 0 where there is none."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since
