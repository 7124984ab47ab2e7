"""Following events: of one execution, or of all; from some time on, and as they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias, cast

from stepwell.client.facts import NamespaceView
from stepwell.client.moves import OUTAGE_SECONDS_MAX, Conversation, Outage, Peek, Recover, ask
from stepwell.client.waiting import no_such
from stepwell.core.clock import Clock
from stepwell.core.durations import seconds
from stepwell.core.errors import StoreError
from stepwell.core.eventlog import execution_of
from stepwell.core.events import ExecutionEnded
from stepwell.core.moments import Moment, moment_ms
from stepwell.core.names import check_execution_id
from stepwell.core.status import TERMINAL
from stepwell.store import queries, strangers
from stepwell.store.events import EventStreams, Gap, Seen
from stepwell.store.keys import Keys
from stepwell.store.link import LinkDown, StoreRefused
from stepwell.store.replies import Broken
from stepwell.store.requests import Command

__all__ = ["Away", "Following", "Told"]

Told: TypeAlias = Seen | Gap
Away: TypeAlias = Callable[[StoreError | None], None]
"""Is told why Redis can't be read for a while, and None when it can be again."""

# How long a server holds a read that finds nothing; in a cluster only one of the masters does.
BLOCK_MS: Final = 1000
SCATTERED_BLOCK_MS: Final = 100
# An end may be missed: its execution is looked at this often, in seconds.
LOOK_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 1.0
# A connection that broke and is there again a moment later is nothing to tell.
AWAY_SECONDS: Final = 1.0


class Following:
    """Reads on and on. `more` gives what there is next; nothing when it is over.

    Who wants to be told of outages (`away`) waits for as long as they last, others for a minute.
    """

    def __init__(
        self,
        view: NamespaceView,
        clock: Clock,
        execution_id: str | None,
        since: Moment | float | None,
        follow: bool,
        stay: bool,
        away: Away | None = None,
    ) -> None:
        if execution_id is not None:
            check_execution_id(execution_id)
        self._id = execution_id
        self._since = _checked(since)
        self._view = view
        self._clock = clock
        self._follow = follow
        self._until_end = execution_id is not None and not stay
        self._streams: EventStreams | None = None
        self._scattered = False
        self._outage = Outage(clock, OUTAGE_SECONDS_MAX if away is None else math.inf)
        self._away = away
        self._told_away = False
        self._ready: list[Told] = []
        self._looked = -math.inf
        self._last_round = not follow

    def more(self) -> Conversation[list[Told]]:
        """Wait for what comes next. Raises UnknownExecution, or StoreError where Redis is away for long."""
        streams = self._streams
        while True:
            try:
                if streams is None:
                    streams = yield from self._open()
                found = yield from self._round(streams)
            except (LinkDown, StoreRefused) as error:
                if streams is None:
                    raise
                streams.all_stale()
                yield from self._sit_out(error)
                continue
            mine = [told for told in found if self._is_mine(told)]
            if not streams.stale:
                self._is_back()
            if mine:
                return mine
            if streams.stale:
                yield Recover(self._pause_for_some())
            elif self._last_round and not streams.behind:
                return []

    def _sit_out(self, error: StoreError) -> Conversation[None]:
        """Wait before the next try. Raises the error when it has lasted too long."""
        pause = self._outage.pause()
        if pause is None:
            raise error
        self._tell(error)
        try:
            yield Recover(pause)
        except StoreError:
            if self._away is None:
                raise  # an embedded server can't be started again

    def _tell(self, error: StoreError) -> None:
        if self._away is not None and not self._told_away and self._outage.lasted >= AWAY_SECONDS:
            self._told_away = True
            self._away(error)

    def _is_back(self) -> None:
        self._outage.over()
        if self._told_away and self._away is not None:
            self._told_away = False
            self._away(None)

    def _open(self) -> Conversation[EventStreams]:
        facts = yield from self._view.read()
        keys = facts.keys
        if self._id is not None and not (yield from self._status(keys, self._id)):
            raise no_such(self._id)
        partitions = range(keys.partitions) if self._id is None else [keys.partition_of(self._id)]
        streams = EventStreams(keys, partitions)
        since_ms = None if self._since is None else min(moment_ms(self._since, facts.server_ms), facts.server_ms)
        streams.opened((yield from _ask_each(streams.opening_commands())), since_ms)
        self._streams = streams
        return streams

    def _round(self, streams: EventStreams) -> Conversation[list[Told]]:
        """One read of all streams, and whether that was all."""
        if streams.stale:
            streams.found_again((yield from _ask_each(streams.lost_commands())))
        block_ms = None if self._last_round or streams.behind else BLOCK_MS
        yield from self._read(streams, block_ms)
        self._ready += streams.ready()  # kept where what follows fails
        if self._follow and self._until_end and not self._last_round and not streams.behind:
            yield from self._look(self._ready)
        found, self._ready = self._ready, []
        return found

    def _read(self, streams: EventStreams, block_ms: int | None) -> Conversation[None]:
        if self._scattered and block_ms is not None:
            block_ms = SCATTERED_BLOCK_MS
        raws = yield from _ask_each(streams.read_commands(self._scattered, block_ms))
        if not self._scattered and raws and isinstance(raws[0], Broken):
            self._scattered = True  # a cluster, or a stranger's key: each is asked for its own
            raws = yield from _ask_each(streams.read_commands(True, None))
        streams.take(raws, self._scattered)
        if streams.all_foreign:
            raise StoreError(f"the events streams can't be read: {strangers.told(streams.foreign_keys, [])}")
        if heads := streams.head_commands():
            streams.heads((yield from _ask_each(heads)))

    def _look(self, found: Sequence[Told]) -> Conversation[None]:
        """Whether its end is in the row: then one read more has all that there will be."""
        assert self._id is not None
        ended = any(
            isinstance(told, Seen) and isinstance(told.event, ExecutionEnded) and self._is_mine(told) for told in found
        )
        now = self._clock.monotonic()
        if self._streams is not None and (ended or now - self._looked >= LOOK_SECONDS):
            self._looked = now
            status = yield from self._status(self._streams.keys, self._id)
            self._last_round = status in TERMINAL or not status

    def _pause_for_some(self) -> float:
        """How long to wait for a master of a cluster that is away. Raises StoreError when that has lasted too long;
        who follows goes on with the others."""
        pause = self._outage.pause()
        why = StoreError("the events of some partitions can't be read now: a master of the cluster does not answer")
        if pause is None and not self._follow:
            raise why
        self._tell(why)
        return PAUSE_SECONDS if pause is None else pause

    def _is_mine(self, told: Told) -> bool:
        return self._id is None or isinstance(told, Gap) or execution_of(told.event) == self._id

    def _status(self, keys: Keys, execution_id: str) -> Conversation[str]:
        (head,) = yield from ask(queries.heads(keys, [execution_id], ["status"]))
        return head.get("status", b"").decode("utf-8", "replace")


def _ask_each(commands: Sequence[Command]) -> Conversation[list[object]]:
    if not commands:
        return []
    replies = yield Peek(commands)
    return cast("list[object]", replies)


def _checked(since: Moment | float | None) -> Moment | None:
    """Where to begin; a number is seconds back. Raises UsageError for what is no time."""
    if since is None:
        return None
    if isinstance(since, int | float):
        return timedelta(seconds=seconds(since, "`since` (how far back from now)"))
    moment_ms(since, 0)
    return since
