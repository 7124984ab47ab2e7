"""Carries out a conversation's moves on blocking connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

import redis
from redis.exceptions import RedisError

from stepwell.client.address import Place
from stepwell.client.facts import NamespaceView
from stepwell.client.following import Away
from stepwell.client.moves import Ask, Conversation, Hear, Listen, Move, Peek
from stepwell.core.clock import Clock
from stepwell.core.errors import StoreError, UsageError
from stepwell.store.connect import explain
from stepwell.store.keys import Keys
from stepwell.store.link import Link, LinkDown

__all__ = ["CONFIRM_SECONDS", "IDLE_MAX", "Trouble", "Wire", "explained", "is_message"]

T = TypeVar("T")

# How long a server may take to confirm a subscription.
CONFIRM_SECONDS: Final = 5.0
# Subscriptions that nobody needs are kept for the next one who waits: a new connection costs more than the wait.
IDLE_MAX: Final = 8


class _PubSub(Protocol):
    """What is used of redis-py's."""

    def subscribe(self, channel: str) -> None: ...

    def unsubscribe(self, channel: str) -> None: ...

    def get_message(self, *, timeout: float) -> object: ...

    def close(self) -> None: ...


class _Client(Protocol):
    def pubsub(self) -> _PubSub: ...


class Wire:
    """One client's connections. Threads may share it: each conversation takes what it needs from pools."""

    def __init__(
        self,
        place: Place,
        connect: Callable[[str], redis.Redis],
        view: NamespaceView,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._place = place
        self._connect = connect
        self._view = view
        self._clock = clock
        self._sleep = sleep
        self._idle: list[_PubSub] = []
        self._closed = False
        self._open()

    def run(self, conversation: Conversation[T]) -> T:
        """The conversation's result. Errors of Redis are raised as StoreErrors that say what to do."""
        if self._closed:
            raise UsageError("this client is closed: make a new one")
        ear = _Ear(self._idle, self._clock)
        trouble = Trouble(self._clock)
        try:
            move = next(conversation)
            while True:
                trouble.sends(move)
                try:
                    answer = self._carry_out(move, ear)
                except StoreError as error:
                    trouble.failed()
                    move = conversation.throw(error)
                else:
                    trouble.answered(move)
                    move = conversation.send(answer)
        except StopIteration as end:
            ear.keep()
            return cast("T", end.value)
        except StoreError as error:
            raise explained(error, self._place.url, trouble.seconds) from error
        finally:
            conversation.close()
            ear.drop()

    def in_words(self, away: Away | None) -> Away | None:
        """The same, for a person: errors say what is wrong with which server."""
        if away is None:
            return None
        return lambda error: away(None if error is None else explained(error, self._place.url))

    def close(self) -> None:
        """Close all connections and leave the embedded server. Closing twice is harmless."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        self._client.close()
        self._place.leave()

    def _open(self) -> None:
        self._client = self._connect(self._place.url)
        # The link's keys serve requests that build their own commands; a conversation's commands are built already.
        self._link = Link(self._client, Keys(), self._view.scripts)

    def _carry_out(self, move: Move, ear: _Ear) -> object:
        try:
            if isinstance(move, Ask):
                self._link.durability = self._view.durability()
                return self._link.call(move.commands)
            if isinstance(move, Peek):
                return self._link.call_each(move.commands)
            if isinstance(move, Listen):
                ear.listen(self._client, move.channel)
                return None
            if isinstance(move, Hear):
                return ear.hear(move.seconds)
        except RedisError as error:
            raise explain(error, self._place.url) from error
        self._sleep(move.seconds)
        if self._place.revive():
            self._open()
        return None


class _Ear:
    """One conversation's subscription."""

    def __init__(self, idle: list[_PubSub], clock: Clock) -> None:
        self._idle = idle
        self._clock = clock
        self._pubsub: _PubSub | None = None
        self._channel = ""

    def listen(self, client: redis.Redis, channel: str) -> None:
        """Subscribe, and wait for the confirmation. Raises LinkDown."""
        self.drop()
        self._channel = channel
        try:
            self._pubsub = self._idle.pop() if self._idle else cast(_Client, client).pubsub()
            self._pubsub.subscribe(channel)
            if not self._heard("subscribe", CONFIRM_SECONDS):
                raise LinkDown(f"Redis has not confirmed a subscription within {CONFIRM_SECONDS:g} s")
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise LinkDown(f"the subscription to Redis broke: {error}") from error

    def hear(self, seconds: float) -> bool:
        """Whether a message came within so many seconds. Raises LinkDown."""
        try:
            return self._heard("message", seconds)
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise LinkDown(f"the subscription to Redis broke: {error}") from error

    def _heard(self, kind: str, seconds: float) -> bool:
        if self._pubsub is None:
            raise LinkDown("there is no subscription")
        until = self._clock.monotonic() + seconds
        while True:
            message = self._pubsub.get_message(timeout=max(0.0, until - self._clock.monotonic()))
            if message is None or is_message(message, kind, self._channel):
                return message is not None

    def keep(self) -> None:
        """Unsubscribe and leave the connection to the next one who waits."""
        pubsub = self._pubsub
        if pubsub is None or len(self._idle) >= IDLE_MAX:
            return
        try:
            pubsub.unsubscribe(self._channel)
        except (RedisError, OSError):
            return
        self._pubsub = None
        self._idle.append(pubsub)

    def drop(self) -> None:
        """Close a connection of which nobody knows what is still to come."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            pubsub.close()


def is_message(message: object, kind: str, channel: str) -> bool:
    """Whether it is of that kind and channel; an idle connection may still hear of its channel before."""
    return isinstance(message, dict) and message.get("type") == kind and message.get("channel") == channel.encode()


class Trouble:
    """How long the server has answered nothing of one conversation."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent = 0.0
        self._since: float | None = None

    def sends(self, move: Move) -> None:
        """It is carried out next."""
        self._sent = self._clock.monotonic()

    def failed(self) -> None:
        """It was not answered."""
        if self._since is None:
            self._since = self._sent

    def answered(self, move: Move) -> None:
        """It was; waiting is no answer."""
        if isinstance(move, Ask | Peek):
            self._since = None

    @property
    def seconds(self) -> float:
        """Since the first of the moves in a row that failed was made; 0 where none did."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since


def explained(error: StoreError, url: str, waited: float = 0.0) -> StoreError:
    """The error in words for a person, where it has one of redis-py behind it. `waited`: seconds, if they are known."""
    cause = error.__cause__
    return explain(cause, url, waited) if isinstance(cause, RedisError | OSError) else error
